"""The cost that figures and tables show: extra propagation at one length, compute where lengths differ."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from rst_tune.analysis.replicates import ConfigSummary
from rst_tune.report import formatting

__all__ = ["CostAxis"]


@dataclass(frozen=True)
class CostAxis:
    """One way to write a compute. `horizon` is the length that all trainings share, None where lengths differ.

    >>> CostAxis(None).text(0.5), CostAxis(1.0).text(1.5), CostAxis(0.5).text(1.0)
    ('0.5 ×', '50 %', '100 %')
    """

    horizon: float | None

    @classmethod
    def of(cls, points: Iterable[ConfigSummary]) -> Self:
        """Return the axis for these configurations."""
        lengths = {point.config.horizon for point in points}
        return cls(None if len(lengths) > 1 else next(iter(lengths), 1.0))

    @property
    def lengths_differ(self) -> bool:
        """Whether the axis is that of compute."""
        return self.horizon is None

    @property
    def name(self) -> str:
        """The head of a column."""
        return "compute" if self.lengths_differ else "extra"

    @property
    def noun(self) -> str:
        """The name of the quantity."""
        return "compute" if self.lengths_differ else "extra propagation"

    @property
    def title(self) -> str:
        """The title of an axis."""
        if self.lengths_differ:
            return "compute, in plain trainings of the recipe's length"
        return "extra propagation (100 %: SAM)"

    def value(self, compute: float) -> float:
        """Return the number to draw: compute, or the realized extra propagation."""
        return compute if self.horizon is None else round(compute / self.horizon - 1.0, 9)

    def position(self, compute: float) -> float:
        """Return the place in the coordinates of Plotly's ranges and annotations: the decadic logarithm of compute."""
        return math.log10(compute) if self.lengths_differ else self.value(compute)

    def text(self, compute: float | None) -> str:
        """Return a compute as text."""
        if compute is None or self.horizon is None:
            return formatting.multiple(compute)
        return formatting.cost(self.value(compute))
