"""Whether one driver keeps many GPUs busy: the real controller, event log and study on simulated workers.

    python experiments/benchmarks/scale.py                           # the whole claim: 512 GPUs, 20,000 trials
    python experiments/benchmarks/scale.py --trials 1000 --profile   # where the time goes
    python experiments/benchmarks/scale.py --clock cpu               # on a machine with other load
    python experiments/benchmarks/scale.py --quick

Epochs take 60 s of simulated time. Every decision of the driver is made for real and timed; in simulated time a GPU
waits in the driver's queue until its decision is made. Ray's own time per report is added as a constant (`--ray-ms`,
measured separately). Printed: the share of time that the GPUs are busy, and the time per decision and the memory
against the number of trials.
"""

import argparse
import cProfile
import json
import math
import pstats
import random
import statistics
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal

import psutil

from rst_tune.records import LOG_NAME, EventLog, Phase, PhaseEntered, SearchState
from rst_tune.tuning.backend.protocol import DONE, TestReport, TrialReport, TrialTask
from rst_tune.tuning.backend.simulator import SimulatedTraining, SimulatorBackend
from rst_tune.tuning.controller import SearchController
from rst_tune.tuning.experiment import Experiment, load_space
from rst_tune.tuning.study import SearchStudy

CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}
STEPS_PER_EPOCH = 390
MEAN_PAIRS = 1.5  # per step, over the space
TARGET = 0.95
MARKS = (1000, 2000, 5000, 10_000, 15_000)
METRICS = ("train_loss", "validation_error", "validation_loss", "pairs", "seconds", "seconds_pass1", "seconds_pass2")


def make_experiment(options: argparse.Namespace) -> Experiment:
    """Return a search of the shipped space with a budget in trials and no confirmation."""
    return Experiment.model_validate(
        {
            "name": "scale",
            "task": {"recipe": {"base": "cifar-cnn", "epochs": options.epochs}},
            "space": load_space("grst").model_dump(),
            "budget": {"trials": options.trials},
            "sampler": {"name": options.sampler},
            "confirm": {"enabled": False},
        }
    )


class LearningCurves:
    """A workload: errors fall with the epochs and the cost and are noisier early; epochs vary by 5 % in length."""

    def train(self, task: TrialTask) -> SimulatedTraining:
        """Return the course of a training."""
        rng, cost = random.Random(task.key), task.config.extra_propagation
        left = [math.exp(-3 * epoch / task.epochs) for epoch in range(1, task.epochs + 1)]
        errors = [max(0.5, 5 - 1.2 * cost**0.5 + 30 * rest + rng.gauss(0, 0.1 + rest)) for rest in left]
        pairs = accumulate(STEPS_PER_EPOCH * (1 + cost) * rng.uniform(0.95, 1.05) for _ in left)
        return SimulatedTraining(errors=errors, pairs=list(pairs))

    def test(self, task: TrialTask) -> float:
        """Return a constant: nothing is tested without confirmation."""
        return 5.0 - task.config.extra_propagation


class InstrumentedController:
    """A controller whose trials report as many metrics as real ones; it counts the seconds that workers trained.

    With `steady` it is done as soon as nothing more starts: afterwards only the last trainings would end.
    """

    def __init__(
        self,
        controller: SearchController,
        metrics: tuple[str, ...],
        *,
        steady: bool = False,
        deadline: float = math.inf,
    ) -> None:
        self._controller, self._metrics, self._steady, self._deadline = controller, metrics, steady, deadline
        self._last: dict[str, TrialReport] = {}
        self.trained_seconds = 0.0

    def next_task(self) -> TrialTask | Literal["done"] | None:
        """Return the next task."""
        task = self._controller.next_task() if time.monotonic() < self._deadline else DONE
        return DONE if task is None and self._steady else task

    def on_trial_start(self, key: str, *, node: str = "", worker: str = "", ray_trial: str = "") -> None:
        """Pass on."""
        self._controller.on_trial_start(key, node=node, worker=worker, ray_trial=ray_trial)

    def on_report(self, report: TrialReport) -> bool:
        """Add the metrics of the epochs since the last report, and pass on."""
        last = self._last.get(report.key) or TrialReport(key=report.key, status=report.status)
        self._last[report.key] = report
        self.trained_seconds += report.seconds - last.seconds
        column = [report.error or 0.0] * (report.epoch - last.epoch)
        metrics = dict.fromkeys(self._metrics, column)
        goes_on = self._controller.on_report(replace(report, first_epoch=last.epoch + 1, epoch_metrics=metrics))
        if not goes_on:
            del self._last[report.key]
        return goes_on

    def on_trial_lost(self, key: str, reason: str) -> None:
        """Pass on."""
        self._controller.on_trial_lost(key, reason)

    def on_test_report(self, report: TestReport) -> None:
        """Pass on."""
        self._controller.on_test_report(report)


