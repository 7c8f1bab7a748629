"""The second pass, at w + eps: what it must leave as it was, and the mix of both gradients."""

import torch
from torch import Tensor, nn

from rst_tune.method.ascent.rule import AscentContext, Rule
from rst_tune.method.memory import Buffers, RngState, WeightPerturbation
from rst_tune.method.passes import propagate
from rst_tune.method.vectors import add_, overflowed

__all__ = ["SecondPass"]


class SecondPass:
    """Turns the g1 in `.grad` into g1 + gamma·(g_rule − g1).

    Where g_rule is g2 itself, autograd forms the mix: `.grad` is scaled by 1 − gamma, and the second pass adds the
    gradient of gamma·L. So g1 is never unscaled and, under DDP, exchanged once, together with g2. A rule that projects
    needs both gradients, and they are kept apart.
    """

    def __init__(self, rule: Rule, model: nn.Module, gamma_gnr: float, scaler: torch.amp.GradScaler | None) -> None:
        self.rule, self.model, self.gamma, self.scaler = rule, model, gamma_gnr, scaler
        self._weights = WeightPerturbation()

    def run(self, context: AscentContext, before: RngState) -> float:
        """Take the second pass with the random streams that the first began with; return the pairs it took."""
        after, buffers = RngState(before.devices), Buffers(self.model)
        try:
            pairs = self.rule.prepare(context)
            perturbation = self.rule.perturbation(context)
            overflow = overflowed(perturbation.scale)
            if not overflow:
                self._weights.move(perturbation.params, perturbation.vectors, perturbation.scale)
            # Casts of the weights that an outer autocast has kept are now casts of other weights.
            torch.clear_autocast_cache()
            del perturbation
            g1 = self._set_aside(context, overflow)
            before.restore()
            closures, pairs_of_pass = self.rule.second_closures(context)
            before.restore()
            factor = self.gamma if self.rule.descends_with_g2 else 1.0
            propagate(closures, self.model, scaler=self.scaler, factor=factor)
        finally:
            self._weights.restore()
            buffers.restore()
            after.restore()
            torch.clear_autocast_cache()
        if not self.rule.descends_with_g2 and not overflow:
            self.mix(context, g1, [_gradient_of(p) for p in context.params])
        return pairs + pairs_of_pass

    @torch.no_grad()
    def _set_aside(self, context: AscentContext, overflow: bool) -> list[Tensor]:
        """Leave in `.grad` what the second pass is to be added to, and return g1 where it is needed again."""
        g1, context.g1, context.ascent_grads = context.g1, [], []
        if overflow:
            return []  # g1 stays as it is, so that a gradient scaler finds its inf after the second pass as well
        if self.rule.descends_with_g2 and self.gamma != 1.0:
            add_(g1, g1, -self.gamma)
            return []
        for p in context.params:
            p.grad = None
        if self.rule.descends_with_g2:
            return []
        # Under DDP a gradient may be a view of a bucket that the second pass is going to write into.
        return [g.clone() for g in g1] if getattr(self.model, "gradient_as_bucket_view", False) else g1

    @torch.no_grad()
    def mix(self, context: AscentContext, g1: list[Tensor], g2: list[Tensor] | None) -> None:
        """Set `.grad` to g1 + gamma·(g_rule − g1); g2 is None where the rule needs no second pass this time."""
        g = self.rule.gradient(context, g1, g2)
        if self.gamma != 1.0:
            g = list(torch._foreach_lerp(g1, g, self.gamma))
        for p, gradient in zip(context.params, g, strict=True):
            p.grad = gradient


def _gradient_of(param: Tensor) -> Tensor:
    return torch.zeros_like(param) if param.grad is None else param.grad
