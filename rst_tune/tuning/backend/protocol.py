"""The seam between the search and whoever runs its trials: tasks one way, messages the other way."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, Protocol

from rst_tune.records import Status, TrialConfig

DONE: Literal["done"] = "done"
"""What `Controller.next_task` returns when there is nothing more to do."""


class TaskKind(StrEnum):
    """What a worker does with a task."""

    TRAIN = "train"
    TEST = "test"
    """Read the test set with the saved model of a finished trial."""


@dataclass(frozen=True, kw_only=True)
class TrialTask:
    """What a worker gets. It reports at `rungs`; a replicate draws its split from the seed, and its model is kept."""

    kind: TaskKind
    key: str
    config: TrialConfig
    seed: int
    epochs: int
    rungs: tuple[int, ...] = ()
    replicate: bool = False


@dataclass(frozen=True, kw_only=True)
class TrialReport:
    """What a worker sends back of a training: how far it is, what it has cost, and the epochs since its last report.

    `epoch_metrics` are columns that begin at `first_epoch` (counted from 1). After a restart the epochs of the
    checkpoint are sent again, since the report that carried them may be lost.
    """

    key: str
    status: Status
    epoch: int = 0
    error: float | None = None
    pairs: float = 0.0
    seconds: float = 0.0
    reason: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)
    first_epoch: int = 1
    epoch_metrics: Mapping[str, list[float]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class TestReport:
    """What a worker sends back of a test; `error` None: the test set could not be read, for `reason`."""

    __test__ = False  # pytest would take the name for a test class
    key: str
    error: float | None
    reason: str = ""


class Controller(Protocol):
    """What a backend asks of the search."""

    def next_task(self) -> TrialTask | Literal["done"] | None:
        """Return the next task; None: none until something that runs has ended; `DONE`: none any more."""

    def on_trial_start(self, key: str, *, node: str = "", worker: str = "", ray_trial: str = "") -> None:
        """Record that a worker took the trial."""

    def on_report(self, report: TrialReport) -> bool:
        """Record what a trial reports; return whether it goes on."""

    def on_trial_lost(self, key: str, reason: str) -> None:
        """Record that the worker of a trial died more often than it is started again."""

    def on_test_report(self, report: TestReport) -> None:
        """Record a test error."""
