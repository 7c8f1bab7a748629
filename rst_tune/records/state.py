"""What the events so far amount to."""

import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rst_tune.records.config import Cost
from rst_tune.records.events import (
    EpochsReported,
    Event,
    PhaseEntered,
    ReferenceSet,
    ResourcesRecord,
    RungReached,
    SearchStarted,
    TestRead,
    TrialEnded,
    TrialEvent,
    TrialSampled,
    TrialStarted,
)
from rst_tune.records.metric import Metric
from rst_tune.records.trial import Phase, Status, Trial, devices_per_trial


@dataclass(frozen=True, kw_only=True)
class Search:
    """A search at one moment, as its event log describes it. `reference` is (error, compute)."""

    directory: Path
    header: SearchStarted
    trials: tuple[Trial, ...]
    reference: tuple[float, float] | None = None
    phase: Phase = Phase.SEARCH
    updated_at: float = 0.0

    @property
    def done(self) -> bool:
        """Whether the search, its confirmation and the reading of the test set are over."""
        return self.phase is Phase.DONE

    @property
    def name(self) -> str:
        """The experiment's name, or else that of the directory."""
        return self.header.name or self.directory.name

    @property
    def metric(self) -> Metric:
        """What the trainings are judged by."""
        return self.header.metric

    @property
    def cost(self) -> Cost:
        """What the compute of its trainings is counted in."""
        return "compute" if self.header.times is None else "seconds"

    @property
    def pairs(self) -> float:
        """Every propagation pair spent, by stopped, failed and confirming trials as well."""
        return sum(t.pairs for t in self.trials)

    @property
    def device_hours(self) -> float:
        """Seconds of training times the devices that a trial occupies, in hours."""
        return self.devices_per_trial * sum(t.seconds for t in self.trials) / 3600

    @property
    def devices_per_trial(self) -> float:
        """How many devices one trial occupies."""
        resources = self.header.settings.resources or ResourcesRecord()
        return devices_per_trial(resources.gpus_per_worker, resources.workers)

    def finished(self) -> list[Trial]:
        """Return the trials trained to their end."""
        return [t for t in self.trials if t.finished]

    def by_config(self) -> dict[str, list[Trial]]:
        """Return the finished trials of each configuration, in order of number."""
        groups: dict[str, list[Trial]] = {}
        for trial in self.finished():
            groups.setdefault(trial.config_id, []).append(trial)
        return groups


class SearchState:
    """The state that a sequence of events leads to. A running search holds one, so a resumed one has the same."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.header: SearchStarted | None = None
        self.trials: dict[str, Trial] = {}
        self.reference: tuple[float, float] | None = None
        self.phase = Phase.SEARCH
        self.updated_at = 0.0

    def apply(self, event: Event) -> None:
        """Take one event into account. An event of an unknown trial is dropped with a warning."""
        self.updated_at = event.time or self.updated_at
        match event:
            case SearchStarted():
                self.header = self.header or event
            case ReferenceSet():
                self.reference = (float(event.error), float(event.compute))
            case PhaseEntered():
                self.phase = event.phase
            case TrialSampled():
                self.trials.setdefault(event.key, Trial(sampled_at=event.time, **_content(event)))
            case TrialEvent() if event.key in self.trials:
                self.trials[event.key] = _advance(self.trials[event.key], event)
            case _:
                warnings.warn(f"{self.directory}: a {event.kind!r} event of an unknown trial was dropped", stacklevel=2)

    def search(self) -> Search:
        """Return the search at this moment."""
        return Search(
            directory=self.directory,
            header=self.header or SearchStarted(),
            trials=tuple(self.trials.values()),
            reference=self.reference,
            phase=self.phase,
            updated_at=self.updated_at,
        )


def _content(event: TrialEvent) -> dict[str, Any]:
    """Return the fields of an event that a trial has by the same names."""
    return {name: value for name, value in vars(event).items() if name != "time"}


def _advance(trial: Trial, event: TrialEvent) -> Trial:
    match event:
        case TrialStarted():
            # A lost trial that is started again after a resume runs anew; any other end stands.
            again = trial.status in (Status.WAITING, Status.LOST)
            status, ended_at = (Status.RUNNING, None) if again else (trial.status, trial.ended_at)
            started_at = trial.started_at or event.time
            return replace(trial, status=status, started_at=started_at, ended_at=ended_at, **_content(event))
        case EpochsReported():
            # Epochs that are known already are replaced.
            known = {name: trial.history.get(name, [])[: event.first_epoch - 1] for name in event.metrics}
            new = {name: [*known[name], *column] for name, column in event.metrics.items()}
            return replace(trial, history={**trial.history, **new})
        case RungReached():
            rungs = {**trial.rungs, int(event.epoch): float(event.error)}
            return replace(trial, rungs=rungs, stopped_by_rung=event.stop)
        case TrialEnded():
            return replace(trial, ended_at=event.time, **_content(event))
        case TestRead():
            return replace(trial, test_error=float(event.error))
    return trial
