"""How the error at a rung predicts the final error: regression, rank correlation, expected finals of stopped trials."""

from dataclasses import dataclass, replace
from math import exp, log, log2, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from rst_tune.records import Search, Status, Trial

# With fewer finished trials a rung is not used, neither by the search nor in a report.
MIN_FINISHED = 8
# A trial is hopeless when its log error lies this many standard deviations above the worst that finished. With its
# own error instead of the regression's for such trials the delivered front has 0.896 of the best known hypervolume
# instead of 0.857 on the second benchmark task, 0.937 instead of 0.942 on the first (docs/log.md, 2026-11-17).
HOPELESS_SDS, MIN_LOG_SD = 3.0, 0.05
MIN_ERROR = 1e-3  # an error of 0 has no logarithm


def rung_level(epoch: int, epochs: int) -> int:
    """Return how far before the end a rung lies, in half octaves: rungs of trainings of different lengths share levels.

    >>> rung_level(7, 20), rung_level(3, 9), rung_level(3, 20)
    (3, 3, 5)
    """
    return round(2 * log2(epochs / epoch))


class RungRegression:
    """log(final error) = w0 + w1·log(error at the rung) + w2·cost + noise, over the trials that passed and finished.

    It is updated trial by trial in constant time. In logarithms a few diverged trainings do not determine the slope.

    >>> regression = RungRegression()
    >>> for rung_error, final in ((10, 2.0), (20, 4.0), (40, 8.0), (80, 16.0)):
    ...     regression.add(rung_error, 0.5, final)
    >>> round(regression.expected(30, 0.5), 6)
    6.0
    """

    def __init__(self) -> None:
        self.count = 0
        self._rows: list[tuple[float, float]] = []
        self._gram: NDArray[np.float64] = np.zeros((3, 3))
        self._moment: NDArray[np.float64] = np.zeros(3)
        self._squares = 0.0
        self._worst = -np.inf
        self._lowest = np.inf
        self._floor = MIN_ERROR

    @property
    def worst(self) -> float:
        """The highest error at this rung of a trial that finished."""
        return exp(self._worst)

    def _log(self, error: float) -> float:
        return log(max(error, self._floor))

    def add(self, rung_error: float, cost: float, final_error: float) -> None:
        """Add one finished trial."""
        if not self.count and 0 < final_error < 1:  # the scale of the errors shows in the first one
            self._floor = MIN_ERROR * final_error
        x = np.array([1.0, self._log(rung_error), cost])
        self.count += 1
        self._rows.append((rung_error, final_error))
        self._gram += np.outer(x, x)
        self._moment += x * self._log(final_error)
        self._squares += self._log(final_error) ** 2
        self._worst = max(self._worst, x[1])
        self._lowest = min(self._lowest, final_error)

    def predict(self, rung_error: float, cost: float) -> tuple[float, float, int]:
        """Return mean, scale and degrees of freedom of the predictive t distribution of the final error's logarithm."""
        x = np.array([1.0, self._log(rung_error), cost])
        inverse = np.linalg.pinv(self._gram, hermitian=True)
        weights = inverse @ self._moment
        freedom = max(self.count - int(np.linalg.matrix_rank(self._gram, hermitian=True)), 1)
        variance = max(self._squares - float(weights @ self._moment), 0.0) / freedom
        return float(x @ weights), sqrt(variance * (1.0 + float(x @ inverse @ x))), freedom

    def expected(self, rung_error: float, cost: float) -> float:
        """Return the expected final error, between the lowest final error and the error at the rung.

        For a hopeless trial it is the error at the rung: no trial like it has finished, so nothing predicts its end.
        """
        if self.hopeless(rung_error):
            return rung_error
        return max(self._lowest, min(exp(self.predict(rung_error, cost)[0]), rung_error))

    def chance_below(self, level: float, rung_error: float, cost: float) -> float:
        """Return the probability that the final error is below `level`."""
        mean, scale, freedom = self.predict(rung_error, cost)
        if scale == 0.0:
            return float(mean < self._log(level))
        return float(stats.t.cdf((self._log(level) - mean) / scale, freedom))

    def chance_unseen(self, level: float) -> float:
        """Return the probability that a final error is below `level`, without the error at the rung."""
        mean = self._moment[0] / self.count
        scale = sqrt(max(self._squares / self.count - mean**2, 1e-12))
        return float(stats.norm.cdf((self._log(level) - mean) / scale))

    def hopeless(self, rung_error: float) -> bool:
        """Return whether the error is far above that of every trial that finished."""
        mean, square = self._gram[0, 1] / self.count, self._gram[1, 1] / self.count
        spread = sqrt(max(square - mean**2, 0.0))
        return self._log(rung_error) > self._worst + HOPELESS_SDS * max(spread, MIN_LOG_SD)

    def correlation(self) -> float | None:
        """Return Spearman's correlation of the error at the rung with the final error; None while it is undefined."""
        early, final = np.array(self._rows).reshape(-1, 2).T
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
            regression = regressions.get(rung_level(last, trial.epochs))
            if regression is not None and regression.count >= MIN_FINISHED:
                error = regression.expected(trial.rungs[last], log2(trial.compute))
                expected.append(replace(trial, status=Status.COMPLETE, error=error))
    return expected
