"""F-SAM: the ascent follows the noise of the gradient, what is left after its running mean is subtracted."""

from dataclasses import dataclass, field
from typing import ClassVar

import torch

from rst_tune.errors import InputError
from rst_tune.method.ascent.kept import Kept, keep_finite, kept_or_zero
from rst_tune.method.ascent.rule import AscentContext, Perturbation, Rule
from rst_tune.method.vectors import ratio, scaled


@dataclass(kw_only=True)
class FSAM(Rule):
    """m_t = lam·m_{t−1} + (1 − lam)·g1, d_t = g1 − sigma·m_t, eps = rho · d_t/‖d_t‖, m_0 = 0; g_rule = g2.

    m estimates the full gradient, d is the noise of the batch. m is updated in sharpness-aware iterations, since those
    with X_t = 0 do no extra work. The authors' code subtracts m_{t−1} instead and starts at m_1 = g1; for sigma = 1
    both give the same direction, up to the start, which decays as lam^t. Li, Zhou, He, Cheng and Huang, CVPR
    2024, arXiv 2403.12350.

    Args:
        sigma: the share of the mean that is subtracted; 0 is SAM.
        lam: the decay of the mean, in [0, 1).
    """

    name: ClassVar[str] = "fsam"
    keeps_vectors: ClassVar[bool] = True
    sigma: float = 1.0
    lam: float = 0.9
    _mean: Kept = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._check_share("lam", above_zero=False)
        if not self.sigma >= 0.0:
            raise InputError(f"sigma >= 0 must hold for rule 'fsam', but got sigma = {self.sigma!r}: 0 is SAM")

    @torch.no_grad()
    def perturbation(self, context: AscentContext) -> Perturbation:
        """Update the mean and return rho · d/‖d‖."""
        grads = scaled(context.ascent_grads, 1.0 / context.loss_scale)
        old = kept_or_zero(self._mean, context.indices, grads)
        mean = list(torch._foreach_lerp(old, grads, 1.0 - self.lam))
        noise = list(torch._foreach_add(grads, mean, alpha=-self.sigma))
        keep_finite(self._mean, context.indices, mean, context.norm(mean))
        return Perturbation(context.params, noise, ratio(context.rho, context.norm(noise)))
