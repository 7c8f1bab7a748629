"""Fronts of (error, extra propagation), both to be small: dominance, hypervolume, attainment, knee.

Points are arrays of shape (n, 2), a row `[error, cost]`. A row that is not finite is on no front and adds nothing.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from statistics import fmean

import moocore
import numpy as np
from numpy.typing import ArrayLike, NDArray

from rst_tune.analysis.records import Search, Trial, counted

__all__ = [
    "COST_REFERENCE",
    "attainment",
    "attainment_difference",
    "contributions",
    "epsilon",
    "front",
    "hypervolume",
    "hypervolume_history",
    "igd_plus",
    "knee",
    "reference_of",
]

Array = NDArray[np.float64]
Point = tuple[float, float]

# Extra propagation ends at 1; a little beyond it, SAM itself still counts.
COST_REFERENCE = 1.1


def _points(points: ArrayLike) -> Array:
    return np.asarray(points, dtype=float).reshape(-1, 2)


def front(points: ArrayLike) -> NDArray[np.bool_]:
    """Return which points no other one dominates. Equal points are kept together.

    >>> front([[4.0, 0.0], [3.0, 0.5], [3.5, 0.6], [3.0, 0.5]]).tolist()
    [True, True, False, True]
    """
    array = _points(points)
    mask: NDArray[np.bool_] = np.asarray(np.isfinite(array).all(axis=1))
    if mask.any():
        mask[mask] = moocore.is_nondominated(array[mask], keep_weakly=True)
    return mask


def hypervolume(points: ArrayLike, reference: Point) -> float:
    """Return the area between the front and the reference point (error, cost).

    >>> hypervolume([[4.0, 0.0], [3.0, 0.5]], (5.0, 1.0))
    1.5
    """
    array = _points(points)
    array = array[np.isfinite(array).all(axis=1)]
    return float(moocore.hypervolume(array, ref=np.asarray(reference))) if len(array) else 0.0


def contributions(points: ArrayLike, reference: Point) -> Array:
    """Return the hypervolume that would be lost without each point; 0 for a dominated or repeated one."""
    array = _points(points)
    result = np.zeros(len(array))
    members = front(array)
    if members.any():
        result[members] = moocore.hv_contributions(array[members], ref=np.asarray(reference))
    return result


def knee(points: ArrayLike) -> int | None:
    """Return the index of the front's knee: the point farthest below the line that joins its two ends.

    Both axes are scaled to the front's own range. With fewer than three points it is the most accurate one, and
    without any there is none.

    >>> knee([[5.0, 0.0], [3.1, 0.3], [3.0, 1.0]])
    1
    """
    array = _points(points)
    members = np.flatnonzero(front(array))
    if not len(members):
        return None
    own = array[members]
    span = np.ptp(own, axis=0)
    if len(members) < 3 or not span.all():
        return int(members[np.lexsort((own[:, 1], own[:, 0]))[0]])
    scaled = (own - own.min(axis=0)) / span
    return int(members[np.argmin(scaled.sum(axis=1))])


def epsilon(points: ArrayLike, target: ArrayLike) -> float:
    """Return the least that must be taken from every objective of `points` so that it covers `target`."""
    return float(moocore.epsilon_additive(_points(points), ref=_points(target)))


def igd_plus(points: ArrayLike, target: ArrayLike) -> float:
    """Return the mean distance by which `points` falls short of `target` (IGD+; 0 when it covers it)."""
    return float(moocore.igd_plus(_points(points), ref=_points(target)))


def _stacked(fronts: Sequence[ArrayLike]) -> tuple[Array, NDArray[np.int_]]:
    arrays = [_points(one) for one in fronts]
    sets = np.repeat(np.arange(1, len(arrays) + 1), [len(a) for a in arrays])
    return np.concatenate(arrays), sets


def attainment(fronts: Sequence[ArrayLike], percentiles: Sequence[float] = (25, 50, 75)) -> dict[float, Array]:
    """Return the attainment surfaces: for each percentile, the points reached by that share of the fronts."""
    points, sets = _stacked(fronts)
    table = moocore.eaf(points, sets, percentiles=list(percentiles))
    return {p: table[np.isclose(table[:, -1], p), :2] for p in percentiles}


def attainment_difference(left: Sequence[ArrayLike], right: Sequence[ArrayLike], intervals: int = 5) -> Array:
    """Return rectangles (error and cost from, error and cost to, difference) where one side attains more often.

    A positive difference means that `left` does; the size counts steps of `intervals`.
    """
    first = np.column_stack(_stacked(left))
    second = np.column_stack(_stacked(right))
    try:
        return np.asarray(moocore.eafdiff(first, second, intervals=intervals, rectangles=True))
    except ValueError:
        # moocore cannot shape an empty answer: nowhere does one side attain more.
        return np.zeros((0, 5))


def reference_of(search: Search) -> Point | None:
    """Return the reference point of a search: the recorded one, else one from its trials, else None.

    The derived one is the base optimizer's mean error plus a tenth of its distance to the best mean, at cost 1.1.
    Without a base run the worst mean stands in for it, and the caveats of the front say so.
    """
    if search.reference is not None:
        return search.reference
    means = [(_mean(trials), trials[0].extra_propagation) for trials in search.by_config().values()]
    if not means:
        return None
    base = [error for error, cost in means if cost == 0.0]
    worst = float(np.mean(base)) if base else max(error for error, _ in means)
    best = min(error for error, _ in means)
    return worst + 0.1 * max(worst - best, 1e-3 * abs(worst)), COST_REFERENCE


def _mean(trials: list[Trial]) -> float:
    return fmean(t.error for t in counted(trials) if t.error is not None)


class _Staircase:
    """A front in two dimensions that takes one point at a time: costs rise, errors fall."""

    def __init__(self) -> None:
        self.costs: list[float] = []
        self.errors: list[float] = []

    def covers(self, error: float, cost: float) -> bool:
        """Whether a point adds nothing: another is at most as dear and at most as wrong."""
        at = bisect_right(self.costs, cost)
        return at > 0 and self.errors[at - 1] <= error

    def holds(self, error: float, cost: float) -> bool:
        """Whether the point is a member."""
        at = bisect_left(self.costs, cost)
        return at < len(self.costs) and (self.costs[at], self.errors[at]) == (cost, error)

    def add(self, error: float, cost: float) -> bool:
        """Take a point and tell whether it changed anything."""
        if self.covers(error, cost):
            return False
        at = end = bisect_left(self.costs, cost)
        while end < len(self.costs) and self.errors[end] >= error:
            end += 1
        self.costs[at:end], self.errors[at:end] = [cost], [error]
        return True

    def hypervolume(self, reference: Point) -> float:
        return hypervolume(list(zip(self.errors, self.costs, strict=True)), reference)


def hypervolume_history(
    search: Search, believed: Mapping[str, float] | None = None
) -> list[tuple[float, float, float]]:
    """Return (time, pairs spent so far, hypervolume of the configurations' means) at each change, and at the end.

    A lucky single run counts here as it was measured, and a replicate may lower it. With the errors that are `believed`
    of the configurations today there is no luck, and the last value is that of the front of these errors.
    """
    reference = reference_of(search)
    ended = sorted((t for t in search.trials if t.ended is not None), key=lambda t: t.ended or 0.0)
    rows: list[tuple[float, float, float]] = []
    groups: dict[str, list[Trial]] = {}
    means: dict[str, Point] = {}
    stairs, pairs, value = _Staircase(), 0.0, 0.0
    for trial in ended:
        pairs += trial.pairs
        if not trial.finished or reference is None:
            continue
        groups.setdefault(trial.config_id, []).append(trial)
        error = believed[trial.config_id] if believed else _mean(groups[trial.config_id])
        if _move(stairs, means, trial, error):
            value = stairs.hypervolume(reference)
            rows.append((trial.ended or 0.0, pairs, value))
    if ended and (not rows or rows[-1][0] != ended[-1].ended):
        rows.append((ended[-1].ended or 0.0, pairs, value))
    return rows


def _move(stairs: _Staircase, means: dict[str, Point], trial: Trial, error: float) -> bool:
    """Give a configuration its new mean and tell whether the front changed; rebuilt only when a member moved."""
    old = means.get(trial.config_id)
    means[trial.config_id] = new = (error, trial.extra_propagation)
    if old is None or old == new or not stairs.holds(*old):
        return stairs.add(*new)
    stairs.costs, stairs.errors = [], []
    for point in means.values():
        stairs.add(*point)
    return True
