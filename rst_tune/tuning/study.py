"""The Optuna study: asked and told by us, durable, and always reconciled with the record.

Objectives: (validation error, extra propagation), both minimised. A trial that was stopped early or diverged is told
as pruned, so that the sampler learns to avoid it; one that the machines failed is told as failed, which teaches
nothing. Only trainings that reached the full horizon are told as complete.

The sampler is made anew for every draw, seeded by (seed, number of the draw): a resumed search draws what an
undisturbed one would have drawn, without any random state to save.
"""

import json
import os
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import optuna
from optuna.samplers import BaseSampler, GPSampler, NSGAIISampler, RandomSampler, TPESampler
from optuna.storages import BaseStorage, InMemoryStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from rst_tune.analysis.records import Trial, config_id
from rst_tune.tuning import files
from rst_tune.tuning.chooser import STEPS, STEPS_OF_COST, Chooser
from rst_tune.tuning.experiment import Experiment
from rst_tune.tuning.space import Coordinates, Space

__all__ = ["SearchStudy", "Standing"]

Standing = tuple[Sequence[Trial], tuple[float, float] | None]
"""The trials that are out, and the reference point."""

JOURNAL_NAME = "study.journal"
# A training that diverged did not fail by accident: TPE passes over failed trials and would draw there again, while
# pruned ones are what it keeps away from. Neither ever counts as complete.
_STATES = {
    "complete": TrialState.COMPLETE,
    "stopped": TrialState.PRUNED,
    "diverged": TrialState.PRUNED,
    "failed": TrialState.FAIL,
}


def _sampler(name: str, seed: int, startup: int) -> BaseSampler:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        match name:
            case "gp":
                return GPSampler(seed=seed, n_startup_trials=startup)
            case "nsga2":
                return NSGAIISampler(seed=seed, population_size=max(startup, 2))
            case "tpe":
                return TPESampler(seed=seed, n_startup_trials=startup)
    return RandomSampler(seed=seed)


def _storage(url: str | None, directory: Path | None) -> BaseStorage:
    if url is not None:
        return RDBStorage(url, heartbeat_interval=None)
    if directory is None:
        return InMemoryStorage()
    journal = directory / JOURNAL_NAME
    _mend(journal)
    return JournalStorage(JournalFileBackend(str(journal)))


def _mend(journal: Path) -> None:
    """Make a journal readable after a crash: Optuna refuses one with a broken line.

    A last line that was cut short is cut off. With any other damage the whole file is set aside: the record has all
    that is needed to tell the study again.
    """
    if not journal.exists():
        return
    lines = journal.read_bytes().splitlines(keepends=True)
    if lines and not lines[-1].endswith(b"\n"):
        warnings.warn(f"{journal}: a broken last line was cut off", stacklevel=2)
        os.truncate(journal, sum(map(len, lines[:-1])))
        lines = lines[:-1]
    if not all(map(_is_json, lines)):
        aside = journal.with_suffix(f".damaged-{int(time.time())}")
        warnings.warn(f"{journal} is damaged: it was set aside as {aside.name} and is told again", stacklevel=2)
        journal.rename(aside)


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


