"""Passes at w + eps: the second pass of a rule and its mix with g1, and the only pass of a rule that passes ahead."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from rst_tune.method.ascent.rule import AscentContext, Closure, Rule
from rst_tune.method.memory import Buffers, RngState, WeightPerturbation
from rst_tune.method.passes import Passes, is_distributed, mean_over_ranks
from rst_tune.method.vectors import add_, local, overflowed


class PerturbedPass:
    """Takes passes at w + eps and leaves the step's gradient in `.grad`.

    Where g_rule is g2 itself, autograd forms the mix: `.grad` is scaled by 1 − gamma, and the second pass adds the
    gradient of gamma·L. So g1 is never unscaled and, under DDP, exchanged once, together with g2. A rule that projects
    needs both gradients, as does a closure that calls backward itself: then they are kept apart.
    """

    def __init__(self, rule: Rule, passes: Passes, gamma_gnr: float, *, local_eps: bool) -> None:
        self.rule, self.passes, self.gamma, self.local_eps = rule, passes, gamma_gnr, local_eps
        self._weights = WeightPerturbation()

    def ahead(self, context: AscentContext, closures: Sequence[Closure]) -> list[Tensor]:
        """Take the only pass of a step at w + eps and return its losses."""
        with self._perturbed(context):
            return self.passes.first(closures, context.all_params)

    def second(self, context: AscentContext, before: RngState) -> float:
        """Take the second pass with the random numbers of the first; return the pairs it took."""
        after, buffers = RngState(before.devices), Buffers(context.model)
        try:
            pairs = self.rule.prepare(context)
            with self._perturbed(context) as overflow:
                g1 = self._set_aside(context, overflow)
                before.restore()
                closures, pairs_of_pass = self.rule.second_closures(context)
                before.restore()
                unseen = context.all_params if context.losses else ()
                self.passes.second(closures, self.gamma if self._autograd_mixes else 1.0, unseen)
        finally:
            buffers.restore()
            after.restore()
        if g1:
            g2 = [torch.zeros_like(local(p)) if p.grad is None else local(p.grad) for p in context.targets]
            self.mix(context, g1, g2)
        return pairs + pairs_of_pass

    @property
    def _autograd_mixes(self) -> bool:
        return self.rule.descends_with_g2 and not self.passes.closure_runs_backward

    @contextmanager
    def _perturbed(self, context: AscentContext) -> Iterator[bool]:
        """Set the weights to w + eps; yield whether eps overflowed, in which case they stay at w."""
        perturbation = self.rule.perturbation(context)
        overflow = overflowed(perturbation.scale)
        try:
            if not overflow:
                self._weights.move(perturbation.params, perturbation.vectors, perturbation.scale)
            # An outer autocast caches casts of the weights, which are now casts of other weights.
            torch.clear_autocast_cache()
            del perturbation
            yield overflow
        finally:
            self._weights.restore()
            torch.clear_autocast_cache()

    @torch.no_grad()
    def _set_aside(self, context: AscentContext, overflow: bool) -> list[Tensor]:
        """Leave in `.grad` what the second pass is to be added to, and return g1 if the mix needs it."""
        g1, context.g1, context.ascent_grads = context.g1, [], []
        if overflow and not self.passes.closure_runs_backward:
            return []  # g1 stays in .grad, so that a gradient scaler finds its inf after the second pass as well
        if self._autograd_mixes and self.gamma != 1.0:
            add_(g1, g1, -self.gamma)
            return []
        for p in context.targets:
            p.grad = None
        if self.rule.descends_with_g2 and self.gamma == 1.0:
            return []
        if self.local_eps and is_distributed(context.model):
            mean_over_ranks(g1)
        # Under DDP a gradient may be a view of a bucket that the second pass writes into.
        return [g.clone() for g in g1] if getattr(context.model, "gradient_as_bucket_view", False) else g1

    @torch.no_grad()
    def mix(self, context: AscentContext, g1: list[Tensor], g2: list[Tensor] | None) -> None:
        """Set `.grad` to g1 + gamma·(g_rule − g1); g2 is None if no second pass was due."""
        g = self.rule.gradient(context, g1, g2)
        if self.gamma != 1.0:
            g = list(torch._foreach_lerp(g1, g, self.gamma))
        for p, gradient in zip(context.targets, g, strict=True):
            if hasattr(p, "to_local") and p.grad is not None:
                local(p.grad).copy_(gradient)  # the gradient of a sharded parameter is sharded, too
            else:
                p.grad = gradient
