"""What is trained next, and what a result means: the whole search, without anything that runs trials.

The controller holds the state that its own event log leads to. Each decision is appended to the log before it is acted
on, so a killed search resumes from the file with nothing lost and nothing done twice.
"""

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Literal, Protocol, TypeVar

from rst_tune.analysis.pareto import derive_reference, reference_compute
from rst_tune.records import (
    EpochsReported,
    Event,
    Phase,
    PhaseEntered,
    ReferenceSet,
    Role,
    RungReached,
    Search,
    SearchState,
    Status,
    TestRead,
    Trial,
    TrialConfig,
    TrialEnded,
    TrialSampled,
    TrialStarted,
    config_id,
    trial_key,
)
from rst_tune.tuning.backend.protocol import DONE, TaskKind, TestReport, TrialReport, TrialTask
from rst_tune.tuning.budget import BudgetTracker
from rst_tune.tuning.confirmation import Confirmation
from rst_tune.tuning.experiment import Experiment
from rst_tune.tuning.halving import Decision, RungTable, make_stopper
from rst_tune.tuning.points import SGD, baselines
from rst_tune.tuning.proposals import ProposalQueue
from rst_tune.tuning.space import schedule_preview, trial_config
from rst_tune.tuning.study import PendingTrials, SearchStudy, optuna_outcome

# Confirmation seeds start here above the experiment's: no seed is used for both searching and confirming.
CONFIRM_SEED = 1000
# After this many failed trials in a row, without any that trained, the task itself is taken to be broken.
MAX_FAILURES_IN_A_ROW = 5
_NEXT_PHASE = {Phase.SEARCH: Phase.CONFIRM, Phase.CONFIRM: Phase.TEST, Phase.TEST: Phase.DONE}

E = TypeVar("E", bound=Event)


class SearchFailedError(RuntimeError):
    """No trial could be trained. A resumed search trains the failed ones again."""


class LogWriter(Protocol):
    """What the controller needs of an event log."""

    def append(self, event: E) -> E:
        """Append an event and return it with its time."""


