"""Fronts of (error, compute), both minimized: dominance, hypervolume, attainment, knee, reference point.

Points are arrays of shape (n, 2) with rows `[error, compute]`. Compute enters areas by its logarithm to base 2, so that
halving it is worth the same everywhere: 0 is the base optimizer at the recipe's length, 1 is SAM. A row that is not
finite is on no front and adds nothing.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from statistics import fmean

import moocore
import numpy as np
from numpy.typing import ArrayLike, NDArray

from rst_tune.records import RuleTimes, Search, scored_trials

Array = NDArray[np.float64]
Point = tuple[float, float]

# The reference point lies this far (in octaves) beyond the dearest training, so that that one adds to the hypervolume.
BEYOND = 0.1


def _points(points: ArrayLike) -> Array:
    return np.asarray(points, dtype=float).reshape(-1, 2)


def _in_octaves(points: Array) -> Array:
    return np.column_stack([points[:, 0], np.log2(points[:, 1])])


def nondominated(points: ArrayLike) -> NDArray[np.bool_]:
    """Return which points no other one dominates. Equal points are kept together.

    >>> nondominated([[4.0, 0.0], [3.0, 0.5], [3.5, 0.6], [3.0, 0.5]]).tolist()
    [True, True, False, True]
    """
    array = _points(points)
    mask: NDArray[np.bool_] = np.asarray(np.isfinite(array).all(axis=1))
    if mask.any():
        mask[mask] = moocore.is_nondominated(array[mask], keep_weakly=True)
    return mask


def hypervolume(points: ArrayLike, reference: Point) -> float:
    """Return the area between the front and the reference point, in units of error times octaves of compute.

    >>> hypervolume([[4.0, 1.0], [3.0, 2.0]], (5.0, 4.0))
    3.0
    """
    array = _points(points)
    array = _in_octaves(array[np.isfinite(array).all(axis=1)])
    corner = _in_octaves(_points([reference]))[0]
    return float(moocore.hypervolume(array, ref=corner)) if len(array) else 0.0


def contributions(points: ArrayLike, reference: Point) -> Array:
    """Return the hypervolume that would be lost without each point; 0 for a dominated or repeated one."""
    array = _points(points)
    result = np.zeros(len(array))
    members = nondominated(array)
    if members.any():
        corner = _in_octaves(_points([reference]))[0]
        result[members] = moocore.hv_contributions(_in_octaves(array[members]), ref=corner)
    return result


def knee(points: ArrayLike) -> int | None:
    """Return the index of the front's knee: the point farthest below the line that joins its two ends.

    Both axes are scaled to the front's own range. With fewer than three points it is the most accurate one; without
    points it is None.

    >>> knee([[5.0, 1.0], [3.1, 1.3], [3.0, 2.0]])
    1
    """
    array = _points(points)
    members = np.flatnonzero(nondominated(array))
    if not len(members):
        return None
    own = _in_octaves(array[members])
    span = np.ptp(own, axis=0)
    if len(members) < 3 or not span.all():
        return int(members[np.lexsort((own[:, 1], own[:, 0]))[0]])
    scaled = (own - own.min(axis=0)) / span
    return int(members[np.argmin(scaled.sum(axis=1))])


def attainment_difference(left: Sequence[ArrayLike], right: Sequence[ArrayLike], intervals: int = 5) -> Array:
    """Return rectangles (error and cost from, error and cost to, difference) where one side attains more often.

    A positive difference means that `left` does; its size counts steps of `intervals`.
    """
    first, second = (
        np.concatenate([np.column_stack([_points(one), np.full(len(one), k + 1.0)]) for k, one in enumerate(fronts)])
        for fronts in ([_points(f) for f in left], [_points(f) for f in right])
    )
    try:
        return np.asarray(moocore.eafdiff(first, second, intervals=intervals, rectangles=True))
    except ValueError:
        # moocore cannot reshape an empty result: neither side attains more anywhere.
        return np.zeros((0, 5))


def derive_reference(error: float) -> float:
    """Return the error of the reference point: 10 % above that of the base optimizer, and above 0.

    >>> round(derive_reference(5.0), 6), round(derive_reference(0.0), 6)
    (5.5, 0.0011)
    """
    return 1.1 * (error if error > 0 else 1e-3)


def reference_compute(longest: float, times: RuleTimes | None = None) -> float:
    """Return the compute of the reference point: beyond SAM, or the slowest rule, for the longest training.

    >>> round(reference_compute(1.0), 3)
    2.144
    """
    dearest = 2.0 if times is None else times.dearest
    return float(dearest * max(longest, 1.0) * 2.0**BEYOND)


def reference_point(search: Search) -> Point | None:
    """Return (error, compute) of the reference point: the recorded one, else one derived from the trials, else None.

    It is derived from the mean error of the base optimizer at the recipe's length, or without one from the first
    finished trial.
    """
    finished = search.finished()
    if search.reference is not None or not finished:
        return search.reference
    groups = search.by_config().values()
    base = [t.error or 0.0 for group in groups for t in scored_trials(group) if t.config.is_recipe]
    error = derive_reference(fmean(base) if base else finished[0].error or 0.0)
    return error, reference_compute(max(t.config.horizon for t in finished), search.header.times)


class IncrementalFront:
    """A front that takes one point at a time: costs rise, errors fall.

    >>> front = IncrementalFront()
    >>> front.add(error=4.0, cost=0.5), front.add(error=6.0, cost=0.2), front.add(error=5.0, cost=0.7)
    (True, True, False)
    >>> front.lowest_error(0.6), front.lowest_error(0.2), front.lowest_error(0.1)
    (4.0, 6.0, None)
    """

    def __init__(self) -> None:
        self._costs: list[float] = []
        self._errors: list[float] = []

    @property
    def points(self) -> list[Point]:
        """The members as (error, cost), by cost."""
        return list(zip(self._errors, self._costs, strict=True))

    def lowest_error(self, cost: float) -> float | None:
        """Return the lowest error at no more than this cost, or None where there is none."""
        at = bisect_right(self._costs, cost)
        return self._errors[at - 1] if at else None

    def add(self, *, error: float, cost: float) -> bool:
        """Add a point and return whether the front changed."""
        lowest = self.lowest_error(cost)
        if lowest is not None and lowest <= error:
            return False
        first = last = bisect_left(self._costs, cost)
        while last < len(self._costs) and self._errors[last] >= error:
            last += 1
        self._costs[first:last], self._errors[first:last] = [cost], [error]
        return True


def hypervolume_history(search: Search, errors: Mapping[str, float]) -> list[tuple[float, float, float]]:
    """Return (time, pairs spent so far, hypervolume) whenever the front grew, and when the last trial ended.

    `errors` maps a configuration's id to the error that it counts with, from its first finished trial on. A
    configuration that is not in it is on no front.
    """
    reference = reference_point(search) or (0.0, 1.0)  # None only where no trial has finished
    ended = sorted((t for t in search.trials if t.ended_at is not None), key=lambda t: t.ended_at or 0.0)
    rows: list[tuple[float, float, float]] = []
    front, pairs, value = IncrementalFront(), 0.0, 0.0
    for trial in ended:
        pairs += trial.pairs
        counts = trial.finished and trial.config_id in errors
        if counts and front.add(error=errors[trial.config_id], cost=trial.compute):
            value = hypervolume(front.points, reference)
            rows.append((trial.ended_at or 0.0, pairs, value))
    last = (ended[-1].ended_at or 0.0, pairs, value) if ended else None
    return rows if last is None or rows[-1:] == [last] else [*rows, last]