class SearchStudy:
    """A study of one search. Configurations are known by their id, which does not depend on Optuna."""

    def __init__(self, experiment: Experiment, directory: Path | None) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.experiment = experiment
        self._user_space = (
            files.load_function(Path(experiment.space), "space") if isinstance(experiment.space, str) else None
        )
        self.study = optuna.create_study(
            study_name=experiment.search_id,
            storage=_storage(experiment.sampler.storage, directory),
            directions=["minimize", "minimize"],
            sampler=RandomSampler(seed=0),
            load_if_exists=True,
        )
        self._numbers: dict[str, int] = {}
        self._open: set[str] = set()
        self._chooser = self._make_chooser() if experiment.sampler.name == "front" else None

    def _make_chooser(self) -> Chooser:
        space, startup = self.experiment.space, self.experiment.sampler.startup
        steps = STEPS_OF_COST if isinstance(space, Space) and space.coordinates == "cost" else STEPS
        return Chooser(self._point, rho=self.experiment.task.recipe.rho, startup=startup, steps=steps)

    def learn(self, trial: Trial, expected: float | None = None) -> None:
        """Take note of an ended trial, in order: what the sampler `front` goes by. The others go by what is told."""
        if self._chooser is not None:
            self._chooser.learn(trial, expected)

    def draw(self, number: int, attempt: int = 0, at: Standing = ((), None)) -> Coordinates:
        """Return the coordinates of the `number`-th draw of this search, at a first or a further attempt."""
        sampler = self.experiment.sampler
        seed = ((self.experiment.seed * 1_000_003 + number) * 64 + attempt) % 2**32
        chosen = self._chooser.choose(*at, seed) if self._chooser is not None else None
        if chosen is not None:
            self.study.enqueue_trial(chosen)
        self.study.sampler = _sampler(sampler.name, seed, sampler.startup)
        trial = self.study.ask()
        point = self._point(trial)
        self._remember(point, trial)
        return point

    def _point(self, trial: Any) -> Coordinates:
        if self._user_space is not None:
            return dict(self._user_space(trial))
        return cast(Space, self.experiment.space).draw(trial)

    def take(self, point: Coordinates) -> None:
        """Let the study know of a point that was not drawn; one outside its space it cannot learn from."""
        space = self.experiment.space
        parameters = space.parameters(point) if isinstance(space, Space) else None
        if parameters is None or config_id(point) in self._numbers:
            return
        self.study.enqueue_trial(parameters)
        trial = self.study.ask()
        self._point(trial)
        self._remember(point, trial)

    def _remember(self, point: Coordinates, trial: optuna.Trial) -> None:
        identity = config_id(point)
        trial.set_user_attr("config_id", identity)
        if identity in self._numbers:  # drawn before: the result will be told once, to the first
            self.study.tell(trial.number, state=TrialState.FAIL)
            return
        self._numbers[identity] = trial.number
        self._open.add(identity)

    def tell(self, identity: str, status: str, values: tuple[float, float]) -> None:
        """Tell how a configuration ended. What the study does not know, or knows already, is passed over."""
        if identity not in self._open:
            return
        self._open.remove(identity)
        state = _STATES[status]
        self.study.tell(self._numbers[identity], values if state is TrialState.COMPLETE else None, state=state)

    def reconcile(self, drawn: Mapping[str, Coordinates]) -> None:
        """Make the study agree with the record after a restart.

        A trial that the record does not know was asked for just before a crash: it is told as failed. One that
        the record knows and the study has lost is taken up again.
        """
        self._drop_queued()
        trials = self.study.get_trials(deepcopy=False)
        # One that was asked for twice, because a crash lost the first, failed the first time: the other one counts.
        for trial in sorted(trials, key=lambda t: t.state is TrialState.FAIL):
            identity = str(trial.user_attrs.get("config_id", ""))
            known = identity in drawn and identity not in self._numbers
            if known:
                self._numbers[identity] = trial.number
            if trial.state is TrialState.RUNNING:
                if known:
                    self._open.add(identity)
                else:
                    self.study.tell(trial.number, state=TrialState.FAIL)
        for identity, point in drawn.items():
            if identity not in self._numbers:
                self.take(point)

    def _drop_queued(self) -> None:
        """End what was queued and never asked for: Optuna would hand it out at the next draw."""
        for _ in self.study.get_trials(deepcopy=False, states=(TrialState.WAITING,)):
            self.study.tell(self.study.ask(), state=TrialState.FAIL)

    def states(self) -> dict[str, str]:
        """Return how each configuration stands in the study, by id."""
        trials = self.study.get_trials(deepcopy=False)
        return {identity: trials[number].state.name for identity, number in self._numbers.items()}
