"""S2-SAM: one pass per step, at the weights perturbed along the gradient of the step before."""

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from rst_tune.method.ascent.ahead import AheadRule
from rst_tune.method.ascent.kept import Kept, keep_finite
from rst_tune.method.ascent.rule import AscentContext, Perturbation
from rst_tune.method.vectors import norm, overflowed, ratio


@dataclass(kw_only=True)
class S2SAM(AheadRule):
    """eps_t = rho · g_{t−1}/‖g_{t−1}‖ and g_t = ∇L(w_t + eps_t); the first step has eps = 0.

    g_{t−1} is the gradient of the step before, at w or at w + eps, whichever pass it took, without weight decay; under
    DDP it is the mean over the ranks, so eps is equal on all of them. A gradient that overflowed is not kept: the one
    before it stays. Ji, Li, Fu, Afghah, Guo, Yuan and Ma, NeurIPS 2024 ("single-step SAM"); their code takes two
    passes in the first step instead of eps = 0. AsyncSAM (Jo, Lim and Lee, arXiv 2503.11147) is a relative: there
    g_{t−1} is the gradient at w_{t−1} itself, which a second device computes meanwhile.
    """

    name: ClassVar[str] = "s2sam"
    keeps_vectors: ClassVar[bool] = True
    _last: Kept = field(default_factory=dict, init=False)

    def perturbation(self, context: AscentContext) -> Perturbation:
        """Return rho · g_{t−1}/‖g_{t−1}‖."""
        known = [place for place, index in enumerate(context.indices) if index in self._last]
        params = [context.params[place] for place in known]
        vectors = [self._last[context.indices[place]].to(context.params[place]) for place in known]
        return Perturbation(params, vectors, ratio(context.rho, context.norm(vectors)))

    @torch.no_grad()
    def after_pass(self, indices: list[int], grads: list[Tensor]) -> None:
        """Keep a copy of the gradient: the base optimizer may change it in place."""
        length = norm(grads)
        if isinstance(length, Tensor) or any(index not in self._last for index in indices):
            keep_finite(self._last, indices, [g.clone() for g in grads], length)
        elif not overflowed(length):
            torch._foreach_copy_([self._last[index] for index in indices], grads)
