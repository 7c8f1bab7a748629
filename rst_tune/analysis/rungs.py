"""How the error at a rung predicts the final error: regression, rank correlation, expected finals of stopped trials."""

from dataclasses import dataclass, replace
from math import log2

import numpy as np
from scipy import stats

from rst_tune.records import Search, Status, Trial

# With fewer finished trials a rung is not used, neither by the search nor in a report.
MIN_FINISHED = 8
# A trial is hopeless when its log error lies this many standard deviations above the worst that finished. With its
# own error instead of the regression's for such trials the delivered front has 0.896 of the best known hypervolume
# instead of 0.857 on the second benchmark task, 0.937 instead of 0.942 on the first (docs/log.md, 2026-11-17).
HOPELESS_SDS = 3.0


def rung_level(epoch: int, epochs: int) -> int:
    """Return how far before the end a rung lies, in half octaves: rungs of trainings of different lengths share levels.

    >>> rung_level(7, 20), rung_level(3, 9), rung_level(3, 20)
    (3, 3, 5)
    """
    return round(2 * log2(epochs / epoch))


class RungRegression:
    """log(final error) = w0 + w1·log(error at the rung) + w2·log2(compute), over the trials that passed and finished.

    In logarithms a few diverged trainings do not determine the slope.

    >>> regression = RungRegression()
    >>> for rung_error, final in ((10, 2.0), (20, 4.0), (40, 8.0), (80, 16.0)) * 2:
    ...     regression.add(rung_error, 0.5, final)
    >>> round(regression.expected(30, 0.5), 6), regression.expected(1000, 0.5)
    (6.0, 1000)
    """

    def __init__(self) -> None:
        self._rows: list[tuple[float, float, float]] = []

    @property
    def count(self) -> int:
        """How many trials passed the rung and finished."""
        return len(self._rows)

    def add(self, rung_error: float, cost: float, final_error: float) -> None:
        """Add one finished trial."""
        self._rows.append((rung_error, cost, final_error))

    def expected(self, rung_error: float, cost: float) -> float | None:
        """Return the expected final error, between the lowest final error and the error at the rung.

        For a hopeless trial it is the error at the rung: no trial like it has finished, so nothing predicts its end.
        None while fewer than `MIN_FINISHED` have finished.
        """
        if self.count < MIN_FINISHED:
            return None
        rung, costs, final = np.array(self._rows).T
        lowest = 1e-3 * min(float(np.median(final)), 1.0) or 1e-3  # an error of 0 has no logarithm
        logs, own = np.log(np.maximum(rung, lowest)), float(np.log(max(rung_error, lowest)))
        if own > logs.max() + HOPELESS_SDS * max(float(logs.std()), 0.05):
            return rung_error
        design = np.column_stack([np.ones(self.count), logs, costs])
        weights = np.linalg.lstsq(design, np.log(np.maximum(final, lowest)), rcond=None)[0]
        return max(float(final.min()), min(float(np.exp(weights @ [1.0, own, cost])), rung_error))

    def correlation(self) -> float | None:
        """Return Spearman's correlation of the error at the rung with the final error; None while it is undefined."""
        early, _, final = np.array(self._rows).reshape(-1, 3).T
        if self.count < MIN_FINISHED or np.ptp(early) == 0 or np.ptp(final) == 0:
            return None
        return float(stats.spearmanr(early, final).statistic)


@dataclass(frozen=True, kw_only=True)
class RungCorrelation:
    """Spearman's correlation of the error at a rung with the final error; None where it is undefined."""

    level: int
    trials: int
    correlation: float | None

    @property
    def share(self) -> str:
        """Where the rung lies, as a share of the training."""
        return f"{100 * 2.0 ** (-self.level / 2):.0f} %"

    def __str__(self) -> str:
        value = "not known yet" if self.correlation is None else f"{self.correlation:+.2f}"
        return f"after {self.share} of a training: {value} ({self.trials} trials)"


def _regressions(search: Search) -> dict[int, RungRegression]:
    """Return the regression of each rung, by its level: trainings of all lengths share it."""
    finals = {(t.config_id, t.seed): t.error for t in search.finished()}
    found: dict[int, RungRegression] = {}
    for trial in search.trials:
        final = finals.get((trial.config_id, trial.seed))
        if final is None or not trial.has_cost:
            continue
        for epoch, error in trial.rungs.items():
            regression = found.setdefault(rung_level(epoch, trial.epochs), RungRegression())
            regression.add(error, log2(trial.compute), final)
    return found


def rung_correlations(search: Search) -> list[RungCorrelation]:
    """Return the correlation of every rung, over the trials that passed it and were trained to their end."""
    return [
        RungCorrelation(level=level, trials=rung.count, correlation=rung.correlation())
        for level, rung in sorted(_regressions(search).items(), reverse=True)
    ]


def expected_finals(search: Search) -> list[Trial]:
    """Return the trials stopped at a rung as complete ones, with the final error that their last rung predicts.

    Without them a surrogate is too optimistic where some seeds diverge: the rungs stop those, and the others finish.
    """
    regressions, expected = _regressions(search), []
    for trial in search.trials:
        if trial.status is Status.STOPPED and trial.full_horizon and trial.has_cost and trial.rungs:
            last = max(trial.rungs)
            regression = regressions.get(rung_level(last, trial.epochs), RungRegression())
            error = regression.expected(trial.rungs[last], log2(trial.compute))
            if error is not None:
                expected.append(replace(trial, status=Status.COMPLETE, error=error))
    return expected
