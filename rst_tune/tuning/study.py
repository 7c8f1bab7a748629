"""The Optuna study of a search: asked and told by the controller, durable, and reconciled with the event log.

Objectives: (validation error, compute), both minimised. A trial that was stopped early or diverged is
reported as pruned, so that the sampler avoids its region; one that failed is reported as failed, which Optuna's
samplers ignore. Only trainings that reached their end are reported as complete.

Samplers are seeded by (seed, number of the proposal): a resumed search samples what an undisturbed one would have
sampled, without any random state to save.
"""

import json
import os
import time
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, cast

import optuna
from optuna.samplers import BaseSampler, GPSampler, NSGAIISampler, RandomSampler, TPESampler
from optuna.storages import BaseStorage, InMemoryStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from rst_tune.analysis.surrogate import PRIOR
from rst_tune.errors import InputError
from rst_tune.records import Status, Trial, TrialConfig, config_id
from rst_tune.redaction import redact_text
from rst_tune.tuning import yaml_files
from rst_tune.tuning.experiment import Experiment
from rst_tune.tuning.model import SearchModel
from rst_tune.tuning.sampler import FrontSampler, no_seed
from rst_tune.tuning.space import Params, Space

__all__ = ["PendingTrials", "SearchStudy", "open_database", "optuna_outcome"]

JOURNAL_NAME = "study.journal"
Outcome = tuple[TrialState, tuple[float, float] | None]


@dataclass(frozen=True)
class PendingTrials:
    """The trials that are out, the reference point of the hypervolume, how many trials were sampled so far, and the
    seed that a replicate of a configuration, or for None a new one, is trained with.
    """

    trials: tuple[Trial, ...] = ()
    reference: tuple[float, float] | None = None
    sampled: int = 0
    seed_of: Callable[[TrialConfig | None], int] = no_seed


def optuna_outcome(seeds: Sequence[Trial]) -> Outcome:
    """Return what the study gets for the ended seeds of a configuration. The first one that did not finish decides.

    Divergence and too much memory are properties of the configuration, so they are pruned, not failed: TPE ignores
    failed trials and would sample there again.
    """
    for trial in seeds:
        if not trial.finished:
            return (TrialState.FAIL if trial.status in (Status.FAILED, Status.LOST) else TrialState.PRUNED), None
    error = fmean(trial.error for trial in seeds if trial.error is not None)
    return TrialState.COMPLETE, (error, seeds[0].compute)


def _optuna_sampler(name: str, seed: int, n_startup_trials: int) -> BaseSampler:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        match name:
            case "gp":
                return GPSampler(seed=seed, n_startup_trials=n_startup_trials)
            case "nsga2":
                return NSGAIISampler(seed=seed, population_size=max(n_startup_trials, 2))
            case "tpe":
                return TPESampler(seed=seed, n_startup_trials=n_startup_trials)
    return RandomSampler(seed=seed)


def _storage(url: str | None, directory: Path | None) -> BaseStorage:
    if url is not None:
        return open_database(url)
    if directory is None:
        return InMemoryStorage()
    journal = directory / JOURNAL_NAME
    _repair_journal(journal)
    return JournalStorage(JournalFileBackend(str(journal)))


def open_database(url: str) -> RDBStorage:
    """Return the storage at a URL; InputError where no database answers there."""
    try:
        return RDBStorage(url, heartbeat_interval=None)
    except Exception as error:  # whatever SQLAlchemy, the database's driver or the network raise
        reason = redact_text(str(error)).splitlines()[0]
        raise InputError(
            f"sampler.storage must be the URL of a database that answers, but {redact_text(url)} does not: {reason}"
        ) from error


