"""ASAM: the neighbourhood is scaled by the weights, which makes it invariant to a rescaling of layers."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from rst_tune.errors import InputError
from rst_tune.method.ascent.rule import AscentContext, Perturbation, Rule
from rst_tune.method.vectors import ratio


@dataclass(kw_only=True)
class ASAM(Rule):
    """eps = rho · T²g1 / ‖T g1‖ with T = diag(|w| + eta) on weights and the identity elsewhere; g_rule = g2.

    Weights are the parameters with "weight" in their name. Kwon, Kim, Park and Choi, ICML 2021 (rho = 0.5 there).

    Args:
        eta: a lower bound of T.
    """

    name: ClassVar[str] = "asam"
    eta: float = 0.01

    def __post_init__(self) -> None:
        if not self.eta >= 0.0:
            raise InputError(f"eta >= 0 must hold for rule 'asam', but got eta = {self.eta!r}: it is added to |w|")

    @torch.no_grad()
    def perturbation(self, context: AscentContext) -> Perturbation:
        """Return rho · T²g1 / ‖T g1‖."""
        places = [i for i in range(len(context.params)) if "weight" in context.name(i)]
        once, twice = list(context.ascent_grads), list(context.ascent_grads)
        if places:
            scales = torch._foreach_abs([context.params[i] for i in places])
            torch._foreach_add_(scales, self.eta)
            scaled = torch._foreach_mul([context.ascent_grads[i] for i in places], scales)
            scaled_again = torch._foreach_mul(scaled, scales)
            for i, first, second in zip(places, scaled, scaled_again, strict=True):
                once[i], twice[i] = first, second
        return Perturbation(context.params, twice, ratio(context.rho, context.norm(once)))
