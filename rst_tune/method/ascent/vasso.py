"""VASSO: the ascent follows a running mean of the gradients, which has less variance than one of them."""

from dataclasses import dataclass, field
from typing import ClassVar

import torch

from rst_tune.method.ascent.kept import Kept, keep_finite
from rst_tune.method.ascent.rule import AscentContext, CountingRule, Perturbation
from rst_tune.method.vectors import ratio, scaled


@dataclass(kw_only=True)
class VASSO(CountingRule):
    """d_t = (1 − theta)·d_{t−1} + theta·g1, eps = rho · d_t/‖d_t‖, d_1 = g1; g_rule = g2.

    d is updated in sharpness-aware iterations, since those with X_t = 0 do no extra work. theta = 1 is SAM.
    The start is that of the authors' code. Li and Giannakis, NeurIPS 2023, arXiv 2309.15639.

    Args:
        theta: the weight of the newest gradient, in (0, 1].
    """

    name: ClassVar[str] = "vasso"
    keeps_vectors: ClassVar[bool] = True
    theta: float = 0.4
    _mean: Kept = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._check_share("theta")

    @torch.no_grad()
    def perturbation(self, context: AscentContext) -> Perturbation:
        """Update the mean and return rho · d/‖d‖."""
        grads = scaled(context.ascent_grads, 1.0 / context.loss_scale)
        start = Kept() if self._count == 0 else self._mean
        old = [start.get(i, g).to(g.device) for i, g in zip(context.indices, grads, strict=True)]
        mean = list(torch._foreach_lerp(old, grads, self.theta))
        length = context.norm(mean)
        keep_finite(self._mean, context.indices, mean, length)
        return Perturbation(context.params, mean, ratio(context.rho, length))
