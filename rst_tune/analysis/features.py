"""The encoding of a configuration as numbers: everything that a space can vary is visible to the surrogate.

Any p(t) enters through three functionals that `TrialConfig` carries (effect, strain, lateness), so the family's name is
no feature. The groups, each with one length scale:

- length: the horizon, in octaves;
- effect and strain, in logarithms;
- lateness: where the ascents lie;
- radius: rho, in logarithms, since the same effect may come from a large radius or a large gamma;
- kind: indicators of rule and policy;
- options: numbers of the rule's options and the cap, standardized over the search.

What belongs to the ascents fades out as the effect goes to 0: there every configuration is the base optimizer.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import log, log2
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from rst_tune.records import TrialConfig

__all__ = ["FeatureEncoding"]

Array = NDArray[np.float64]
# Added before a logarithm: below it an effect or a strain makes no visible difference.
SMALL = 0.1
# Below this effect a training is nearly the base optimizer, and what belongs to the ascents fades out.
FADE = 0.15


@dataclass(frozen=True, kw_only=True)
class FeatureEncoding:
    """Encodes the configurations of one search. `rho` is the radius that others are compared with.

    `numbers` maps the name of a numeric option to its centre and spread; `choices` are (name, value) indicators.
    """

    rho: float
    choices: tuple[tuple[str, str], ...] = ()
    numbers: tuple[tuple[str, float, float], ...] = ()

    @classmethod
    def of(cls, configs: Iterable[TrialConfig]) -> Self:
        """Return the encoding for what varies among the configurations."""
        configs = [c for c in configs if not c.is_base] or list(configs)
        words: dict[str, set[str]] = {}
        numbers: dict[str, list[float]] = {}
        for config in configs:
            for name, value in _options(config).items():
                if isinstance(value, int | float) and not isinstance(value, bool):
                    numbers.setdefault(name, []).append(float(value))
                else:
                    words.setdefault(name, set()).add(str(value))
        # The first value of each name is the one without an indicator.
        choices = [(n, v) for n, found in sorted(words.items()) for v in sorted(found, key=_usual)[1:]]
        spreads = [(n, float(np.mean(v)), float(np.std(v))) for n, v in sorted(numbers.items()) if np.std(v) > 0]
        rhos = [c.rho for c in configs if c.rho > 0] or [1.0]
        return cls(rho=float(np.median(rhos)), choices=tuple(choices), numbers=tuple(spreads))

    @property
    def groups(self) -> tuple[int, ...]:
        """The group of each column: columns of one group share a length scale."""
        return (0, 1, 2, 3, 4, *(5 for _ in self.choices), *(6 for _ in self.numbers))

    def encode(self, configs: Sequence[TrialConfig]) -> Array:
        """Return one row of features per configuration."""
        return np.array([self._row(config) for config in configs]).reshape(len(configs), len(self.groups))

    def _row(self, config: TrialConfig) -> list[float]:
        present = min(1.0, config.effect / FADE)
        options = _options(config)
        radius = log(config.rho / self.rho) if config.rho > 0 else 0.0
        return [
            log2(config.horizon),
            log(SMALL + config.effect),
            log(SMALL + config.strain),
            present * config.lateness,
            present * radius,
            *(present * (str(options.get(name)) == value) for name, value in self.choices),
            *(present * (float(options.get(name, mean)) - mean) / spread for name, mean, spread in self.numbers),
        ]


def _options(config: TrialConfig) -> dict[str, Any]:
    cap = {} if config.cap is None else {"cap": config.cap}
    own = {f"{config.rule}.{name}": value for name, value in config.rule_options.items()}
    return {"rule": config.rule, "policy": config.policy, **own, **cap}


def _usual(value: str) -> tuple[bool, str]:
    return value not in ("sam", "coin"), value
