"""What a rung says of the end, from the record: how well it predicts, and what to expect of who was stopped there."""

from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

from rst_tune.analysis.records import Search, Trial
from rst_tune.analysis.relation import Relation

__all__ = ["RungCorrelation", "expected_ends", "rung_correlations"]

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


def expected_ends(search: Search) -> list[Trial]:
    """Return the stopped trials as if each had been trained to the end that its last rung lets expect.

    A belief from the finished trials alone would be too rosy: where some seeds break down, a rung stops those, and
    only the lucky ones finish.
    """
    relations: dict[int, Relation] = {}
    for trial in search.finished():
        for epoch, error in trial.rungs.items():
            relations.setdefault(epoch, Relation()).add(error, trial.extra_propagation, float(trial.error or 0.0))
    stopped = [t for t in search.trials if t.status == "stopped" and t.full and t.rungs]
    known = [t for t in stopped if (found := relations.get(max(t.rungs))) is not None and found.count >= FEWEST]
    return [replace(t, status="complete", error=_end(relations[max(t.rungs)], t)) for t in known]


def _end(relation: Relation, trial: Trial) -> float:
    return relation.expected(trial.rungs[max(trial.rungs)], trial.extra_propagation)
