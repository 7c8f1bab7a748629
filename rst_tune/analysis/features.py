"""The encoding of a configuration as numbers, shared by the surrogate and the shrinkage of single runs.

Three groups of features:

- the cost c, in logarithms: a cheap schedule changes more from 0 to 5 % than from 80 to 85 %;
- the degree, half way (in logarithms) between gamma_rst, the mean regularization, and gamma_gnr, that of a single
  sharpness-aware step: trainings at the cheap end diverge by the second, the rest depends on the first;
- the kind: indicators of family and rule. At cost 0 and 1 all families are the same schedule, so the indicators vanish.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import log, log1p
from typing import Self

import numpy as np
from numpy.typing import NDArray

from rst_tune.errors import unknown_name
from rst_tune.records import TrialConfig

__all__ = ["FeatureEncoding"]

MIN_GAMMA = 0.05  # 0 has no logarithm
# Below this cost a schedule is nearly the base optimizer: degree and rule fade out.
SMALL_COST = 0.05
# Stretches the cheap end of the cost axis: 5 % lies as far from 0 as SAM from 15 %. Measured against a weaker stretch:
# +0.008 ± 0.004 of the hypervolume on one task, -0.006 ± 0.012 on another (docs/log.md, 2026-11-17, third part).
STRETCH = 100.0


@dataclass(frozen=True, kw_only=True)
class FeatureEncoding:
    """Encodes the configurations of one search. The first family and the first rule have no indicator."""

    families: tuple[str, ...]
    rules: tuple[str, ...]

    @classmethod
    def of(cls, configs: Iterable[TrialConfig]) -> Self:
        """Return the encoding for the families and rules that occur."""
        configs = list(configs)
        rules = {c.rule for c in configs if c.extra_propagation > 0} or {"sam"}
        return cls(
            families=tuple(sorted({c.family for c in configs}, key=lambda name: (name != "constant", name))),
            rules=tuple(sorted(rules, key=lambda name: (name != "sam", name))),
        )

    @property
    def group_sizes(self) -> tuple[int, ...]:
        """The number of columns of cost, degree and kind; a search of one kind has no columns for it."""
        kinds = len(self.families) + len(self.rules) - 2
        return (1, 1, kinds) if kinds else (1, 1)

    def encode(self, configs: Sequence[TrialConfig]) -> NDArray[np.float64]:
        """Return one row of features per configuration; InputError for a family or rule of another search."""
        return np.array([self._row(config) for config in configs])

    def _row(self, config: TrialConfig) -> list[float]:
        family, rule, cost = config.family, config.rule, config.extra_propagation
        if family not in self.families and 0.0 < cost < 1.0:
            raise unknown_name("family in this search", family, self.families)
        if rule not in self.rules and cost > 0.0:
            raise unknown_name("rule in this search", rule, self.rules)
        present = min(1.0, cost / SMALL_COST)
        degree = log(max(config.gamma_rst, MIN_GAMMA)) - 0.5 * log(max(cost, SMALL_COST / 2))
        shape = config.params.get("shape")
        apart = min(1.0, 5 * cost) * min(1.0, 4 * (1 - cost)) * (1.0 if shape is None else float(shape))
        of_family = [apart * (family == name) for name in self.families[1:]]
        of_rule = [present * (rule == name) for name in self.rules[1:]]
        return [log1p(STRETCH * cost) / log1p(STRETCH), present * degree, *of_family, *of_rule]
