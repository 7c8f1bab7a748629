"""What is trained next, and what a result means: the whole search without Ray.

The conductor holds the replay of its own record. Whatever it decides it appends first and believes second, so a
killed search resumes from the file with nothing lost and nothing done twice. Ray (`run.py`) and the simulated
benchmarks drive it through three calls: `next_plan`, `report`, `ended`.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from rst_tune.analysis.records import Record, Replay, Search, Trial, config_id, trial_key
from rst_tune.tuning import confirm
from rst_tune.tuning.experiment import Experiment
from rst_tune.tuning.job import OUT_OF_MEMORY
from rst_tune.tuning.priors import SAM, SGD, prior_points
from rst_tune.tuning.rungs import Decision, Rungs
from rst_tune.tuning.space import Coordinates, Space, configuration, picture
from rst_tune.tuning.study import SearchStudy

__all__ = ["CONFIRM_SEED", "Conductor", "Plan"]

# Confirmation seeds start here above the search's own, so that no seed is used for both.
CONFIRM_SEED = 1000


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One piece of work for a worker: a training, or (`test`) the reading of the test set for a finished one."""

    kind: Literal["train", "test"]
    key: str
    role: str
    config: Mapping[str, Any]
    seed: int
    epochs: int
    rungs: tuple[int, ...] = ()
    keep: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return asdict(self)


