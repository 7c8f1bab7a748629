"""Which trials go on past a rung: asynchronous successive halving that respects the whole front.

Trials are compared within one rung and one length only, and (error, compute) are minimised. Three stoppers:

- `none` stops nothing.
- `pareto-asha` keeps the best share by Pareto rank, ties by hypervolume contribution, so both ends survive.
- `asha` keeps the best share by error. It loses the cheap end of the front; it is there to compare with.
"""

from dataclasses import dataclass
from math import log2
from typing import Protocol

import moocore
import numpy as np
from numpy.typing import NDArray

from rst_tune.analysis import pareto
from rst_tune.analysis.rungs import RungRegression, rung_level
from rst_tune.tuning.experiment import Stopping

Points = NDArray[np.float64]
RungId = tuple[int, int]
"""Epoch of the rung, epochs of the training."""


@dataclass(frozen=True)
class Decision:
    """What a rung decided, and why."""

    stop: bool
    reason: str


class Rung:
    """The trials that reached one rung: rows (error, cost) in a growing buffer, and the regression to the end."""

    def __init__(self, regression: RungRegression) -> None:
        self.row: dict[str, int] = {}
        self.regression = regression
        self._buffer = np.empty((64, 2))

    def add(self, key: str, error: float, cost: float) -> None:
        """Add a trial; one that reached the rung before is replaced."""
        row = self.row.setdefault(key, len(self.row))
        if row == len(self._buffer):
            self._buffer = np.concatenate([self._buffer, np.empty_like(self._buffer)])
        self._buffer[row] = error, cost

    def point(self, key: str) -> tuple[float, float]:
        """Return error and cost of a trial."""
        error, cost = self._buffer[self.row[key]]
        return float(error), float(cost)

    @property
    def points(self) -> Points:
        """All rows (error, cost)."""
        return self._buffer[: len(self.row)]


class RungTable:
    """What every rung has seen. It is rebuilt from the event log when a search resumes.

    A rung is (epoch, epochs of the training): trials are compared with those of the same length only. The regression
    from rung to end is learnt over all lengths, by the share of the training that a rung stands at.
    """

    def __init__(self) -> None:
        self.rungs: dict[RungId, Rung] = {}
        self._regressions: dict[int, RungRegression] = {}

    def add(self, key: str, rung: RungId, error: float, cost: float) -> None:
        """Add the error of a trial at a rung."""
        if rung not in self.rungs:
            self.rungs[rung] = Rung(self._regressions.setdefault(rung_level(*rung), RungRegression()))
        self.rungs[rung].add(key, error, cost)

    def finish(self, key: str, error: float, cost: float) -> None:
        """Add the final error of a trial whose rungs were added before."""
        for rung in self.rungs.values():
            if key in rung.row:
                rung.regression.add(rung.point(key)[0], log2(cost), error)

    def expected_final(self, key: str, rung: RungId) -> float | None:
        """Return the final error to expect of a trial at a rung; None while too few have finished."""
        here = self.rungs[rung]
        error, cost = here.point(key)
        return here.regression.expected(error, log2(cost))

    def correlations(self) -> dict[int, float | None]:
        """Return for each level Spearman's correlation of its error with the final error; None where undefined."""
        return {level: regression.correlation() for level, regression in sorted(self._regressions.items())}


class Stopper(Protocol):
    """Decides at a rung."""

    def decide(self, table: RungTable, key: str, rung: RungId) -> Decision:
        """Return whether the trial, which has reached the rung, stops there."""


class NoStopping:
    """Stops nothing."""

    def decide(self, table: RungTable, key: str, rung: RungId) -> Decision:  # noqa: ARG002  one signature for all
        """Return that the trial goes on."""
        return Decision(False, "nothing is stopped")


@dataclass(frozen=True)
class Asha:
    """Keeps the best 1/reduction_factor of a rung by error."""

    reduction_factor: int = 3

    def decide(self, table: RungTable, key: str, rung: RungId) -> Decision:
        """Compare the error with the quantile of the rung."""
        here = table.rungs[rung]
        if len(here.row) < self.reduction_factor:
            return Decision(False, f"fewer than {self.reduction_factor} trials at this rung")
        limit = float(np.quantile(here.points[:, 0], 1 / self.reduction_factor))
        error = here.point(key)[0]
        return Decision(error > limit, f"error {error:.4g}, the limit is {limit:.4g}")


@dataclass(frozen=True)
class ParetoAsha:
    """Keeps the best 1/reduction_factor of a rung in the Pareto order."""

    reduction_factor: int = 3

    def decide(self, table: RungTable, key: str, rung: RungId) -> Decision:
        """Compare the trial's place with the number that goes on."""
        here = table.rungs[rung]
        count = len(here.row)
        if count < self.reduction_factor:
            return Decision(False, f"fewer than {self.reduction_factor} trials at this rung")
        place, kept = pareto_place(here.points, here.row[key]), int(np.ceil(count / self.reduction_factor))
        return Decision(place > kept, f"place {place} of {count} in the Pareto order, the first {kept} go on")


def make_stopper(settings: Stopping, reduction_factor: int) -> Stopper:
    """Return the stopper that an experiment names."""
    match settings.name:
        case "asha":
            return Asha(reduction_factor)
        case "pareto-asha":
            return ParetoAsha(reduction_factor)
    return NoStopping()


def pareto_order(points: Points) -> NDArray[np.int64]:
    """Return indices from best to worst: by Pareto rank, then by hypervolume contribution within the rank.

    The two ends of a rank come first in it, so that the cheapest and the most accurate survive any cut.
    """
    ranks = moocore.pareto_rank(points)
    contribution = np.zeros(len(points))
    for rank in np.unique(ranks):
        of_rank = np.flatnonzero(ranks == rank)
        contribution[of_rank] = _contribution(points[of_rank])
    return np.lexsort((-contribution, ranks))


def pareto_place(points: Points, row: int) -> int:
    """Return the place of one point in `pareto_order`, counted from 1; equal ones share the better place."""
    ranks = moocore.pareto_rank(points)
    peers = np.flatnonzero(ranks == ranks[row])
    share = _contribution(points[peers])
    return int(np.sum(ranks < ranks[row])) + int(np.sum(share > share[peers == row])) + 1


def _contribution(points: Points) -> NDArray[np.float64]:
    reference = points.max(axis=0) + 1.0
    share = pareto.contributions(points, (float(reference[0]), float(reference[1])))
    for axis in (0, 1):
        share[np.argmin(points[:, axis])] = np.inf
    return share
