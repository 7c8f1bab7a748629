"""The cost that figures and tables show: extra propagation or time at one length, compute or time where they differ."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from rst_tune.analysis.replicates import ConfigSummary
from rst_tune.records import COST_WORDS, Cost
from rst_tune.report import formatting


@dataclass(frozen=True)
class CostAxis:
    """One way to write a compute. `horizon` is the length that all trainings share, None where lengths differ.

    `cost` is what it is counted in.

    >>> CostAxis(None).text(0.5), CostAxis(1.0).text(1.5), CostAxis(0.5).text(1.0)
    ('0.5 ×', '50 %', '100 %')
    """

    horizon: float | None
    cost: Cost = "compute"

    @classmethod
    def of(cls, points: Iterable[ConfigSummary]) -> Self:
        """Return the axis for these configurations."""
        configs = [point.config for point in points]
        lengths = {config.horizon for config in configs}
        cost = configs[0].cost if configs else "compute"
        return cls(None if len(lengths) > 1 else next(iter(lengths), 1.0), cost)

    @property
    def lengths_differ(self) -> bool:
        """Whether the axis is that of compute."""
        return self.horizon is None

    @property
    def name(self) -> str:
        """The head of a column."""
        return self.noun if self.lengths_differ else self.noun.removesuffix(" propagation")

    @property
    def noun(self) -> str:
        """The name of the quantity."""
        words = COST_WORDS[self.cost]
        return words.noun if self.lengths_differ else words.extra

    @property
    def title(self) -> str:
        """The title of an axis."""
        if self.lengths_differ:
            return f"{self.noun}, in plain trainings of the recipe's length"
        return f"{self.noun} (100 %: {COST_WORDS[self.cost].hundred})"

    @property
    def note(self) -> str:
        """What 1 × is, for a figure; nothing at one length."""
        words = f" {COST_WORDS[self.cost].note}: 1 × is one training of the base optimizer at the recipe's length."
        return words if self.lengths_differ else ""

    def value(self, compute: float) -> float:
        """Return the number to draw: compute, or the realized extra propagation or time."""
        return compute if self.horizon is None else round(compute / self.horizon - 1.0, 9)

    def position(self, compute: float) -> float:
        """Return the place in the coordinates of Plotly's ranges and annotations: the decadic logarithm of compute."""
        return math.log10(compute) if self.lengths_differ else self.value(compute)

    def text(self, compute: float | None) -> str:
        """Return a compute as text."""
        if compute is None or self.horizon is None:
            return formatting.multiple(compute)
        return formatting.cost(self.value(compute))
