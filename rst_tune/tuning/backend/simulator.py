"""A backend without workers: trainings are answered by a table or a formula, in simulated time.

It serves the tests, the replayed benchmarks and the scale simulation, so all of them run every line of the search
except Ray and the training itself.
"""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

from rst_tune.records import Event, Status
from rst_tune.tuning.backend.protocol import DONE, Controller, TaskKind, TestReport, TrialReport, TrialTask

E = TypeVar("E", bound=Event)
Answer = TypeVar("Answer")


class InMemoryLog:
    """An event log in memory. Its clock counts events unless another one is given."""

    def __init__(self, events: list[Event] | None = None, *, clock: Callable[[], float] | None = None) -> None:
        self.events = events if events is not None else []
        self._clock = clock or (lambda: float(len(self.events)))

    def append(self, event: E) -> E:
        """Keep the event with the time of the clock."""
        event = replace(event, time=self._clock())
        self.events.append(event)
        return event

    def close(self) -> None:
        """Do nothing."""


@dataclass(frozen=True, kw_only=True)
class SimulatedTraining:
    """The course of one training: per epoch its error and the pairs spent by its end; and how it ends."""

    errors: Sequence[float]
    pairs: Sequence[float]
    status: Status = Status.COMPLETE


class Workload(Protocol):
    """Answers for trainings that are not run."""

    def train(self, task: TrialTask) -> SimulatedTraining:
        """Return the course of a training."""

    def test(self, task: TrialTask) -> float:
        """Return the test error of a finished training."""


@dataclass(order=True)
class _Busy:
    """A worker inside a task: when it reports next, and where it is then."""

    at: float
    order: int
    task: TrialTask = field(compare=False)
    training: SimulatedTraining | None = field(compare=False, default=None)
    epoch: int = field(compare=False, default=0)


class SimulatorBackend:
    """Runs tasks in simulated time, in which one pair takes `seconds_per_pair`.

    With a `timer` (`time.perf_counter`, say) the real time that the controller takes for each decision passes in
    simulated time as well, one decision after the other: a slow controller leaves workers idle. `report_seconds` is
    added for each report, for what Ray itself takes.
    """

    def __init__(
        self,
        workload: Workload,
        *,
        workers: int = 1,
        seconds_per_pair: float = 1.0,
        every_epoch: bool = False,
        timer: Callable[[], float] | None = None,
        report_seconds: float = 0.0,
    ) -> None:
        self._workload, self._workers = workload, workers
        self._seconds_per_pair, self._every_epoch = seconds_per_pair, every_epoch
        self._timer, self._report_seconds = timer, report_seconds
        self._driver_free_at = 0.0
        self.now = 0.0
        self.busy_seconds = 0.0
        self.tasks = 0
        self.decision_seconds: dict[str, list[float]] = {}

    @property
    def slots(self) -> int:
        """How many trials run at a time."""
        return self._workers

    def run_trials(self, controller: Controller, on_progress: Callable[[], None] = lambda: None) -> None:
        """Run the controller's tasks until it has no more."""
        running: list[_Busy] = []
        while True:
            task = self._decide("next_task", controller.next_task) if len(running) < self._workers else None
            if task == DONE:
                return
            if task is not None:
                self.tasks += 1
                heapq.heappush(running, self._begin(controller, task))
                continue
            assert running, "nothing runs and nothing may start"
            worker = heapq.heappop(running)
            self.now = max(self.now, worker.at)
            if self._arrive(controller, worker):
                heapq.heappush(running, self._advance(worker))
            on_progress()

    def _decide(self, name: str, work: Callable[[], Answer]) -> Answer:
        """Let the controller decide, and let its time pass where time is taken."""
        if self._timer is None:
            return work()
        begun = self._timer()
        answer = work()
        took = self._timer() - begun
        self.decision_seconds.setdefault(name, []).append(took)
        self._driver_free_at = max(self.now, self._driver_free_at) + took
        return answer

    def _begin(self, controller: Controller, task: TrialTask) -> _Busy:
        worker = _Busy(self.now, self.tasks, task)
        if task.kind is TaskKind.TRAIN:
            self._decide("on_trial_start", lambda: controller.on_trial_start(task.key, node="simulated"))
            worker.training = self._workload.train(task)
            return self._advance(worker)
        return worker

    def _advance(self, worker: _Busy) -> _Busy:
        """Move a worker to its next report: the next rung (or epoch), or the end."""
        training = worker.training
        assert training is not None
        end = len(training.errors)
        nexts = range(worker.epoch + 1, end) if self._every_epoch else worker.task.rungs
        epoch = min((e for e in nexts if worker.epoch < e < end), default=end)
        spent = training.pairs[epoch - 1] - (training.pairs[worker.epoch - 1] if worker.epoch else 0.0)
        seconds = spent * self._seconds_per_pair
        self.busy_seconds += seconds
        worker.at = max(self.now, self._driver_free_at if self._timer is not None else self.now) + seconds
        worker.epoch = epoch
        return worker

    def _arrive(self, controller: Controller, worker: _Busy) -> bool:
        """Report where a worker is; return whether its trial goes on."""
        task, training = worker.task, worker.training
        if training is None:
            error = self._workload.test(task)
            self._decide("on_test_report", lambda: controller.on_test_report(TestReport(key=task.key, error=error)))
            return False
        if self._timer is not None:
            self._driver_free_at = max(self.now, self._driver_free_at) + self._report_seconds
        report = self._report(task, training, worker.epoch)
        return self._decide("on_report", lambda: controller.on_report(report))

    def _report(self, task: TrialTask, training: SimulatedTraining, epoch: int) -> TrialReport:
        ended = epoch == len(training.errors)
        status = training.status if ended else Status.RUNNING
        pairs = training.pairs[epoch - 1]
        return TrialReport(
            key=task.key,
            status=status,
            epoch=epoch,
            error=training.errors[epoch - 1] if status in (Status.RUNNING, Status.COMPLETE) else None,
            pairs=pairs,
            seconds=pairs * self._seconds_per_pair,
        )