class Conductor:
    """Draws, judges, confirms, within a budget. `steps_per_epoch` turns epochs into propagation pairs."""

    def __init__(
        self, experiment: Experiment, *, record: Record, replay: Replay, study: SearchStudy, steps_per_epoch: int
    ) -> None:
        self.experiment = experiment
        self.steps_per_epoch = steps_per_epoch
        self._record, self._replay, self._study = record, replay, study
        self._horizon = experiment.task.recipe.epochs
        self._rung_epochs = experiment.fidelity.epochs(self._horizon)
        stopping = experiment.stopping
        self.rungs = Rungs(stopping.name, experiment.fidelity.reduction, stopping.probability, stopping.minimum)
        self.slots = float("inf")
        self._running: set[str] = set()
        self._testing: deque[str] | None = None
        self._points: dict[str, Coordinates] = {}
        self._waiting: deque[str] = deque()
        self._unstarted: deque[tuple[Coordinates, int, int]] = deque()
        self._given_points = self._fixed_points()
        self._keys_of: dict[str, list[str]] = {}
        self._candidates: list[str] | None = None
        self._exhausted = False
        self._spent = 0.0
        self._resume()

    # --- what the outside asks -------------------------------------------------------------------------------

    def next_plan(self) -> Plan | Literal["done"] | None:
        """Return the next piece of work; None: not now, something that is running decides; "done": nothing more."""
        if len(self._running) >= self._room():
            return None
        if self._waiting:
            return self._hand_out(self._waiting.popleft())
        while (phase := self._replay.phase) != "done":
            plan = {"search": self._next_search, "confirm": self._next_confirm, "test": self._next_test}[phase]()
            if plan is not None or self._running:
                return plan
            self._enter({"search": "confirm", "confirm": "test", "test": "done"}[phase])
        return "done"

    def _room(self) -> float:
        """Return how many plans may be out: what was asked for, or a few more than the cluster holds at a time.

        A worker that ends must find the next plan waiting, or Ray lets it go and starts another, which takes seconds.
        """
        return self.experiment.resources.concurrent or self.slots + max(1.0, self.slots // 16)

    def started(self, key: str, **where: str) -> None:
        """Take note that a worker took the trial."""
        if self._replay.trials[key].ended is None:
            self._log("start", key=key, **where)

    def report(self, key: str, epoch: int, error: float) -> Decision | None:
        """Judge a trial that has reached `epoch`; None where no rung stands."""
        trial = self._replay.trials[key]
        rescaled = self.experiment.fidelity.kind == "rescaled"
        if trial.role != "search" or rescaled or epoch not in self._rung_epochs or epoch in trial.rungs:
            return None
        return self._judge(trial, epoch, error)

    def ended(self, key: str, status: str, **result: Any) -> None:
        """Take note that a trial ended: `complete`, `stopped`, `diverged` or `failed`."""
        self._running.discard(key)
        trial = self._replay.trials[key]
        if trial.ended is not None:
            return
        self._log("end", key=key, status=status, **result)
        self._absorb(self._replay.trials[key])

    def tested(self, key: str, error: float | None) -> None:
        """Take note of the test error of a confirmed trial, or that it could not be read."""
        self._running.discard(key)
        if error is not None and self._replay.trials[key].test_error is None:
            self._log("test", key=key, error=error)

    def search(self) -> Search:
        """Return the search as it stands."""
        return self._replay.search()

    @property
    def phase(self) -> str:
        """Where the search is: `search`, `confirm`, `test`, `done`."""
        return self._replay.phase

    @property
    def running(self) -> int:
        """How many pieces of work are out."""
        return len(self._running)

    def spent(self) -> float:
        """Return what ended trials have cost, in the unit of the budget."""
        return self._spent

    def limit(self, phase: str = "confirm") -> float:
        """Return the budget up to the end of a phase, in its own unit."""
        budget, confirming = self.experiment.budget, self.experiment.confirm
        total = budget.pairs or budget.device_hours or float(budget.trials or 0)
        if budget.trials is not None:
            return total if phase == "search" else float("inf")
        return total * (1 - confirming.share) if phase == "search" and confirming.enabled else total

    # --- resuming ---------------------------------------------------------------------------------------------

    def _resume(self) -> None:
        for trial in self._replay.trials.values():
            self._points.setdefault(trial.config_id, dict(trial.config["coordinates"]))
            self._keys_of.setdefault(trial.config_id, []).append(trial.key)
        self._study.reconcile(self._points)
        for trial in list(self._replay.trials.values()):
            if trial.ended is None:
                self._waiting.append(trial.key)
            self._see(trial)
        for trial in list(self._replay.trials.values()):
            if trial.ended is not None:
                self._absorb(trial)
        for identity, point in self._points.items():
            if any(t.role == "search" for t in self._of(identity)):
                self._plan_seeds(point)
        drawn = [config_id(point) for point in self._given_points]
        self._given_points = [p for p, i in zip(self._given_points, drawn, strict=True) if i not in self._points]

    def _see(self, trial: Trial) -> None:
        for epoch, error in trial.rungs.items():
            self.rungs.reached(trial.key, epoch, error, trial.extra_propagation)

    def _of(self, identity: str) -> list[Trial]:
        return [self._replay.trials[key] for key in self._keys_of.get(identity, ())]

    # --- searching --------------------------------------------------------------------------------------------

    def _fixed_points(self) -> list[Coordinates]:
        space = self.experiment.space
        if not isinstance(space, Space):
            return [SGD, SAM]
        grid = list(space.grid()) if self.experiment.sampler.name == "grid" else []
        unique = {config_id(point): point for point in (*prior_points(space), *grid)}
        return list(unique.values())

    def _next_search(self) -> Plan | None:
        if self._unstarted:
            return self._start(*self._unstarted.popleft(), role="search")
        if not self._affords("search"):
            return None
        point = self._next_point()
        if point is None:
            return None
        self._points[config_id(point)] = point
        self._plan_seeds(point)
        return self._start(*self._unstarted.popleft(), role="search")

    def _next_point(self) -> Coordinates | None:
        if self._given_points:
            point = self._given_points.pop(0)
            self._study.take(point)
            return point
        if self.experiment.sampler.name == "grid":
            return None
        for attempt in range(20):  # a small discrete space repeats itself: a point that was seen is drawn again
            point = self._study.draw(len(self._points), attempt)
            if config_id(point) not in self._points:
                return point
        self._exhausted = True
        return None

    def _plan_seeds(self, point: Coordinates) -> None:
        first = self._rung_epochs[0] if self.experiment.fidelity.kind == "rescaled" else self._horizon
        for seed in range(self.experiment.seed, self.experiment.seed + self.experiment.seeds):
            if trial_key(config_id(point), first, seed) not in self._replay.trials:
                self._unstarted.append((point, first, seed))

    def _affords(self, phase: str) -> bool:
        if self.experiment.budget.trials is not None and phase == "search":
            return len(self._points) < self.experiment.budget.trials
        return not self._exhausted and self._spent + self._committed() < self.limit(phase)

    def _committed(self) -> float:
        return sum(self._expected_cost(self._replay.trials[key]) for key in self._running)

    def _expected_cost(self, trial: Trial) -> float:
        pairs = trial.epochs * self.steps_per_epoch * (1 + trial.extra_propagation)
        return pairs if self.experiment.budget.pairs is not None else 0.0

    def _judge(self, trial: Trial, epoch: int, error: float) -> Decision:
        self.rungs.reached(trial.key, epoch, error, trial.extra_propagation)
        decision = self.rungs.decide(trial.key, epoch)
        self._log("rung", key=trial.key, epoch=epoch, error=error, stop=decision.stop, reason=decision.reason)
        return decision

    # --- confirming and testing -------------------------------------------------------------------------------

    def _enter(self, phase: str) -> None:
        if phase == "confirm" and not self.experiment.confirm.enabled:
            phase = "done"
        self._log("phase", name=phase)

    def _chosen(self) -> list[str]:
        if self._candidates is None:  # the searching trials are over, so the choice stands
            ends = {config_id(SGD), config_id(SAM)}
            self._candidates = confirm.candidates(self.search(), self.experiment.confirm.candidates, ends)
        return self._candidates

    def _next_confirm(self) -> Plan | None:
        if not self._affords("confirm"):
            return None
        running = {self._replay.trials[key].config_id for key in self._running}
        for identity in confirm.unsettled(self.search(), self._chosen(), self.experiment.confirm):
            done = sum(1 for t in self._of(identity) if t.role == "confirm")
            if identity not in running or done < self.experiment.confirm.first:
                seed = self.experiment.seed + CONFIRM_SEED + done
                return self._start(self._points[identity], self._horizon, seed, role="confirm")
        return None

    def _next_test(self) -> Plan | None:
        if self._testing is None:
            ready = (t for t in self._replay.trials.values() if t.role == "confirm" and t.finished)
            self._testing = deque(t.key for t in ready if t.test_error is None)
        if not self._testing:
            return None
        key = self._testing.popleft()
        self._running.add(key)
        return self._plan(self._replay.trials[key], "test")

    # --- one trial --------------------------------------------------------------------------------------------

    def _start(self, point: Coordinates, epochs: int, seed: int, *, role: str) -> Plan:
        identity = config_id(point)
        key = trial_key(identity, epochs, seed)
        steps, rho = epochs * self.steps_per_epoch, self.experiment.task.recipe.rho
        self._keys_of.setdefault(identity, []).append(key)
        self._log(
            "trial",
            key=key,
            number=len(self._replay.trials),
            role=role,
            config_id=identity,
            config=configuration(point, total_steps=steps, rho=rho) | picture(point, total_steps=steps, seed=seed),
            seed=seed,
            epochs=epochs,
            full=epochs == self._horizon,
        )
        return self._hand_out(key)

    def _hand_out(self, key: str) -> Plan:
        self._running.add(key)
        return self._plan(self._replay.trials[key], "train")

    def _plan(self, trial: Trial, kind: Literal["train", "test"]) -> Plan:
        judged = trial.role == "search" and self.experiment.fidelity.kind == "prefix"
        return Plan(
            kind=kind,
            key=trial.key,
            role=trial.role,
            config=trial.config,
            seed=trial.seed,
            epochs=trial.epochs,
            rungs=tuple(self._rung_epochs) if judged else (),
            keep=trial.role == "confirm",
        )

    def _absorb(self, trial: Trial) -> None:
        """Let everything that learns from an ended trial learn from it."""
        self._spent += self._cost(trial)
        if trial.role != "search":
            return
        if trial.finished and trial.error is not None:
            self.rungs.finished(trial.key, trial.error, trial.extra_propagation)
            self._fix_reference(trial)
        if self.experiment.fidelity.kind == "rescaled" and not trial.full and self._promoted(trial):
            return
        self._tell(trial)

    def _cost(self, trial: Trial) -> float:
        budget = self.experiment.budget
        if budget.device_hours is not None:
            return trial.seconds * max(self.experiment.resources.gpu, 1.0) / 3600
        return trial.pairs if budget.pairs is not None else 0.0

    def _promoted(self, trial: Trial) -> bool:
        """Judge a whole short training; when it goes on, plan the next longer one."""
        if trial.status != "complete" or trial.error is None:
            return False
        if trial.epochs not in trial.rungs:
            self._judge(trial, trial.epochs, trial.error)
        if self._replay.trials[trial.key].halted:
            return False
        longer = next(e for e in (*self._rung_epochs, self._horizon) if e > trial.epochs)
        if trial_key(trial.config_id, longer, trial.seed) not in self._replay.trials:
            self._unstarted.append((self._points[trial.config_id], longer, trial.seed))
        return True

    def _tell(self, trial: Trial) -> None:
        """Tell the study once all seeds of the configuration have ended; the worst ending is what is told."""
        siblings = [t for t in self._of(trial.config_id) if t.role == "search" and t.epochs == trial.epochs]
        if len(siblings) < self.experiment.seeds or any(t.ended is None for t in siblings):
            return
        status = next((_lesson(t) for t in siblings if not t.finished), "complete")
        if status == "complete" and not trial.full:
            status = "stopped"
        errors = [t.error for t in siblings if t.error is not None]
        mean = sum(errors) / len(errors) if errors else float("nan")
        self._study.tell(trial.config_id, status, (mean, trial.extra_propagation))

    def _fix_reference(self, trial: Trial) -> None:
        """Fix the reference point once: as the experiment says, or 10 % above the first finished error."""
        if self._replay.reference is None:
            given = self.experiment.reference
            error = given.error if given.error is not None else 1.1 * max(trial.error or 0.0, 1e-3)
            self._log("reference", error=error, extra_propagation=given.extra_propagation)

    def _log(self, event: str, **fields: Any) -> None:
        self._replay.apply(self._record.append(event, **fields))


def _lesson(trial: Trial) -> str:
    """Return the ending as the sampler should learn it: too much memory is to be avoided like divergence."""
    return "diverged" if trial.reason.startswith(OUT_OF_MEMORY) else trial.status
