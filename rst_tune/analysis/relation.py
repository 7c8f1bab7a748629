"""What a rung says of the end: least squares from finished trials, and the front they have reached.

Both are kept up to date trial by trial, so that a decision costs the same after ten thousand trials as after ten.
"""

from bisect import bisect_left, bisect_right
from math import exp, log, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy import stats

__all__ = ["Relation", "Staircase"]

# A trial is hopeless when its log error stands this many standard deviations above the worst that finished.
HOPELESS = 3.0
_FEATURES = 3


def _log(error: float) -> float:
    return log(max(error, 1e-3))


class Relation:
    """log(final error) = w0 + w1·log(error at the rung) + w2·cost + noise, from the trials that passed and finished.

    A rung that predicts nothing leaves the spread of the finished trials as the noise. In logarithms a few trainings
    that broke down do not rule the slope: many a good one is far behind at an early rung.

    >>> relation = Relation()
    >>> for rung_error, final in ((10, 2.0), (20, 4.0), (40, 8.0), (80, 16.0)):
    ...     relation.add(rung_error, 0.5, final)
    >>> round(relation.expected(30, 0.5), 6)
    6.0
    """

    def __init__(self) -> None:
        self.count = 0
        self._rows: list[tuple[float, float]] = []
        self._gram: NDArray[np.float64] = np.zeros((_FEATURES, _FEATURES))
        self._moment: NDArray[np.float64] = np.zeros(_FEATURES)
        self._squares = 0.0
        self._worst = -np.inf
        self._lowest = np.inf

    @property
    def worst(self) -> float:
        """The highest error at this rung of a trial that finished."""
        return exp(self._worst)

    def add(self, rung_error: float, cost: float, final_error: float) -> None:
        """Learn from one finished trial."""
        x = np.array([1.0, _log(rung_error), cost])
        self.count += 1
        self._rows.append((rung_error, final_error))
        self._gram += np.outer(x, x)
        self._moment += x * _log(final_error)
        self._squares += _log(final_error) ** 2
        self._worst = max(self._worst, x[1])
        self._lowest = min(self._lowest, final_error)

    def predict(self, rung_error: float, cost: float) -> tuple[float, float, int]:
        """Return mean, scale and degrees of freedom of the predictive t distribution of the final error's logarithm."""
        x = np.array([1.0, _log(rung_error), cost])
        inverse = np.linalg.pinv(self._gram, hermitian=True)
        weights = inverse @ self._moment
        freedom = max(self.count - int(np.linalg.matrix_rank(self._gram, hermitian=True)), 1)
        variance = max(self._squares - float(weights @ self._moment), 0.0) / freedom
        return float(x @ weights), sqrt(variance * (1.0 + float(x @ inverse @ x))), freedom

    def expected(self, rung_error: float, cost: float) -> float:
        """Return the final error to expect: no lower than the best that finished, no higher than it was at the rung.

        Of a hopeless one nothing is known but what it had: no trial like it has finished.
        """
        if self.hopeless(rung_error):
            return rung_error
        return max(self._lowest, min(exp(self.predict(rung_error, cost)[0]), rung_error))

    def chance_below(self, level: float, rung_error: float, cost: float) -> float:
        """Return the probability that the final error is below `level`."""
        mean, scale, freedom = self.predict(rung_error, cost)
        if scale == 0.0:
            return float(mean < _log(level))
        return float(stats.t.cdf((_log(level) - mean) / scale, freedom))

    def chance_unseen(self, level: float) -> float:
        """Return the probability that a final error is below `level`, whatever the rung says."""
        mean = self._moment[0] / self.count
        scale = sqrt(max(self._squares / self.count - mean**2, 1e-12))
        return float(stats.norm.cdf((_log(level) - mean) / scale))

    def hopeless(self, rung_error: float) -> bool:
        """Return whether the error stands far above whatever was seen to finish."""
        mean, square = self._gram[0, 1] / self.count, self._gram[1, 1] / self.count
        spread = sqrt(max(square - mean**2, 0.0))
        return _log(rung_error) > self._worst + HOPELESS * max(spread, 0.05)

    def correlation(self) -> float | None:
        """Return Spearman's correlation of the rung's error with the final error; None where it is undefined."""
        rows = np.array(self._rows).reshape(-1, 2)
        if len(rows) < 3 or np.ptp(rows[:, 0]) == 0 or np.ptp(rows[:, 1]) == 0:
            return None
        return float(stats.spearmanr(rows[:, 0], rows[:, 1]).statistic)


class Staircase:
    """The front of what finished, for one question: the lowest error at no more than this cost.

    >>> front = Staircase()
    >>> front.add(0.5, 4.0), front.add(0.2, 6.0), front.add(0.7, 5.0)
    (None, None, None)
    >>> front.lowest(0.6), front.lowest(0.2), front.lowest(0.1)
    (4.0, 6.0, None)
    """

    def __init__(self) -> None:
        self._costs: list[float] = []
        self._errors: list[float] = []

    def add(self, cost: float, error: float) -> None:
        """Take in one finished trial."""
        lowest = self.lowest(cost)
        if lowest is not None and lowest <= error:
            return
        first = bisect_left(self._costs, cost)
        last = first
        while last < len(self._costs) and self._errors[last] >= error:
            last += 1
        self._costs[first:last], self._errors[first:last] = [cost], [error]

    def lowest(self, cost: float) -> float | None:
        """Return the lowest final error among those that cost no more, or None where there are none."""
        place = bisect_right(self._costs, cost)
        return self._errors[place - 1] if place else None