def _open_study(experiment: Experiment, storage: BaseStorage, uid: str) -> optuna.Study:
    name = f"{experiment.name}-{experiment.search_id[:8]}"
    study = optuna.create_study(
        study_name=f"{name}-{uid}" if uid and experiment.sampler.storage is not None else name,
        storage=storage,
        directions=["minimize", "minimize"],
        sampler=RandomSampler(seed=0),
        load_if_exists=True,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        study.set_metric_names([experiment.metric.objective, "compute"])
    described = {name: experiment.public()[name] for name in ("description", "task", "budget")}
    for name in described.keys() - study.user_attrs.keys():  # Optuna's dashboard shows them
        study.set_user_attr(name, described[name])
    study.get_trials(deepcopy=False)
    return study


def _repair_journal(journal: Path) -> None:
    """Make a journal readable after a crash: Optuna refuses one with a broken line.

    An incomplete last line is removed. With any other damage the whole file is moved aside: the event log has all that
    is needed to fill the study again.
    """
    if not journal.exists():
        return
    lines = journal.read_bytes().splitlines(keepends=True)
    if lines and not lines[-1].endswith(b"\n"):
        warnings.warn(f"{journal}: an incomplete last line was removed", stacklevel=2)
        os.truncate(journal, sum(map(len, lines[:-1])))
        lines = lines[:-1]
    if not all(map(_is_json_object, lines)):
        _set_aside(journal)


def _set_aside(journal: Path) -> None:
    aside = journal.with_suffix(f".damaged-{int(time.time())}")
    warnings.warn(f"{journal} is damaged: it was moved to {aside.name} and is filled again", stacklevel=3)
    journal.rename(aside)


def _is_json_object(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


class SearchStudy:
    """The study of one search. Configurations are identified by their id, which does not depend on Optuna.

    `uid` tells searches of one experiment apart that share a database: in two directories, or one after the other.
    """

    def __init__(self, experiment: Experiment, directory: Path | None, uid: str = "") -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.experiment = experiment
        self._user_space = (
            yaml_files.load_function(Path(experiment.space), "space") if isinstance(experiment.space, str) else None
        )
        url = experiment.sampler.storage
        try:
            self.study = _open_study(experiment, _storage(url, directory), uid)
        except OSError:
            raise
        except Exception:  # Optuna applies each line of a journal without checking it, so any error is possible
            if url is not None or directory is None:
                raise
            _set_aside(directory / JOURNAL_NAME)
            self.study = _open_study(experiment, _storage(url, directory), uid)
        self._numbers: dict[str, int] = {}
        self._open: set[str] = set()
        self._front_sampler = self._make_front_sampler()

    def _make_front_sampler(self) -> FrontSampler:
        return FrontSampler(
            self._params,
            self.experiment.scale(1, exact=False),
            n_startup_trials=self.experiment.sampler.n_startup_trials,
            worst_error=self.experiment.metric.worst_error,
            prior=self.experiment.prior or PRIOR,
        )

    @property
    def model(self) -> SearchModel:
        """The surrogate of the search, whichever sampler proposes."""
        return self._front_sampler.model

    def observe(self, trial: Trial, expected_final: float | None = None) -> None:
        """Give the model an ended trial, in order. Optuna's samplers read what was reported to the study."""
        self.model.observe(trial, expected_final)

    def sample(self, pending: PendingTrials, attempt: int = 0) -> tuple[Params, bool]:
        """Return the parameters of the next training, at a first or a further attempt, and whether it is a replicate.

        Samplers are seeded by the number of trials so far.
        """
        settings = self.experiment.sampler
        seed = ((self.experiment.seed * 1_000_003 + pending.sampled) * 64 + attempt) % 2**32
        if settings.name == "front":
            self._front_sampler.prepare(pending.trials, pending.reference, seed, pending.seed_of)
            proposal = self._front_sampler.propose(replicates=self.experiment.confirm.enabled)
            if isinstance(proposal, TrialConfig):
                return dict(proposal.params), True
            self.study.sampler = self._front_sampler
        else:
            self.study.sampler = _optuna_sampler(settings.name, seed, settings.n_startup_trials)
        trial = self.study.ask()
        params = self._params(trial)
        self._register(params, trial)
        return params, False

    def _params(self, trial: Any) -> Params:
        if self._user_space is not None:
            return dict(self._user_space(trial))
        try:
            return cast(Space, self.experiment.space).sample(trial)
        except ValueError as error:  # what a damaged journal says of the same parameter
            raise InputError(
                f"the stored study must have the ranges of this space, but {error} Remove {JOURNAL_NAME} from the "
                "output directory: it is filled again from the event log"
            ) from error

    def enqueue(self, params: Params) -> None:
        """Add a configuration that was not sampled; the study cannot learn from one outside its space."""
        space = self.experiment.space
        sampled = space.sampled_params(params) if isinstance(space, Space) else None
        if sampled is None or config_id(params) in self._numbers:
            return
        self.study.sampler = RandomSampler(seed=0)
        self.study.enqueue_trial(sampled)
        trial = self.study.ask()
        self._params(trial)
        self._register(params, trial)

    def _register(self, params: Params, trial: optuna.Trial) -> None:
        identity = config_id(params)
        trial.set_user_attr("config_id", identity)
        if identity in self._numbers:  # sampled before: the result is told once, to the first
            self.study.tell(trial.number, state=TrialState.FAIL)
            return
        self._numbers[identity] = trial.number
        self._open.add(identity)

    def tell(self, identity: str, outcome: Outcome) -> None:
        """Tell the outcome of a configuration. One that is unknown or was told before is ignored."""
        if identity in self._open:
            self._open.remove(identity)
            state, values = outcome
            self.study.tell(self._numbers[identity], values, state=state)

    def reconcile(self, sampled: Mapping[str, Params], again: Collection[str] = ()) -> None:
        """Make the study agree with the event log after a restart.

        A trial that the log does not have was asked for just before a crash: it is reported as failed. One that the log
        has and the study lost is added again, and so is one in `again` that was told as failed: an Optuna trial that
        was told cannot be told anything else.
        """
        for _ in self.study.get_trials(deepcopy=False, states=(TrialState.WAITING,)):
            # Queued and never asked for: Optuna would return it for the next proposal.
            self.study.tell(self.study.ask(), state=TrialState.FAIL)
        trials = self.study.get_trials(deepcopy=False)
        # One that was asked for twice, because a crash lost the first, failed the first time: the other one counts.
        for trial in sorted(trials, key=lambda t: t.state is TrialState.FAIL):
            identity = str(trial.user_attrs.get("config_id", ""))
            retried = identity in again and trial.state is TrialState.FAIL
            known = identity in sampled and identity not in self._numbers and not retried
            if known:
                self._numbers[identity] = trial.number
            if trial.state is TrialState.RUNNING:
                if known:
                    self._open.add(identity)
                else:
                    self.study.tell(trial.number, state=TrialState.FAIL)
        for identity, params in sampled.items():
            if identity not in self._numbers:
                self.enqueue(params)

    def states(self) -> dict[str, str]:
        """Return the state of each configuration in the study, by id."""
        trials = self.study.get_trials(deepcopy=False)
        return {identity: trials[number].state.name for identity, number in self._numbers.items()}
