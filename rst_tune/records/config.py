"""What one trial trains, and the identities derived from it."""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Literal, Self

Cost = Literal["compute", "seconds"]
"""What a training costs is counted in: forward-backward pairs, or seconds."""


@dataclass(frozen=True, kw_only=True)
class CostWords:
    """How a cost is written: its name, that of what exceeds a plain training and what has 100 % of it, its units."""

    noun: str
    extra: str
    hundred: str
    unit: str
    amount: str
    note: str


COST_WORDS: Mapping[Cost, CostWords] = {
    "compute": CostWords(
        noun="compute", extra="extra propagation", hundred="SAM", unit="pair", amount="propagation pairs",
        note="Compute counts forward-backward pairs",
    ),
    "seconds": CostWords(
        noun="time", extra="extra time", hundred="a plain training", unit="plain step", amount="time in plain steps",
        note="Time is that of the training steps with passes, data and the rule's own work",
    ),
}  # fmt: skip


def config_id(params: Mapping[str, Any]) -> str:
    """Return the identity of a configuration: a hash of the sampled parameters, free of seeds, lengths and Ray.

    >>> config_id({"a": 1, "b": 2.0}) == config_id({"b": 2.0, "a": 1})
    True
    """
    text = json.dumps(params, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def trial_key(config: str, epochs: int, seed: int) -> str:
    """Return the key of one training: configuration, length in epochs, seed."""
    return f"{config}-e{epochs}-s{seed}"


@dataclass(frozen=True, kw_only=True)
class RuleTimes:
    """The time of a plain step in seconds, and in units of it that of an extra pair and of each rule's own work.

    `work` is what one ascent takes beside its pairs. It may be below 0: pairs are counted by samples, and a pass over
    half of a batch may take less than half of the time. A rule that is missing takes the time of its pairs.
    """

    step: float
    second: float
    work: Mapping[str, float] = field(default_factory=dict)

    def per_step(self, extra: float, ascents: float, rule: str) -> float:
        """Return the time of a mean step with so many extra pairs and ascents.

        >>> RuleTimes(step=0.01, second=0.9, work={"esam": 0.5}).per_step(0.8, 1.0, "esam")
        2.22
        """
        return 1.0 + self.second * extra + self.work.get(rule, 0.0) * ascents

    @property
    def dearest(self) -> float:
        """The time of a step with one extra pair and the work of the slowest rule."""
        return 1.0 + self.second + max([0.0, *self.work.values()])


@dataclass(frozen=True, kw_only=True)
class TrialConfig:
    """The sharpness-aware part of a training, complete and with its exact cost.

    Attributes:
        family: the family that was sampled; `schedule` may be built from it and carry another name.
        schedule: p(t) as plain data, which `rst_tune.schedules.from_dict` reads.
        gamma_gnr: the degree of the mix in units of rho; 1 is SAM.
        gamma_rst: mean p(t) times gamma_gnr.
        extra_propagation: expected extra forward-backward pairs per step; 0 is the base optimizer, 1 is SAM.
        horizon: length of the training as a share of the recipe's epochs.
        effect: how strongly the training is regularized, in units of SAM at the recipe's radius.
        strain: the same in the mean square, weighted by the learning rate: a training breaks down beyond some strain.
        lateness: where the ascents lie, from -1 (at the start) to 1 (at the end).
        pair_time: mean time of its pairs in units of a plain step, where the cost is in seconds; None: pairs count.
        params: the parameters as they were sampled; `config_id` is their hash.

    `effect`, `strain` and `lateness` describe any p(t), whatever its family: they are the features of the surrogate.
    """

    family: str
    schedule: Mapping[str, Any]
    extra_propagation: float
    gamma_gnr: float
    gamma_rst: float
    rho: float
    rule: str = "sam"
    rule_options: Mapping[str, Any] = field(default_factory=dict)
    policy: str = "coin"
    policy_options: Mapping[str, Any] = field(default_factory=dict)
    cap: float | None = None
    horizon: float = 1.0
    total_steps: int = 0
    effect: float = 0.0
    strain: float = 0.0
    lateness: float = 0.0
    pair_time: float | None = None
    params: Mapping[str, Any] = field(default_factory=dict)

    @property
    def compute(self) -> float:
        """Expected cost of the training over that of one base-optimizer training of the recipe's length."""
        return self.horizon * (1.0 + self.extra_propagation) * self.pair_weight

    @property
    def cost(self) -> Cost:
        """What `compute` is counted in."""
        return "compute" if self.pair_time is None else "seconds"

    @property
    def pair_weight(self) -> float:
        """The cost of one of its pairs in units of a plain step's."""
        return 1.0 if self.pair_time is None else self.pair_time

    @property
    def ascents(self) -> float:
        """Expected ascents per step: the mean of p(t)."""
        return self.gamma_rst / self.gamma_gnr if self.gamma_gnr else 0.0

    def timed(self, times: RuleTimes | None) -> Self:
        """Return the configuration with its cost in seconds by these times; None: in pairs."""
        if times is None:
            return replace(self, pair_time=None)
        per_step = times.per_step(self.extra_propagation, self.ascents, self.rule)
        return replace(self, pair_time=per_step / (1.0 + self.extra_propagation))

    @cached_property
    def identity(self) -> int:
        """A number that is equal for configurations that train alike, within one process."""
        options = (str(self.rule_options), self.policy, str(self.policy_options), self.cap)
        return hash((str(self.schedule), self.gamma_gnr, self.rho, self.rule, self.horizon, *options))

    @property
    def is_plausible(self) -> bool:
        """Whether the numbers are ones that a search samples: finite, a cost of at least 0, a numeric shape."""
        numbers = [self.extra_propagation, self.gamma_gnr, self.gamma_rst, self.rho, self.horizon, self.pair_weight]
        numbers += [v for v in (*self.params.values(), *self.schedule.values()) if isinstance(v, float)]
        shape = self.params.get("shape")
        return (
            all(map(math.isfinite, numbers))
            and self.extra_propagation >= 0
            and (shape is None or isinstance(shape, int | float))
        )

    @property
    def is_base(self) -> bool:
        """Whether no step is sharpness-aware: the base optimizer alone."""
        return self.gamma_rst == 0.0 or self.rho == 0.0

    @property
    def is_recipe(self) -> bool:
        """Whether it is the base optimizer at the recipe's length."""
        return self.is_base and self.horizon == 1.0

    @property
    def is_sam(self) -> bool:
        """Whether it is plain SAM at the recipe's length and radius: every step, gamma 1, the rule of the SAM paper."""
        always = self.schedule.get("p") == 1.0
        plain = self.rule == "sam" and self.policy == "coin" and self.cap is None and self.horizon == 1.0
        plain = plain and "rho" not in self.params  # a sampled radius is not the recipe's
        return always and plain and abs(self.gamma_gnr - 1.0) < 1e-9

    @property
    def is_baseline(self) -> bool:
        """Whether it is trained in any case, to compare with: the base optimizer at any length, or SAM."""
        return self.is_base or self.is_sam

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return the configuration that `to_dict` wrote; keys of other versions are ignored."""
        known = {f.name for f in fields(cls)}
        return cls(**{name: value for name, value in data.items() if name in known})


@dataclass(frozen=True, kw_only=True)
class SchedulePreview:
    """p(t) and X_t of one training at evenly spaced steps, for figures."""

    curve: tuple[float, ...] = ()
    coins: tuple[float, ...] = ()
