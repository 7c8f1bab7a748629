"""The typed events of a search, and their JSON form `{"event": kind, "time": seconds, ...}`."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, Field, TypeAdapter

from rst_tune.records.config import RuleTimes, SchedulePreview, TrialConfig
from rst_tune.records.metric import PERCENT_ERROR, Metric
from rst_tune.records.prior import Prior
from rst_tune.records.trial import Phase, Role, Status

# What numpy's int64 holds: a damaged log may have any number of digits.
_Count = Annotated[int, Field(ge=0, lt=2**63)]


class ResourcesRecord(BaseModel):
    """What one trial occupies."""

    workers: int = 1
    gpus_per_worker: float = 0.0


class TrackingRecord(BaseModel):
    """Whether and where a search is tracked; the URI has no credentials."""

    enabled: bool = True
    uri: str | None = None


class ExperimentRecord(BaseModel):
    """The parts of an experiment that readers of a log use, with their types; None: the log does not have the part."""

    budget: dict[str, float | None] | None = None
    prior: Prior | None = None
    resources: ResourcesRecord | None = None
    sampler: dict[str, Any] | None = None
    tracking: TrackingRecord | None = None


@dataclass(frozen=True, kw_only=True)
class Event:
    """One line of the event log. `time` is set when the event is appended."""

    kind: ClassVar[str]
    time: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {"event": self.kind, **asdict(self)}


@dataclass(frozen=True, kw_only=True)
class SearchStarted(Event):
    """Identity and circumstances of the search, written once, as the first event.

    `times` are those that the cost of a configuration is computed with, where it is in seconds; None: in pairs.
    """

    kind: ClassVar[str] = "search"
    search_id: str = ""
    name: str = ""
    experiment: Mapping[str, Any] = field(default_factory=dict)
    metric: Metric = PERCENT_ERROR
    steps_per_epoch: _Count = 0
    data: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    devices: Mapping[str, float] = field(default_factory=dict)
    commit: str = ""
    times: RuleTimes | None = None

    @cached_property
    def settings(self) -> ExperimentRecord:
        """The experiment, as far as readers of the log use it; ValueError where a part has a wrong type."""
        return ExperimentRecord.model_validate(self.experiment)

    @property
    def uid(self) -> str:
        """The identity of this run of the search: one that was overwritten and started again has another."""
        return f"{self.search_id}-{int(self.time):x}"


@dataclass(frozen=True, kw_only=True)
class ReferenceSet(Event):
    """The fixed reference point of the hypervolume, written once."""

    kind: ClassVar[str] = "reference"
    error: float
    compute: float


@dataclass(frozen=True, kw_only=True)
class PhaseEntered(Event):
    """The search went on to another phase."""

    kind: ClassVar[str] = "phase"
    phase: Phase
    rung_correlations: Mapping[int, float | None] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class TrialEvent(Event):
    """An event of one trial."""

    key: str


@dataclass(frozen=True, kw_only=True)
class TrialSampled(TrialEvent):
    """A trial was created: configuration, seed, length."""

    kind: ClassVar[str] = "trial"
    number: _Count
    role: Role
    config_id: str
    config: TrialConfig
    seed: _Count
    epochs: _Count
    full_horizon: bool
    preview: SchedulePreview = field(default_factory=SchedulePreview)


@dataclass(frozen=True, kw_only=True)
class TrialStarted(TrialEvent):
    """A worker took the trial; written again after each restart."""

    kind: ClassVar[str] = "start"
    node: str = ""
    worker: str = ""
    ray_trial: str = ""


@dataclass(frozen=True, kw_only=True)
class EpochsReported(TrialEvent):
    """Metrics of one or more epochs, as columns; `first_epoch` counts from 1."""

    kind: ClassVar[str] = "epochs"
    first_epoch: _Count
    metrics: Mapping[str, list[float]]


@dataclass(frozen=True, kw_only=True)
class RungReached(TrialEvent):
    """The trial reached a rung, and what was decided there."""

    kind: ClassVar[str] = "rung"
    epoch: _Count
    error: float
    stop: bool = False
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class TrialEnded(TrialEvent):
    """The trial ended, with all that it cost."""

    kind: ClassVar[str] = "end"
    status: Status
    reason: str = ""
    error: float | None = None
    pairs: float = 0.0
    seconds: float = 0.0
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class TestRead(TrialEvent):
    """The test set was read for a replicate, once."""

    __test__ = False  # pytest would take the name for a test class
    kind: ClassVar[str] = "test"
    error: float


_VALIDATORS: dict[str, TypeAdapter[Event]] = {
    each.kind: TypeAdapter(each)
    for each in (
        SearchStarted, ReferenceSet, PhaseEntered, TrialSampled, TrialStarted, EpochsReported, RungReached,
        TrialEnded, TestRead,
    )
}  # fmt: skip


def parse_event(data: Mapping[str, Any]) -> Event:
    """Return the event of one JSON object; ValueError where it is none, or lacks a field."""
    kind = str(data.get("event"))
    if kind not in _VALIDATORS:
        raise ValueError(f"unknown event {kind!r}")
    try:
        event = _VALIDATORS[kind].validate_python(dict(data))
        if isinstance(event, SearchStarted):
            _ = event.settings
    except (ValueError, RecursionError) as error:
        raise ValueError(f"a damaged {kind!r} event: {error}") from error
    if isinstance(event, TrialSampled) and not event.config.is_plausible:
        raise ValueError("a damaged 'trial' event: a number of its configuration is impossible")
    return event
