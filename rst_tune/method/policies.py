"""Policies: what decides X_t, whether an iteration is sharpness-aware, given the probability p(t) of the schedule."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite, sqrt
from statistics import NormalDist
from typing import Any, ClassVar

from rst_tune.errors import InputError
from rst_tune.method import options as _options
from rst_tune.method.coin import toss
from rst_tune.registry import Registry


@dataclass(kw_only=True)
class Policy:
    """Decides X_t. Fields are options; state is saved by `state_dict`."""

    name: ClassVar[str]
    needs_gradient: ClassVar[bool] = False
    """Whether X_t depends on the first gradient, so that every iteration has a synchronized first pass at w."""

    def decide(self, seed: int, t: int, p: float, squared_norm: float = 0.0) -> bool:
        """Return X_t; `squared_norm` is ‖g1‖² if the policy needs the gradient."""
        raise NotImplementedError

    def state_dict(self) -> dict[str, Any]:
        """Return the state that a resumed run needs."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load the state that `state_dict` returned."""


class Coin(Policy):
    """X_t ~ Bernoulli(p(t)), a hash of (seed, t): no state, known before the first pass (Algorithm 1 of RST)."""

    name: ClassVar[str] = "coin"

    def decide(self, seed: int, t: int, p: float, squared_norm: float = 0.0) -> bool:  # noqa: ARG002
        """Return the toss of (seed, t)."""
        return toss(seed, t, p)


@dataclass(kw_only=True)
class GradientNorm(Policy):
    """X_t = 1 where s_t = ‖g1‖² >= mu_t + lambda_t·sigma_t, high against its running mean and deviation.

    mu_t = delta·mu_{t−1} + (1 − delta)·s_t and sigma_t² = delta·sigma_{t−1}² + (1 − delta)·(s_t − mu_t)², as in AE-SAM
    (Jiang, Yang, Zhang and Kwok, ICLR 2023, arXiv 2304.14647), whose lambda_t is a line from 1 to −1 over t. Here the
    schedule keeps its meaning: lambda_t = Φ⁻¹(1 − p(t)), so that X_t = 1 has probability p(t) if s_t is normal with
    this mean and deviation. So the expected cost is that of the coin, and the realized cost is known afterwards only.
    p = 0 is never, p = 1 always. The first step has no deviation yet and is decided by the coin. A norm that is not
    finite gives X_t = 0 and leaves the statistics as they are.

    Reading ‖g1‖ synchronizes with the device once per step.

    Args:
        delta: the decay of the running mean and variance, in (0, 1).
    """

    name: ClassVar[str] = "gradient-norm"
    needs_gradient: ClassVar[bool] = True
    delta: float = 0.9
    _mean: float | None = field(default=None, init=False)
    _variance: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        if not 0.0 < self.delta < 1.0:
            raise InputError(f"0 < delta < 1 must hold for policy 'gradient-norm', but got delta = {self.delta!r}")

    def decide(self, seed: int, t: int, p: float, squared_norm: float = 0.0) -> bool:
        """Update the statistics with ‖g1‖² and return X_t."""
        if not isfinite(squared_norm):
            return False
        first = self._mean is None
        mean = squared_norm if self._mean is None else self._mean
        self._mean = self.delta * mean + (1.0 - self.delta) * squared_norm
        self._variance = self.delta * self._variance + (1.0 - self.delta) * (squared_norm - self._mean) ** 2
        if first or not 0.0 < p < 1.0:
            return toss(seed, t, p)
        return squared_norm >= self._mean + NormalDist().inv_cdf(1.0 - p) * sqrt(self._variance)

    def state_dict(self) -> dict[str, Any]:
        """Return the running mean and variance."""
        return {"mean": self._mean, "variance": self._variance}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load the running mean and variance."""
        self._mean, self._variance = state.get("mean"), float(state.get("variance", 0.0))


POLICIES: Registry[type[Policy]] = Registry("policy")
POLICIES.add("coin", Coin, "X_t ~ Bernoulli(p(t)), known before the first pass", "Zhao, Zhang and Hu, 2022")
POLICIES.add("gradient-norm", GradientNorm, "X_t = 1 where ‖g1‖² is above its running mean", "Jiang et al., ICLR 2023")


def build(name: str, options: Mapping[str, Any] | None = None) -> Policy:
    """Return a fresh policy with its options.

    >>> build("gradient-norm", {"delta": 0.8}).delta
    0.8
    """
    return _options.build(POLICIES, name, options)
