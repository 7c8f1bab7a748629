"""GSAM: descend with g2 minus the part of g1 orthogonal to it, which reduces the surrogate gap."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from rst_tune.errors import InputError
from rst_tune.method.ascent.rule import AscentContext, Perturbation, Rule
from rst_tune.method.vectors import add_, ratio


@dataclass(kw_only=True)
class GSAM(Rule):
    """g_rule = g2 − alpha·(g1 − (⟨g1, g2⟩/‖g2‖²)·g2); eps = rho_t · g1/‖g1‖.

    rho_t = rho_min + (rho − rho_min)(lr_t − lr_min)/(lr_max − lr_min) follows the learning rate of the first group when
    rho_min is given, and is rho otherwise. Zhuang et al., ICLR 2022.

    Args:
        alpha: the weight of the orthogonal part.
        rho_min: the radius at lr_min.
        lr_min: the lowest learning rate of the schedule.
        lr_max: the highest.
    """

    name: ClassVar[str] = "gsam"
    descends_with_g2: ClassVar[bool] = False
    alpha: float = 0.4
    rho_min: float | None = None
    lr_min: float = 0.0
    lr_max: float | None = None

    def __post_init__(self) -> None:
        if not self.alpha >= 0.0:
            raise InputError(f"alpha >= 0 must hold for rule 'gsam', but got alpha = {self.alpha!r}")
        if self.rho_min is not None and not (self.lr_max is not None and self.lr_max > self.lr_min):
            raise InputError(
                f"lr_max > lr_min must hold for rule 'gsam' with rho_min, but got lr_max = {self.lr_max!r}, "
                f"lr_min = {self.lr_min!r}: rho follows the learning rate between them"
            )

    def _rho(self, context: AscentContext) -> float:
        if self.rho_min is None or self.lr_max is None:
            return context.rho
        rho = self.rho_min + (context.rho - self.rho_min) * (context.lr - self.lr_min) / (self.lr_max - self.lr_min)
        if rho < 0.0:
            raise InputError(f"rho_t >= 0 must hold, but rule 'gsam' got {rho!r} at lr = {context.lr!r}: lower lr_min")
        return rho

    def perturbation(self, context: AscentContext) -> Perturbation:
        """Return rho_t · g1 / ‖g1‖."""
        grads = context.ascent_grads
        return Perturbation(context.params, grads, ratio(self._rho(context), context.norm(grads)))

    def gradient(self, context: AscentContext, g1: list[Tensor], g2: list[Tensor] | None) -> list[Tensor]:
        """Return g2 − alpha · (the part of g1 orthogonal to g2)."""
        assert g2 is not None
        along = ratio(context.dot(g1, g2), context.dot(g2, g2))
        g = list(torch._foreach_mul(g2, 1.0 + self.alpha * along))
        add_(g, g1, -self.alpha)
        return g
