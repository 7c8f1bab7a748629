"""The metrics of the search itself, one row for each trial that ended: a pure function of the record's events.

The step is the number of ends so far and the time is the event's, so a replay tells the same points. A trial that
was resumed and ended again makes a step of its own, and counts once, by its last status.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from rst_tune.analysis import pareto
from rst_tune.analysis.records import Trial, counted
from rst_tune.tracking import names

__all__ = ["Point", "Progress", "milliseconds"]

GROUPS = {
    "complete": names.TRIALS_FINISHED,
    "stopped": names.TRIALS_STOPPED,
    "diverged": names.TRIALS_FAILED,
    "failed": names.TRIALS_FAILED,
}


def milliseconds(seconds: float) -> int:
    """Return a time as MLflow wants it."""
    return round(seconds * 1000)


@dataclass(frozen=True, slots=True)
class Point:
    """One value of one metric."""

    name: str
    value: float
    time: int
    step: int


class Progress:
    """Follows the events of a search in order."""

    def __init__(self) -> None:
        self._ended: dict[str, Trial] = {}
        self._finished: dict[str, dict[str, Trial]] = {}
        self._means: dict[str, tuple[float, float]] = {}
        self._reference: tuple[float, float] | None = None
        self._waiting: list[tuple[int, int, list[tuple[float, float]]]] = []
        self._pairs = 0.0
        self._step = 0
        self._counts = dict.fromkeys(GROUPS.values(), 0)

    def end(self, trial: Trial, time: float) -> tuple[Point, ...]:
        """Return the row of a trial that ended. Without a reference point its hypervolume waits for one."""
        self._step += 1
        self._count(self._ended.get(trial.key), -1)
        self._ended[trial.key] = trial
        self._count(trial, +1)
        if trial.finished:
            self._take(trial)
        front = [point for point, kept in zip(self._means.values(), self._kept(), strict=True) if kept]
        step, at = self._step, milliseconds(time)
        row = {names.FRONT_SIZE: len(front), names.SEARCH_PAIRS: self._pairs, **self._counts}
        points = [Point(name, float(value), at, step) for name, value in row.items()]
        self._waiting.append((at, step, front))
        return (*points, *self._flush())

    def reference(self, event: Mapping[str, Any]) -> tuple[Point, ...]:
        """Take the reference point and return what waited for it, with the times at which it happened."""
        self._reference = (float(event["error"]), float(event["extra_propagation"]))
        at = milliseconds(event["time"])
        both = zip((names.REFERENCE_ERROR, names.REFERENCE_COST), self._reference, strict=True)
        return (*(Point(name, value, at, 0) for name, value in both), *self._flush())

    def _count(self, trial: Trial | None, sign: int) -> None:
        if trial is not None:
            self._counts[GROUPS.get(trial.status, names.TRIALS_FAILED)] += sign
            self._pairs += sign * trial.pairs

    def _take(self, trial: Trial) -> None:
        group = self._finished.setdefault(trial.config_id, {})
        group[trial.key] = trial
        errors = [t.error for t in counted(group.values()) if t.error is not None]
        self._means[trial.config_id] = (fmean(errors), trial.extra_propagation)

    def _kept(self) -> list[bool]:
        return list(pareto.front(list(self._means.values()))) if self._means else []

    def _flush(self) -> list[Point]:
        if self._reference is None:
            return []
        rows, self._waiting = self._waiting, []
        return [Point(names.HYPERVOLUME, pareto.hypervolume(f, self._reference), at, step) for at, step, f in rows]
