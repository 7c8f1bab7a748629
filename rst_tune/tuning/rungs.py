"""Who goes on past a rung: asynchronous successive halving that respects the whole front.

Everything here compares trials within one rung only, and minimises (error, extra propagation). Three stoppers:

- `asha` keeps the best share by error. It loses the cheap end of the front; it is here to compare with.
- `pareto-asha` keeps the best share by Pareto rank, ties by hypervolume contribution, so both ends survive.
- `guarded` stops only where `pareto-asha` would, and only if the trial's probability of ending non-dominated is
  small under a relation rung -> final that was learnt from the finished trials. A rung that predicts nothing
  therefore stops nothing but the hopeless: those far worse than whatever was seen to finish.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import moocore
import numpy as np
from numpy.typing import NDArray
from scipy import stats

from rst_tune.analysis import pareto
from rst_tune.errors import unknown_name

__all__ = ["Decision", "Rungs", "chance_of_ending_nondominated", "pareto_order"]

Points = NDArray[np.float64]

# A trial is hopeless when its log error stands this many standard deviations above the worst that finished.
HOPELESS = 3.0


@dataclass(frozen=True)
class Decision:
    """What a rung decided, and why."""

    stop: bool
    reason: str
    chance: float | None = None


@dataclass
class Rungs:
    """What every rung has seen. It is rebuilt from the record when a search resumes."""

    stopper: str = "guarded"
    reduction: int = 3
    probability: float = 0.05
    minimum: int = 8
    seen: dict[int, dict[str, tuple[float, float]]] = field(default_factory=dict)
    final: dict[str, tuple[float, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.stopper not in STOPPERS:
            raise unknown_name("stopper", self.stopper, STOPPERS)

    def reached(self, key: str, rung: int, error: float, cost: float) -> None:
        """Take note that `key` has this error at this rung."""
        self.seen.setdefault(rung, {})[key] = (error, cost)

    def finished(self, key: str, error: float, cost: float) -> None:
        """Take note of a final result at the full horizon."""
        self.final[key] = (error, cost)

    def decide(self, key: str, rung: int) -> Decision:
        """Return whether `key`, which has reached `rung`, stops there."""
        return STOPPERS[self.stopper](self, key, rung)

    def pairs(self, rung: int) -> Points:
        """Return (rung error, final error, cost) of the finished trials that passed this rung."""
        seen = self.seen.get(rung, {})
        rows = [(seen[key][0], *final) for key, final in self.final.items() if key in seen]
        return np.array(rows, dtype=float).reshape(-1, 3)

    def correlation(self, rung: int) -> float | None:
        """Return Spearman's correlation of the error at a rung with the final error, or None if it is undefined."""
        pairs = self.pairs(rung)
        if len(pairs) < 3 or np.ptp(pairs[:, 0]) == 0 or np.ptp(pairs[:, 1]) == 0:
            return None
        return float(stats.spearmanr(pairs[:, 0], pairs[:, 1]).statistic)


def _go_on(rungs: Rungs, key: str, rung: int) -> Decision:  # noqa: ARG001  one signature for all
    return Decision(False, "nothing is stopped")


def _asha(rungs: Rungs, key: str, rung: int) -> Decision:
    errors = np.array([error for error, _ in rungs.seen[rung].values()])
    if len(errors) < rungs.reduction:
        return Decision(False, f"fewer than {rungs.reduction} trials at this rung")
    cut = float(np.quantile(errors, 1 / rungs.reduction))
    error = rungs.seen[rung][key][0]
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


def _contribution(points: Points) -> NDArray[np.float64]:
    reference = points.max(axis=0) + 1.0
    share = pareto.contributions(points, (float(reference[0]), float(reference[1])))
    for axis in (0, 1):
        share[np.argmin(points[:, axis])] = np.inf
    return share


def _pareto_asha(rungs: Rungs, key: str, rung: int) -> Decision:
    keys = list(rungs.seen[rung])
    if len(keys) < rungs.reduction:
        return Decision(False, f"fewer than {rungs.reduction} trials at this rung")
    order = pareto_order(np.array(list(rungs.seen[rung].values())))
    place = int(np.flatnonzero(order == keys.index(key))[0]) + 1
    kept = int(np.ceil(len(keys) / rungs.reduction))
    return Decision(place > kept, f"place {place} of {len(keys)} in the Pareto order, the first {kept} go on")


def _guarded(rungs: Rungs, key: str, rung: int) -> Decision:
    plain = _pareto_asha(rungs, key, rung)
    if not plain.stop:
        return plain
    pairs = rungs.pairs(rung)
    if len(pairs) < rungs.minimum:
        return Decision(False, f"only {len(pairs)} finished trials to learn from, {rungs.minimum} are needed")
    error, cost = rungs.seen[rung][key]
    if _hopeless(error, pairs[:, 0]):
        return Decision(True, f"hopeless: error {error:.2f}, the worst that finished had {pairs[:, 0].max():.2f}", 0.0)
    chance = chance_of_ending_nondominated(error, cost, pairs, np.array(list(rungs.final.values())))
    return Decision(chance < rungs.probability, f"{chance:.3f} is its chance to end non-dominated", chance)


def _hopeless(error: float, finished: NDArray[np.float64]) -> bool:
    logs = np.log(np.maximum(finished, 1e-3))
    return bool(np.log(max(error, 1e-3)) > logs.max() + HOPELESS * max(float(logs.std()), 0.05))


def chance_of_ending_nondominated(error: float, cost: float, pairs: Points, final: Points) -> float:
    """Return P(the final error is below that of every finished trial that costs no more).

    The final error is predicted by least squares from the log error at the rung and the cost, with the predictive
    t distribution; a rung that predicts nothing leaves the spread of the finished trials.

    Args:
        error: its error at the rung.
        cost: its extra propagation.
        pairs: rows (rung error, final error, cost) of finished trials that passed the rung.
        final: rows (final error, cost) of all finished trials.
    """
    cheaper = final[final[:, 1] <= cost, 0]
    if not len(cheaper):
        return 1.0
    mean, scale, freedom = _predict(error, cost, pairs)
    if scale == 0.0:
        return float(mean < cheaper.min())
    return float(stats.t.cdf((cheaper.min() - mean) / scale, freedom))


def _predict(error: float, cost: float, pairs: Points) -> tuple[float, float, int]:
    columns = [np.ones(len(pairs)), np.log(np.maximum(pairs[:, 0], 1e-3)), pairs[:, 2]]
    design, target = np.column_stack(columns), pairs[:, 1]
    new = np.array([1.0, np.log(max(error, 1e-3)), cost])
    weights, _, rank, _ = np.linalg.lstsq(design, target, rcond=None)
    freedom = max(len(pairs) - int(rank), 1)
    variance = float(np.sum((target - design @ weights) ** 2)) / freedom
    leverage = float(new @ np.linalg.pinv(design.T @ design) @ new)
    return float(new @ weights), float(np.sqrt(variance * (1 + leverage))), freedom


STOPPERS: dict[str, Callable[[Rungs, str, int], Decision]] = {
    "guarded": _guarded,
    "pareto-asha": _pareto_asha,
    "asha": _asha,
    "none": _go_on,
}