class SearchController:
    """Samples, judges and confirms within a budget. `steps_per_epoch` turns epochs into propagation pairs."""

    def __init__(
        self,
        experiment: Experiment,
        *,
        log: LogWriter,
        state: SearchState,
        study: SearchStudy,
        steps_per_epoch: int,
        slots: Callable[[], float] = lambda: float("inf"),
    ) -> None:
        self.experiment, self.steps_per_epoch = experiment, steps_per_epoch
        self._log, self._state, self._study, self._slots = log, state, study, slots
        self._scale = experiment.scale(steps_per_epoch)
        self.rungs = RungTable()
        self._stopper = make_stopper(experiment.stopping, experiment.fidelity.reduction_factor)
        self._budget = BudgetTracker(experiment, steps_per_epoch)
        self._proposals = ProposalQueue(experiment, study, self._pending)
        always = {config_id(params): trial_config(params, self._scale) for params in baselines(experiment.space)}
        self._confirmation = Confirmation(experiment.confirm, always, study.model)
        self._running: set[str] = set()
        self._waiting: deque[str] = deque()
        self._unstarted: OrderedDict[str, tuple[str, int]] = OrderedDict()
        self._to_test: deque[str] | None = None
        self._keys_of: dict[str, list[str]] = {}
        self._last_reports: dict[str, TrialReport] = {}
        self._failures_in_a_row = 0
        self._resume()

    # --- what a backend asks ----------------------------------------------------------------------------------

    def next_task(self) -> TrialTask | Literal["done"] | None:
        """Return the next task; None: none until something that runs has ended; `DONE`: none any more."""
        if len(self._running) >= self._max_running():
            return None
        if self._waiting:
            return self._dispatch(self._waiting.popleft())
        work = {Phase.SEARCH: self._next_search, Phase.CONFIRM: self._next_confirm, Phase.TEST: self._next_test}
        while (phase := self._state.phase) is not Phase.DONE:
            task = work[phase]()
            if task is not None or self._running:
                return task
            self._enter(_NEXT_PHASE[phase])
        return DONE

    def _max_running(self) -> float:
        """Return how many tasks may be out: the configured number, or a few more than the cluster holds.

        A worker that ends must find the next task waiting, or Ray releases it and starts another, which takes seconds.
        """
        slots = max(1.0, self._slots())
        return self.experiment.resources.max_concurrent_trials or slots + max(1.0, slots // 16)

    def on_trial_start(self, key: str, *, node: str = "", worker: str = "", ray_trial: str = "") -> None:
        """Record that a worker took the trial."""
        if key in self._running:
            self._append(TrialStarted(key=key, node=node, worker=worker, ray_trial=ray_trial))

    def on_report(self, report: TrialReport) -> bool:
        """Record what a trial reports; return whether it goes on."""
        if report.key not in self._running:
            return False
        trial = self._state.trials[report.key]
        if any(report.epoch_metrics.values()):
            self._append(EpochsReported(key=report.key, first_epoch=report.first_epoch, metrics=report.epoch_metrics))
        self._last_reports[report.key] = report
        if report.status is not Status.RUNNING:
            self._end(report, report.status, report.reason)
            return False
        decision = self._judge(trial, report)
        if decision is None or not decision.stop:
            return True
        note = f"; {report.reason}" if report.reason else ""
        self._end(report, Status.STOPPED, f"stopped at epoch {report.epoch}: {decision.reason}{note}")
        return False

    def on_trial_lost(self, key: str, reason: str) -> None:
        """Record that the worker of a trial died more often than it is started again; charge what it had spent."""
        if key in self._running:
            last = self._last_reports.get(key) or TrialReport(key=key, status=Status.LOST)
            self._end(last, Status.LOST, reason)

    def on_test_report(self, report: TestReport) -> None:
        """Record the test error of a replicate, or nothing where the test set could not be read."""
        self._running.discard(report.key)
        if report.error is not None and self._state.trials[report.key].test_error is None:
            self._append(TestRead(key=report.key, error=report.error))

    def search(self) -> Search:
        """Return the search at this moment."""
        return self._state.search()

    @property
    def running(self) -> int:
        """How many tasks are out."""
        return len(self._running)

    @property
    def spent(self) -> float:
        """What ended trials have cost, in the unit of the budget."""
        return self._budget.spent

    @property
    def limit(self) -> float:
        """The whole budget, in its own unit."""
        return self._budget.limit(searching=False)

    # --- resuming ---------------------------------------------------------------------------------------------

    def _resume(self) -> None:
        for trial in list(self._state.trials.values()):
            if trial.stopped_by_rung and not trial.status.has_ended:
                self._end_stopped(trial)
        self._retry_failed()
        trials = list(self._state.trials.values())
        again = {t.key for t in trials if t.status is Status.LOST}
        for trial in trials:
            self._register(trial)
            for epoch, error in trial.rungs.items():
                self.rungs.add(trial.key, (epoch, trial.epochs), error, trial.compute)
            if not trial.status.has_ended or trial.key in again:
                self._waiting.append(trial.key)
        sampled = {t.config_id: dict(t.config.params) for t in trials if t.role is Role.SEARCH}
        self._proposals.resume(sampled, again={t.config_id for t in trials if t.key in again})
        ended = [t for t in trials if t.ended_at is not None and t.key not in again]
        for trial in sorted(ended, key=lambda t: t.ended_at or 0.0):
            self._update_models(trial)
        for identity in sampled:
            self._queue_seeds(identity)

    def _retry_failed(self) -> None:
        """Train failed trials again in a search in which none was trained: the cause may have been removed.

        They become lost ones in the log, so that a search that is killed after the first of them still has the others.
        """
        trials = list(self._state.trials.values())
        if any(t.status in (Status.COMPLETE, Status.STOPPED, Status.DIVERGED) for t in trials):
            return
        for t in (t for t in trials if t.status is Status.FAILED):
            self._append(TrialEnded(key=t.key, status=Status.LOST, reason=t.reason, pairs=t.pairs, seconds=t.seconds))

    def _end_stopped(self, trial: Trial) -> None:
        """End a trial whose rung stopped it just before the search was killed, with what its epochs had cost."""
        epoch = max(trial.rungs)
        last = {name: column[-1] for name, column in trial.history.items() if column}
        self._append(
            TrialEnded(
                key=trial.key,
                status=Status.STOPPED,
                reason=f"stopped at epoch {epoch}, just before the search was interrupted",
                error=trial.rungs[epoch],
                pairs=last.get("pairs", epoch * self.steps_per_epoch * (1 + trial.extra_propagation)),
                seconds=sum(trial.history.get("seconds", [])),
                metrics=last,
            )
        )

    def _register(self, trial: Trial) -> None:
        self._keys_of.setdefault(trial.config_id, []).append(trial.key)
        self._budget.reserve(trial)
        self._confirmation.update(trial)

    def _pending(self) -> PendingTrials:
        """Return what is out or waits to be dispatched again, the reference point, and the number of trials."""
        out = (self._state.trials[key] for key in {*self._running, *self._waiting})
        trials = tuple(sorted(out, key=lambda t: t.number))
        return PendingTrials(trials, self._state.reference, len(self._state.trials), self._next_seed_of)

    def _next_seed_of(self, config: TrialConfig | None) -> int:
        return self._proposals.first_seed() if config is None else self._replicate_seed(config_id(config.params))

    # --- searching --------------------------------------------------------------------------------------------

    def _next_search(self) -> TrialTask | None:
        """Return the next training: a new configuration, or a replicate on the next of the shared fresh seeds."""
        if not self._unstarted and self._affords(searching=True):
            identity = self._proposals.next()
            if identity in self._keys_of:
                return self._start_replicate(identity)
            if identity is not None:
                self._queue_seeds(identity)
        if not self._unstarted:
            return None
        _, (identity, seed) = self._unstarted.popitem(last=False)
        return self._start(identity, seed, Role.SEARCH)

    def _affords(self, *, searching: bool) -> bool:
        reserve = self._confirmation.reserve(self._state.reference) if searching else 0.0
        return self._budget.affords(len(self._proposals.params), searching=searching, reserve=reserve)

    def _start_replicate(self, identity: str) -> TrialTask:
        return self._start(identity, self._replicate_seed(identity), Role.CONFIRM)

    def _replicate_seed(self, identity: str) -> int:
        return self.experiment.seed + CONFIRM_SEED + self._confirmation.seeds(identity)

    def _queue_seeds(self, identity: str) -> None:
        """Queue the trainings of a configuration that are due: further seeds wait until the judged one has finished.

        Only the first seed is judged at rungs. Judging each would leave only the lucky seeds of a configuration.
        """
        first = self._proposals.first_seed(identity)
        for seed in range(first, first + self._seeds_due(identity)):
            key = trial_key(identity, self._epochs_of(identity), seed)
            if key not in self._state.trials:
                self._unstarted[key] = (identity, seed)

    def _seeds_due(self, identity: str) -> int:
        epochs = self._epochs_of(identity)
        judged = self._state.trials.get(trial_key(identity, epochs, self._proposals.first_seed(identity)))
        stops = self.experiment.stopping.name != "none" and bool(self.experiment.fidelity.epochs(epochs))
        return self.experiment.seeds if not stops or (judged is not None and judged.finished) else 1

    def _epochs_of(self, identity: str) -> int:
        return self._scale.epochs_of(self._proposals.params[identity])

    def _rungs_of(self, trial: Trial) -> tuple[int, ...]:
        if trial.role is not Role.SEARCH or trial.seed != self._proposals.first_seed(trial.config_id):
            return ()
        return tuple(self.experiment.fidelity.epochs(trial.epochs))

    def _judge(self, trial: Trial, report: TrialReport) -> Decision | None:
        """Return what the rung at this epoch decides; None where there is no rung."""
        epoch, error = report.epoch, report.error
        if error is None or epoch in trial.rungs or epoch not in self._rungs_of(trial):
            return None
        self.rungs.add(trial.key, (epoch, trial.epochs), error, trial.compute)
        decision = self._stopper.decide(self.rungs, trial.key, (epoch, trial.epochs))
        self._append(RungReached(key=trial.key, epoch=epoch, error=error, stop=decision.stop, reason=decision.reason))
        return decision

    # --- confirming and testing -------------------------------------------------------------------------------

    def _enter(self, phase: Phase) -> None:
        trials = self._state.trials.values()
        if phase is Phase.CONFIRM and trials and not any(t.finished for t in trials):
            reasons = [t.reason for t in trials if t.status in (Status.FAILED, Status.LOST, Status.OUT_OF_MEMORY)]
            if len(reasons) == len(trials):
                raise SearchFailedError(f"all {len(trials)} trials failed; the last one: {reasons[-1]}")
        if phase is Phase.CONFIRM and not self.experiment.confirm.enabled:
            phase = Phase.DONE
        self._append(PhaseEntered(phase=phase, rung_correlations=self.rungs.correlations()))

    def _next_confirm(self) -> TrialTask | None:
        if not self._affords(searching=False):
            return None
        running = {self._state.trials[key].config_id for key in self._running}
        chosen = self._confirmation.next(self._state.reference, running)
        return self._start_replicate(chosen) if chosen is not None else None

    def _next_test(self) -> TrialTask | None:
        if self._to_test is None:
            ready = (t for t in self._state.trials.values() if t.role is Role.CONFIRM and t.finished)
            shown = self._shown_configs()
            self._to_test = deque(t.key for t in ready if t.test_error is None and t.config_id in shown)
        return self._dispatch(self._to_test.popleft(), TaskKind.TEST) if self._to_test else None

    def _shown_configs(self) -> set[str]:
        """Return the configurations whose test errors are shown: the front, the baselines and what has enough seeds."""
        from rst_tune.analysis.analysis import analyze

        rows = analyze(self.search()).summaries
        return {row.config_id for row in rows if row.on_front or row.settled or row.config.is_baseline}

    # --- one trial --------------------------------------------------------------------------------------------

    def _start(self, identity: str, seed: int, role: Role) -> TrialTask:
        config = trial_config(self._proposals.params[identity], self._scale)
        epochs = self._epochs_of(identity)
        trial = self._append(
            TrialSampled(
                key=trial_key(identity, epochs, seed),
                number=len(self._state.trials),
                role=role,
                config_id=identity,
                config=config,
                seed=seed,
                epochs=epochs,
                full_horizon=True,
                preview=schedule_preview(config, seed=seed),
            )
        )
        self._register(self._state.trials[trial.key])
        return self._dispatch(trial.key)

    def _dispatch(self, key: str, kind: TaskKind = TaskKind.TRAIN) -> TrialTask:
        self._running.add(key)
        trial = self._state.trials[key]
        return TrialTask(
            kind=kind,
            key=key,
            config=trial.config,
            seed=trial.seed,
            epochs=trial.epochs,
            rungs=self._rungs_of(trial),
            replicate=trial.role is Role.CONFIRM,
        )

    def _end(self, report: TrialReport, status: Status, reason: str) -> None:
        """End a trial in the log, then update what learns from it."""
        self._running.discard(report.key)
        self._last_reports.pop(report.key, None)
        failed = status in (Status.FAILED, Status.LOST)
        self._append(
            TrialEnded(
                key=report.key,
                status=status,
                reason=reason,
                error=None if failed or status is Status.OUT_OF_MEMORY else report.error,
                pairs=report.pairs,
                seconds=report.seconds,
                metrics=report.metrics,
            )
        )
        self._update_models(self._state.trials[report.key])
        self._failures_in_a_row = self._failures_in_a_row + 1 if failed else 0
        if self._failures_in_a_row >= MAX_FAILURES_IN_A_ROW:
            raise SearchFailedError(f"{self._failures_in_a_row} trials in a row failed; the last one: {reason}")

    def _update_models(self, trial: Trial) -> None:
        """Update budget, sampler, rungs and study with an ended trial."""
        self._budget.commit(trial)
        expected = None
        if trial.status is Status.STOPPED and trial.rungs:  # the final error to expect, as far as the rung predicts it
            expected = self.rungs.expected_final(trial.key, (max(trial.rungs), trial.epochs))
        self._study.observe(trial, expected)
        if trial.role is Role.CONFIRM:
            return
        if trial.finished and trial.error is not None:
            self.rungs.finish(trial.key, trial.error, trial.compute)
            self._queue_seeds(trial.config_id)
        self._set_reference()
        trials = (self._state.trials[key] for key in self._keys_of[trial.config_id])
        siblings = [t for t in trials if t.role is Role.SEARCH]
        # The study gets one result per configuration, once all of its seeds that are due have ended.
        if len(siblings) >= self._seeds_due(trial.config_id) and all(t.ended_at is not None for t in siblings):
            self._study.tell(trial.config_id, optuna_outcome(siblings))

    def _set_reference(self) -> None:
        """Fix the reference point once: as the experiment says, or from the base optimizer's error.

        It waits for the first seed of the base optimizer, whichever trial finishes before it. Where that is not a part
        of the search, or did not finish, the first trial that did stands in for it.
        """
        finished = [t for t in self._state.trials.values() if t.role is Role.SEARCH and t.finished]
        if self._state.reference is not None or not finished:
            return
        given = self.experiment.reference_point
        keys = self._keys_of.get(config_id(SGD), [])
        base = self._state.trials[keys[0]] if keys else None
        if given.error is None and base is not None and not base.status.has_ended:
            return
        first = min(finished, key=lambda t: (t is not base, not t.config.is_recipe, t.ended_at or 0.0))
        error = given.error if given.error is not None else derive_reference(first.error or 0.0)
        compute = given.compute or reference_compute(self.experiment.longest_horizon, self._scale.times)
        self._append(ReferenceSet(error=error, compute=compute))

    def _append(self, event: E) -> E:
        event = self._log.append(event)
        self._state.apply(event)
        return event
