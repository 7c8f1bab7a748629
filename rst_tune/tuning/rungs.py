"""Who goes on past a rung: asynchronous successive halving that respects the whole front.

Everything here compares trials within one rung only, and minimises (error, extra propagation). Three stoppers:

- `asha` keeps the best share by error. It loses the cheap end of the front; it is here to compare with.
- `pareto-asha` keeps the best share by Pareto rank, ties by hypervolume contribution, so both ends survive.
- `guarded` stops only where `pareto-asha` would, and only if the trial's probability of ending non-dominated is
  small, by itself and beside that of any trial, under a relation rung -> final that was learnt from the finished
  trials. A rung that predicts nothing therefore stops nothing but the hopeless: those far worse than whatever was seen
  to finish.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import moocore
import numpy as np
from numpy.typing import NDArray

from rst_tune.analysis import pareto
from rst_tune.analysis.relation import Relation, Staircase
from rst_tune.errors import unknown_name

__all__ = ["Decision", "Rungs", "pareto_order", "pareto_place"]

Points = NDArray[np.float64]

# The more trials have finished, the less likely any further one is to be the best of all. A rung has told something
# only where the chance is below this share of what it would be without the rung.
TOLD = 0.1


@dataclass(frozen=True)
class Decision:
    """What a rung decided, and why."""

    stop: bool
    reason: str
    chance: float | None = None


class _Rung:
    """Who reached one rung: rows (error, cost) in a buffer that grows, and the relation to the final error."""

    def __init__(self) -> None:
        self.row: dict[str, int] = {}
        self.relation = Relation()
        self._buffer = np.empty((64, 2))

    def add(self, key: str, error: float, cost: float) -> None:
        row = self.row.setdefault(key, len(self.row))
        if row == len(self._buffer):
            self._buffer = np.concatenate([self._buffer, np.empty_like(self._buffer)])
        self._buffer[row] = error, cost

    def of(self, key: str) -> tuple[float, float]:
        error, cost = self._buffer[self.row[key]]
        return float(error), float(cost)

    @property
    def points(self) -> Points:
        return self._buffer[: len(self.row)]


@dataclass
class Rungs:
    """What every rung has seen. It is rebuilt from the record when a search resumes."""

    stopper: str = "guarded"
    reduction: int = 3
    probability: float = 0.05
    minimum: int = 8
    _rungs: dict[int, _Rung] = field(default_factory=dict)
    _front: Staircase = field(default_factory=Staircase)

    def __post_init__(self) -> None:
        if self.stopper not in STOPPERS:
            raise unknown_name("stopper", self.stopper, STOPPERS)

    def reached(self, key: str, rung: int, error: float, cost: float) -> None:
        """Take note that `key` has this error at this rung."""
        self._rungs.setdefault(rung, _Rung()).add(key, error, cost)

    def finished(self, key: str, error: float, cost: float) -> None:
        """Take note of a final result at the full horizon, of a trial whose rungs were noted before."""
        self._front.add(cost, error)
        for rung in self._rungs.values():
            if key in rung.row:
                rung.relation.add(rung.of(key)[0], cost, error)

    def decide(self, key: str, rung: int) -> Decision:
        """Return whether `key`, which has reached `rung`, stops there."""
        return STOPPERS[self.stopper](self, key, rung)

    def expected(self, key: str, rung: int) -> float | None:
        """Return the final error to expect of `key`, which has reached `rung`; None while too few have finished."""
        relation = self._rungs[rung].relation
        return relation.expected(*self._rungs[rung].of(key)) if relation.count >= self.minimum else None

    def correlations(self) -> dict[int, float | None]:
        """Return for each rung Spearman's correlation of its error with the final error; None: undefined so far."""
        return {epoch: rung.relation.correlation() for epoch, rung in sorted(self._rungs.items())}

    def _chances(self, key: str, rung: int) -> tuple[float, float]:
        """Return P(final error below that of every finished trial that costs no more), with and without the rung."""
        error, cost = self._rungs[rung].of(key)
        to_beat, relation = self._front.lowest(cost), self._rungs[rung].relation
        if to_beat is None:
            return 1.0, 1.0
        return relation.chance_below(to_beat, error, cost), relation.chance_unseen(to_beat)


def _go_on(rungs: Rungs, key: str, rung: int) -> Decision:  # noqa: ARG001  one signature for all
    return Decision(False, "nothing is stopped")


def _asha(rungs: Rungs, key: str, rung: int) -> Decision:
    errors = rungs._rungs[rung].points[:, 0]
    if len(errors) < rungs.reduction:
        return Decision(False, f"fewer than {rungs.reduction} trials at this rung")
    cut = float(np.quantile(errors, 1 / rungs.reduction))
    error = rungs._rungs[rung].of(key)[0]
    return Decision(error > cut, f"error {error:.2f} against the cut {cut:.2f}")


def pareto_order(points: Points) -> NDArray[np.int64]:
    """Return indices from best to worst: by Pareto rank, then by hypervolume contribution within the rank.

    The two ends of a rank stand first in it, so that the cheapest and the most accurate survive any cut.
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


def _pareto_asha(rungs: Rungs, key: str, rung: int) -> Decision:
    here = rungs._rungs[rung]
    count = len(here.row)
    if count < rungs.reduction:
        return Decision(False, f"fewer than {rungs.reduction} trials at this rung")
    place, kept = pareto_place(here.points, here.row[key]), int(np.ceil(count / rungs.reduction))
    return Decision(place > kept, f"place {place} of {count} in the Pareto order, the first {kept} go on")


def _guarded(rungs: Rungs, key: str, rung: int) -> Decision:
    relation = rungs._rungs[rung].relation
    if relation.count < rungs.minimum:
        return Decision(False, f"only {relation.count} finished trials to learn from, {rungs.minimum} are needed")
    error = rungs._rungs[rung].of(key)[0]
    chance, unseen = rungs._chances(key, rung)
    reason = f"{chance:.3f} is its chance to end non-dominated, {unseen:.3f} that of any trial"
    if relation.hopeless(error):
        chance, reason = 0.0, f"hopeless: error {error:.2f}, the worst that finished had {relation.worst:.2f}"
    elif chance >= min(rungs.probability, TOLD * unseen):
        return Decision(False, reason, chance)
    asked = _pareto_asha(rungs, key, rung)  # last, because it looks at the whole rung
    return Decision(asked.stop, f"{reason}; {asked.reason}", chance)


STOPPERS: dict[str, Callable[[Rungs, str, int], Decision]] = {
    "guarded": _guarded,
    "pareto-asha": _pareto_asha,
    "asha": _asha,
    "none": _go_on,
}
