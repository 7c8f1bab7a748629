"""What is trained next, and what a result means: the whole search without Ray.

The conductor holds the replay of its own record. Whatever it decides it appends first and believes second, so a
killed search resumes from the file with nothing lost and nothing done twice. Ray (`run.py`) and the simulated
benchmarks drive it through three calls: `next_plan`, `report`, `ended`.
"""

from collections import OrderedDict, deque
from typing import Any, Literal

from rst_tune.analysis.records import Record, Replay, Search, Trial, config_id, trial_key
from rst_tune.tuning.confirm import Confirmation
from rst_tune.tuning.draws import Draws
from rst_tune.tuning.experiment import Experiment
from rst_tune.tuning.ledger import Ledger
from rst_tune.tuning.plans import Plan, lesson_of, plan_of, runner_of
from rst_tune.tuning.priors import SAM, SGD
from rst_tune.tuning.rungs import Decision, Rungs
from rst_tune.tuning.space import configuration, picture
from rst_tune.tuning.study import SearchStudy, Standing

__all__ = ["CONFIRM_SEED", "Conductor", "Plan"]

# Confirmation seeds start here above the experiment's: no seed is used for both searching and confirming.
CONFIRM_SEED = 1000
_AFTER = {"search": "confirm", "confirm": "test", "test": "done"}


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
        self._rescaled = experiment.fidelity.kind == "rescaled"
        stopping = experiment.stopping
        self.rungs = Rungs(stopping.name, experiment.fidelity.reduction, stopping.probability, stopping.minimum)
        self._ledger = Ledger(experiment, steps_per_epoch)
        self._draws = Draws(experiment, study, self._standing)
        self._confirmation = Confirmation(experiment.confirm, {config_id(SGD), config_id(SAM)})
        self.slots = float("inf")
        self._running: set[str] = set()
        self._waiting: deque[str] = deque()
        self._unstarted: OrderedDict[str, tuple[str, int, int]] = OrderedDict()
        self._testing: deque[str] | None = None
        self._keys_of: dict[str, list[str]] = {}
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
            self._enter(_AFTER[phase])
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
        if epoch in trial.rungs or epoch not in self._rungs_of(trial):
            return None
        return self._judge(trial, epoch, error)

    def ended(self, key: str, status: str, **result: Any) -> None:
        """Take note that a trial ended: `complete`, `stopped`, `diverged` or `failed`."""
        self._running.discard(key)
        if self._replay.trials[key].ended is not None:
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
        return self._ledger.spent

    def limit(self, phase: str = "confirm") -> float:
        """Return the budget up to the end of a phase, in its own unit."""
        return self._ledger.limit(phase)

    # --- resuming ---------------------------------------------------------------------------------------------

    def _resume(self) -> None:
        for trial in list(self._replay.trials.values()):
            if trial.halted and trial.ended is None:
                self._end_halted(trial)
        trials = list(self._replay.trials.values())
        for trial in trials:
            self._take_in(trial)
            for epoch, error in trial.rungs.items():
                self.rungs.reached(runner_of(trial), epoch, error, trial.extra_propagation)
            if trial.ended is None:
                self._waiting.append(trial.key)
        drawn = {t.config_id: dict(t.config["coordinates"]) for t in trials if t.role == "search"}
        self._draws.resume(drawn)
        for trial in sorted((t for t in trials if t.ended is not None), key=lambda t: t.ended or 0.0):
            self._absorb(trial)
        for identity in drawn:
            self._plan_seeds(identity)

    def _end_halted(self, trial: Trial) -> None:
        """End a trial whose rung stopped it just before the search was killed, at the pairs it must have had."""
        epoch = max(trial.rungs)
        pairs = epoch * self.steps_per_epoch * (1 + trial.extra_propagation)
        reason = f"stopped at epoch {epoch}, just before the search was interrupted"
        self._log("end", key=trial.key, status="stopped", error=trial.rungs[epoch], pairs=pairs, reason=reason)

    def _take_in(self, trial: Trial) -> None:
        self._keys_of.setdefault(trial.config_id, []).append(trial.key)
        self._ledger.promise(trial)
        if trial.role == "confirm":
            self._confirmation.see(trial)

    def _standing(self) -> Standing:
        """Return the trials that are out or wait to be handed out again, and the reference point."""
        out = (self._replay.trials[key] for key in {*self._running, *self._waiting})
        trials = sorted(out, key=lambda t: t.number)
        return trials, self._replay.reference

    # --- searching --------------------------------------------------------------------------------------------

    def _next_search(self) -> Plan | None:
        if not self._unstarted and self._ledger.affords("search", len(self._draws.points)):
            point = self._draws.next()
            if point is not None:
                self._plan_seeds(config_id(point))
        if not self._unstarted:
            return None
        _, (identity, epochs, seed) = self._unstarted.popitem(last=False)
        return self._start(identity, epochs, seed, role="search")

    def _plan_seeds(self, identity: str) -> None:
        """Plan the trainings of a configuration that are due: further seeds wait until the judged one has finished.

        Only the first seed is judged at rungs. Judging each would leave the lucky seeds of a configuration alone.
        """
        epochs = self._rung_epochs[0] if self._rescaled else self._horizon
        first = self._draws.first_seed(identity)
        for seed in range(first, first + self._seeds_due(identity)):
            self._plan_training(identity, epochs, seed)

    def _plan_training(self, identity: str, epochs: int, seed: int) -> None:
        key = trial_key(identity, epochs, seed)
        if key not in self._replay.trials:
            self._unstarted[key] = (identity, epochs, seed)

    def _seeds_due(self, identity: str) -> int:
        stops = self.experiment.stopping.name != "none" and bool(self._rung_epochs)
        judged = self._replay.trials.get(trial_key(identity, self._horizon, self._draws.first_seed(identity)))
        return self.experiment.seeds if not stops or (judged is not None and judged.finished) else 1

    def _rungs_of(self, trial: Trial) -> tuple[int, ...]:
        if trial.role != "search" or self._rescaled or trial.seed != self._draws.first_seed(trial.config_id):
            return ()
        return tuple(self._rung_epochs)

    def _judge(self, trial: Trial, epoch: int, error: float) -> Decision:
        self.rungs.reached(runner_of(trial), epoch, error, trial.extra_propagation)
        decision = self.rungs.decide(runner_of(trial), epoch)
        self._log("rung", key=trial.key, epoch=epoch, error=error, stop=decision.stop, reason=decision.reason)
        return decision

    # --- confirming and testing -------------------------------------------------------------------------------

    def _enter(self, phase: str) -> None:
        if phase == "confirm" and not self.experiment.confirm.enabled:
            phase = "done"
        self._log("phase", name=phase, rung_correlations=self.rungs.correlations())

    def _next_confirm(self) -> Plan | None:
        if not self._ledger.affords("confirm", len(self._draws.points)):
            return None
        running = {self._replay.trials[key].config_id for key in self._running}
        chosen = self._confirmation.next(self.search, running)
        if chosen is None:
            return None
        identity, done = chosen
        seed = self.experiment.seed + CONFIRM_SEED + done
        return self._start(identity, self._horizon, seed, role="confirm")

    def _next_test(self) -> Plan | None:
        if self._testing is None:
            ready = (t for t in self._replay.trials.values() if t.role == "confirm" and t.finished)
            self._testing = deque(t.key for t in ready if t.test_error is None)
        if not self._testing:
            return None
        key = self._testing.popleft()
        self._running.add(key)
        return plan_of(self._replay.trials[key], "test")

    # --- one trial --------------------------------------------------------------------------------------------

    def _start(self, identity: str, epochs: int, seed: int, *, role: str) -> Plan:
        point, key = self._draws.points[identity], trial_key(identity, epochs, seed)
        steps, rho = epochs * self.steps_per_epoch, self.experiment.task.recipe.rho
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
        self._take_in(self._replay.trials[key])
        return self._hand_out(key)

    def _hand_out(self, key: str) -> Plan:
        self._running.add(key)
        trial = self._replay.trials[key]
        return plan_of(trial, "train", self._rungs_of(trial))

    def _absorb(self, trial: Trial) -> None:
        """Let everything that learns from an ended trial learn from it."""
        self._ledger.charge(trial)
        self._study.learn(trial, self._expected_end(trial))
        if trial.role == "confirm":
            self._confirmation.see(trial)
            return
        if trial.finished and trial.error is not None:
            self.rungs.finished(runner_of(trial), trial.error, trial.extra_propagation)
            self._fix_reference(trial)
            self._plan_seeds(trial.config_id)
        if self._rescaled and not trial.full and self._promoted(trial):
            return
        self._tell(trial)

    def _expected_end(self, trial: Trial) -> float | None:
        """Return the error that a stopped trial would have ended with, as far as its last rung tells."""
        if trial.status != "stopped" or not trial.rungs:
            return None
        return self.rungs.expected(runner_of(trial), max(trial.rungs))

    def _promoted(self, trial: Trial) -> bool:
        """Judge a whole short training; when it goes on, plan the next longer one."""
        if trial.status != "complete" or trial.error is None:
            return False
        if trial.epochs not in trial.rungs:
            self._judge(trial, trial.epochs, trial.error)
        if self._replay.trials[trial.key].halted:
            return False
        longer = next(e for e in (*self._rung_epochs, self._horizon) if e > trial.epochs)
        self._plan_training(trial.config_id, longer, trial.seed)
        return True

    def _tell(self, trial: Trial) -> None:
        """Tell the study once all seeds that are due have ended; the worst ending is what is told."""
        siblings = [self._replay.trials[key] for key in self._keys_of[trial.config_id]]
        siblings = [t for t in siblings if t.role == "search" and t.epochs == trial.epochs]
        if len(siblings) < self._seeds_due(trial.config_id) or any(t.ended is None for t in siblings):
            return
        self._study.tell(trial.config_id, *lesson_of(siblings))

    def _fix_reference(self, trial: Trial) -> None:
        """Fix the reference point once: as the experiment says, or 10 % above the first finished error."""
        if self._replay.reference is None:
            given = self.experiment.reference
            error = given.error if given.error is not None else 1.1 * max(trial.error or 0.0, 1e-3)
            self._log("reference", error=error, extra_propagation=given.extra_propagation)

    def _log(self, event: str, **fields: Any) -> None:
        self._replay.apply(self._record.append(event, **fields))
