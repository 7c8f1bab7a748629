"""Does an early rung predict the end? The rank correlation of each rung, from the record."""

from dataclasses import dataclass

import numpy as np
from scipy import stats

from rst_tune.analysis.records import Search

__all__ = ["RungCorrelation", "rung_correlations"]

FEWEST = 5


@dataclass(frozen=True, kw_only=True)
class RungCorrelation:
    """Spearman's correlation of the error at a rung with the final error; None where it says nothing yet."""

    epoch: int
    trials: int
    correlation: float | None

    def __str__(self) -> str:
        value = "not known yet" if self.correlation is None else f"{self.correlation:+.2f}"
        return f"epoch {self.epoch}: {value} ({self.trials} trials)"


def rung_correlations(search: Search) -> list[RungCorrelation]:
    """Return the correlation of every rung, from the trials that passed it and were trained to the end."""
    final = {(t.config_id, t.seed): t.error for t in search.finished()}
    pairs: dict[int, list[tuple[float, float]]] = {}
    for trial in search.trials:
        end = final.get((trial.config_id, trial.seed))
        for epoch, error in trial.rungs.items():
            if end is not None:
                pairs.setdefault(epoch, []).append((error, end))
    return [RungCorrelation(epoch=e, trials=len(p), correlation=_spearman(p)) for e, p in sorted(pairs.items())]


def _spearman(pairs: list[tuple[float, float]]) -> float | None:
    early, late = np.array(pairs).T
    if len(pairs) < FEWEST or np.ptp(early) == 0 or np.ptp(late) == 0:
        return None
    return float(stats.spearmanr(early, late).statistic)
