"""The number by which trainings are judged: its name, unit and direction.

Inside of the package every value is an error: its distance from the best value there can be, minimized and never below
0. A value becomes an error where a training reports it, and a value again where it is printed or drawn.
"""

import math
from dataclasses import dataclass
from typing import Literal

MISSING = "–"
MAX_DECIMALS = 8
HUGE = 1e12


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A metric of the validation data. The default is the error of a classifier in percent.

    Attributes:
        name: as it is written in sentences, tables and axes.
        unit: written behind the numbers; it may be empty.
        direction: whether lower or higher values are better.
        best: the best value there can be, which no training passes. None: 0 to be minimized; 1 to be maximized, 100
            where the unit is %.

    >>> Metric().text(3.6512, 0.104), Metric(name="RMSE", unit="").phrase(0.31234)
    ('3.65 ± 0.10', 'RMSE 0.312')
    >>> accuracy = Metric(name="accuracy", unit="", direction="maximize")
    >>> round(accuracy.error(0.93), 6), accuracy.phrase(0.07, 0.004), accuracy.difference(-0.02, -0.03, -0.01)
    (0.07, 'accuracy 0.9300 ± 0.0040', '+0.0200, +0.0100 to +0.0300')
    """

    name: str = "error"
    unit: str = "%"
    direction: Literal["minimize", "maximize"] = "minimize"
    best: float | None = None

    def __post_init__(self) -> None:
        if not self.name.strip() or any(not c.isprintable() for c in self.name + self.unit):
            raise ValueError(f"a metric needs a name of printable characters, but got {self.name!r}: for example RMSE")
        if self.best is not None and not math.isfinite(self.best):
            raise ValueError(f"the best value of a metric must be finite, but got {self.best}: leave it out")

    @property
    def higher_is_better(self) -> bool:
        """Whether the metric is maximized."""
        return self.direction == "maximize"

    @property
    def ideal(self) -> float:
        """The best value there can be."""
        if self.best is not None:
            return self.best
        return (100.0 if self.unit == "%" else 1.0) if self.higher_is_better else 0.0

    @property
    def worst_error(self) -> float:
        """The error of a training that broke down: that of a classifier which is never right, else a huge one."""
        bounded = self.unit == "%" or (self.higher_is_better and self.best is None)
        return (100.0 if self.unit == "%" else 1.0) if bounded else HUGE

    @property
    def label(self) -> str:
        """The title of an axis."""
        return f"validation {self.name}" + (f", {self.unit}" if self.unit else "")

    @property
    def objective(self) -> str:
        """What is minimized, the error, in terms of the metric.

        >>> Metric(name="RMSE", unit="").objective, Metric(name="accuracy", unit="", direction="maximize").objective
        ('RMSE', '1 - accuracy')
        """
        if self.higher_is_better:
            return f"{self.ideal:g} - {self.name}"
        return f"{self.name} - {self.ideal:g}" if self.ideal else self.name

    @property
    def title(self) -> str:
        """The head of a column."""
        return f"{self.name} {self.unit}".strip()

    def error(self, value: float) -> float:
        """Return the distance of a reported value from the best one; below 0 the value is better than the best."""
        return self.ideal - value if self.higher_is_better else value - self.ideal

    def value(self, error: float) -> float:
        """Return the value that has this error."""
        return self.ideal - error if self.higher_is_better else self.ideal + error

    def text(self, error: float | None, sem: float | None = None) -> str:
        """Return the value of an error without its unit, with its standard error if there is one."""
        if error is None or not math.isfinite(error):
            return MISSING
        if sem is None or not math.isfinite(sem):
            return f"{self.value(error):.{self._decimals(error, 3)}f}"
        decimals = self._decimals(sem, 2) if sem > 0 else self._decimals(error, 3)
        return f"{self.value(error):.{decimals}f} ± {sem:.{decimals}f}"

    def with_unit(self, error: float | None, sem: float | None = None) -> str:
        """Return the value of an error with its unit."""
        return f"{self.text(error, sem)} {self.unit}".strip()

    def phrase(self, error: float | None, sem: float | None = None) -> str:
        """Return the name and the value of an error."""
        return f"{self.name} {self.with_unit(error, sem)}"

    def difference(self, gap: float, low: float | None = None, high: float | None = None) -> str:
        """Return a difference of two errors as one of values, with its interval if there is one."""
        sign = -1.0 if self.higher_is_better else 1.0
        ends = [sign * end for end in (low, high) if end is not None]
        decimals = self._decimals(max([abs(gap), *map(abs, ends)]), 3)
        shown = f"{sign * gap:+.{decimals}f}"
        return shown if len(ends) < 2 else f"{shown}, {min(ends):+.{decimals}f} to {max(ends):+.{decimals}f}"

    def ends(self, low: float, high: float) -> str:
        """Return the ends of an interval of values, without the unit.

        >>> Metric().ends(4.123, 5.4), Metric(name="RMSE", unit="").ends(0.30123, 0.3221)
        ('4.12 to 5.40', '0.301 to 0.322')
        """
        decimals = max(self._decimals(high - low, 2), 2 if self.unit == "%" else 0)
        return f"{low:.{decimals}f} to {high:.{decimals}f}"

    def _decimals(self, size: float, digits: int) -> int:
        """Return the decimals of a number of this size with a few digits; two in percent."""
        if self.unit == "%":
            return 2
        exponent = math.floor(math.log10(abs(size))) if size else 0
        return min(max(digits - 1 - exponent, 0), MAX_DECIMALS)


PERCENT_ERROR = Metric()
"""The error of a classifier in percent."""
