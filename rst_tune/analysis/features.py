"""The encoding of a configuration as numbers: everything that a space can vary is visible to the surrogate.

Any p(t) enters through three functionals that `TrialConfig` carries (effect, strain, lateness), so the family's name is
no feature. The columns:

- length: the horizon, in octaves;
- effect and strain, in logarithms;
- lateness: where the ascents lie;
- radius: rho, in logarithms, since the same effect may come from a large radius or a large gamma;
- kind: indicators of rule and policy;
- options: numbers of the options of rule and policy and the cap, standardized over the search.

What belongs to the ascents fades out as the effect goes to 0: there every configuration is the base optimizer.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from rst_tune.records import TrialConfig

Array = NDArray[np.float64]
# Below this effect or strain a training is nearly the base optimizer, and what belongs to the ascents fades out.
SMALL = 0.1
# A larger effect, strain or radius counts as this one: all of them break a training down.
LARGEST = 1e3
GIVEN = ""
USUAL = ("sam", "coin", GIVEN)


def numbers_of(configs: Sequence[TrialConfig]) -> Array:
    """Return horizon, effect, strain, lateness and rho; what is not a number counts as the largest, or as 0."""
    rows = np.array([(c.horizon, c.effect, c.strain, c.lateness, c.rho) for c in configs], dtype=np.float64)
    rows = rows.reshape(-1, 5)
    rows[:, 3] = np.nan_to_num(np.clip(rows[:, 3], -1.0, 1.0))
    ascents = [1, 2, 4]
    rows[:, ascents] = np.clip(np.nan_to_num(rows[:, ascents], nan=LARGEST, posinf=LARGEST), 0.0, LARGEST)
    return rows


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
        configs = list(configs)
        configs = [c for c in configs if not c.is_base] or configs
        words: dict[str, set[str]] = {}
        numbers: dict[str, list[float]] = {}
        for config in configs:
            for name, value in _options(config).items():
                if _is_number(value):
                    numbers.setdefault(name, []).append(float(value))
                else:
                    words.setdefault(name, set()).add(str(value))
        for name in numbers:
            # A rule without a given option has the rule's own default, which is not known here.
            if any(_lacks(config, name) for config in configs):
                words.setdefault(name, {GIVEN}).add(str(None))
        # The first value of each name is the one without an indicator.
        choices = [
            (n, v) for n, found in sorted(words.items()) for v in sorted(found, key=lambda v: (v not in USUAL, v))[1:]
        ]
        spreads = [(n, float(np.mean(v)), float(np.std(v))) for n, v in sorted(numbers.items())]
        spreads = [(name, mean, spread) for name, mean, spread in spreads if 0 < spread < inf]
        rhos = [c.rho for c in configs if 0 < c.rho < inf] or [1.0]
        return cls(rho=float(np.median(rhos)), choices=tuple(choices), numbers=tuple(spreads))

    def encode(self, configs: Sequence[TrialConfig]) -> Array:
        """Return one row of features per configuration."""
        horizon, effect, strain, lateness, rho = numbers_of(configs).T
        present = np.minimum(1.0, effect / SMALL)
        radius = np.log(np.where(rho > 0, rho / self.rho, 1.0))
        columns = [np.log2(horizon), np.log(SMALL + effect), np.log(SMALL + strain), present * lateness]
        columns.append(present * radius)
        options = [_options(c) for c in configs] if self.choices or self.numbers else []
        for name, value in self.choices:
            columns.append(present * np.array([str(own.get(name)) == value for own in options], dtype=np.float64))
        for name, mean, spread in self.numbers:
            values = np.array([v if _is_number(v := own.get(name)) else mean for own in options], dtype=np.float64)
            columns.append(present * (values - mean) / spread)
        return np.stack(columns, axis=1)


def _options(config: TrialConfig) -> dict[str, Any]:
    if config.cap is None and not config.rule_options and not config.policy_options:
        return {"rule": config.rule, "policy": config.policy}
    cap = {} if config.cap is None else {"cap": config.cap}
    own = {f"{config.rule}.{name}": value for name, value in config.rule_options.items()}
    own |= {f"{config.policy}.{name}": value for name, value in config.policy_options.items()}
    return {"rule": config.rule, "policy": config.policy, **own, **cap}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def _lacks(config: TrialConfig, name: str) -> bool:
    """Return whether the option could be given in the configuration and is not."""
    owner = name.partition(".")[0]
    return owner in ("cap", config.rule, config.policy) and name not in _options(config)