class Rows:
    """Prints one row at each mark: trials, milliseconds per decision (median, 95th percentile), memory, busy share."""

    def __init__(self, backend: SimulatorBackend, controller: InstrumentedController, trials: int) -> None:
        self._backend, self._controller = backend, controller
        self._marks = deque(sorted({*(n for n in MARKS if n < trials), trials}))
        self._counts: dict[str, int] = {}
        self._before = (0.0, 0.0)
        print("  trials   next_task p50, p95 ms  on_report p50, p95 ms        MB      busy")

    def update(self) -> None:
        """Print a row where the next mark is reached."""
        if not self._marks or self._backend.tasks < self._marks[0]:
            return
        self._marks.popleft()
        cells = [f"{self._backend.tasks:>8,}"]
        for name in ("next_task", "on_report"):
            values = self._backend.decision_seconds.get(name, [])[self._counts.get(name, 0) :]
            high = statistics.quantiles(values, n=20)[-1] if len(values) > 1 else math.nan
            cells.append(f"{statistics.median(values) * 1e3 if values else math.nan:>11.2f} {high * 1e3:>9.2f}")
        passed, trained = self._backend.now - self._before[0], self._controller.trained_seconds - self._before[1]
        busy = 100 * trained / (passed * self._backend.slots) if passed else math.nan
        print("  ".join([*cells, f"{memory_mb():>8.0f}", f"{busy:>7.1f} %"]), flush=True)
        self._counts = {name: len(values) for name, values in self._backend.decision_seconds.items()}
        self._before = (self._backend.now, self._controller.trained_seconds)


def memory_mb() -> float:
    """Return the resident memory of this process."""
    return psutil.Process().memory_info().rss / 1e6


def fsync_milliseconds(folder: Path) -> float:
    """Return what one durable line costs on this disk."""
    log = EventLog(folder / "fsync")
    begun = time.perf_counter()
    for _ in range(200):
        log.append(PhaseEntered(phase=Phase.SEARCH))
    log.close()
    return (time.perf_counter() - begun) / 200 * 1e3


def run(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Run the search until its budget is handed out, and return the measurements."""
    experiment, log = make_experiment(options), EventLog(folder)
    backend = SimulatorBackend(
        LearningCurves(),
        workers=options.gpus,
        seconds_per_pair=options.epoch_seconds / (MEAN_PAIRS * STEPS_PER_EPOCH),
        every_epoch=True,
        timer=CLOCKS[options.clock],
        report_seconds=options.ray_ms / 1e3,
    )
    search = SearchController(
        experiment,
        log=log,
        state=SearchState(folder),
        study=SearchStudy(experiment, folder),
        steps_per_epoch=STEPS_PER_EPOCH,
        slots=lambda: backend.slots,
    )
    deadline = time.monotonic() + options.minutes * 60
    controller = InstrumentedController(search, METRICS, steady=True, deadline=deadline)
    rows = Rows(backend, controller, options.trials)
    backend.run_trials(controller, rows.update)
    log.close()
    return {
        "gpus": options.gpus,
        "trials": backend.tasks,
        "simulated_hours": backend.now / 3600,
        # Epochs that were still running when the budget was handed out are not counted.
        "busy": controller.trained_seconds / (backend.now * options.gpus),
        "mean_ms": {name: statistics.fmean(values) * 1e3 for name, values in backend.decision_seconds.items()},
        "driver_busy": sum(map(sum, backend.decision_seconds.values())) / backend.now,
        "memory_mb": memory_mb(),
        "log_mb": (folder / LOG_NAME).stat().st_size / 1e6,
        "fsync_ms_per_line": fsync_milliseconds(folder),
    }


def main() -> int:
    """Run the simulation; 1 where the GPUs are busy for less than the target."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, default=512)
    parser.add_argument("--trials", type=int, default=20_000)
    parser.add_argument("--epochs", type=int, default=27)
    parser.add_argument("--epoch-seconds", type=float, default=60.0)
    parser.add_argument("--sampler", default="front")
    parser.add_argument("--ray-ms", type=float, default=2.2, help="Ray's own time per report")
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--minutes", type=float, default=60.0, help="stop after this much real time")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--quick", action="store_true", help="8 GPUs, 100 trials, random sampling; no verdict")
    options = parser.parse_args()
    if options.quick:
        options.gpus, options.trials, options.sampler = 8, 100, "random"
    profile = cProfile.Profile()
    with tempfile.TemporaryDirectory() as folder:
        if options.profile:
            profile.enable()
        result = run(options, Path(folder))
        profile.disable()
    print(json.dumps(result, indent=2))
    if options.profile:
        pstats.Stats(profile).sort_stats("cumulative").print_stats(35)
    return 0 if options.quick or result["busy"] >= TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
