"""One training as the event log describes it."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from rst_tune.records.config import SchedulePreview, TrialConfig
from rst_tune.records.metric import Metric


class Status(StrEnum):
    """How a trial stands."""

    WAITING = "waiting"
    RUNNING = "running"
    COMPLETE = "complete"
    STOPPED = "stopped"
    """A rung stopped it."""
    DIVERGED = "diverged"
    """Its loss was not finite."""
    OUT_OF_MEMORY = "out of memory"
    """It did not fit on its device."""
    FAILED = "failed"
    """The training itself raised an error."""
    LOST = "lost"
    """Its worker or node died more often than `max_failures` allows; a resumed search trains it again."""

    @property
    def has_ended(self) -> bool:
        """Whether nothing more happens to the trial in this run of the search."""
        return self not in (Status.WAITING, Status.RUNNING)


class Role(StrEnum):
    """Why a trial is trained."""

    SEARCH = "search"
    CONFIRM = "confirm"
    """A replicate on a fresh seed."""


class Phase(StrEnum):
    """Where a search is."""

    SEARCH = "search"
    CONFIRM = "confirm"
    TEST = "test"
    DONE = "done"


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One training. `history` maps a metric to its values per epoch, `rungs` an epoch to the error seen there."""

    key: str
    number: int
    role: Role
    config_id: str
    config: TrialConfig
    seed: int
    epochs: int
    full_horizon: bool
    sampled_at: float
    status: Status = Status.WAITING
    reason: str = ""
    error: float | None = None
    test_error: float | None = None
    pairs: float = 0.0
    seconds: float = 0.0
    metrics: Mapping[str, float] = field(default_factory=dict)
    history: Mapping[str, list[float]] = field(default_factory=dict)
    rungs: Mapping[int, float] = field(default_factory=dict)
    stopped_by_rung: bool = False
    started_at: float | None = None
    ended_at: float | None = None
    node: str = ""
    worker: str = ""
    ray_trial: str = ""
    preview: SchedulePreview = field(default_factory=SchedulePreview)

    @property
    def finished(self) -> bool:
        """Whether it was trained to its end with a possible error and cost: only then may it be on a front."""
        whole = self.full_horizon and self.status is Status.COMPLETE and self.has_cost
        return whole and self.error is not None and 0.0 <= self.error < math.inf

    @property
    def has_cost(self) -> bool:
        """Whether length and compute are positive, finite numbers."""
        return self.config.horizon > 0.0 and 0.0 < self.compute < math.inf

    @property
    def extra_propagation(self) -> float:
        """Expected extra pairs per step, known before training."""
        return self.config.extra_propagation

    @property
    def compute(self) -> float:
        """Cost over that of one base-optimizer training of the recipe's length, in pairs or in seconds.

        It is known before training, except under a policy that decides after the first pass: there the realized
        pairs count once the trial is complete.
        """
        if self.config.policy == "coin" or self.status is not Status.COMPLETE or not self.config.total_steps:
            return self.config.compute
        return self.config.horizon * self.pairs / self.config.total_steps * self.config.pair_weight

    @property
    def training_seconds(self) -> float:
        """The recorded seconds without those of the validation, as far as the training measures them apart."""
        return self.seconds - sum(self.history.get("seconds_evaluation", ()))

    def values(self, metric: Metric) -> list[float]:
        """Return the metric after each epoch so far, as it is written.

        A function reports the metric under its own name; the built-in workload reports errors.
        """
        if metric.name in self.history:
            return list(self.history[metric.name])
        return [metric.value(error) for error in self.history.get("validation_error", ())]


def scored_trials(trials: Iterable[Trial]) -> list[Trial]:
    """Return the finished trials that the mean of a configuration is taken over.

    These are the replicates alone once there are two: a configuration is replicated because its searching trial
    looked good, so that trial is biased by its luck. A baseline is replicated in any case, so all of its trials count.
    """
    trials = list(trials)
    fresh = [t for t in trials if t.role is Role.CONFIRM]
    return fresh if len(fresh) >= 2 and not trials[0].config.is_baseline else trials


def devices_per_trial(gpus_per_worker: float, workers: int) -> float:
    """Return how many devices a trial occupies: GPUs (a fraction counts as that), or one CPU slot per worker.

    >>> devices_per_trial(0.25, 1), devices_per_trial(1, 4), devices_per_trial(0, 2)
    (0.25, 4, 2.0)
    """
    return (gpus_per_worker if gpus_per_worker > 0 else 1.0) * workers
