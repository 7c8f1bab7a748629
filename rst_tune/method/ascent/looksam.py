"""LookSAM: take the second pass at every k-th ascent and reuse its part orthogonal to g1 in between."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from rst_tune.errors import InputError
from rst_tune.method.ascent.kept import Kept, expected_refreshes, keep_finite
from rst_tune.method.ascent.rule import AscentContext, CountingRule
from rst_tune.method.vectors import add_, overflowed, ratio


@dataclass(kw_only=True)
class LookSAM(CountingRule):
    """Every k-th sharpness-aware iteration g_rule = g2, and g_v = g2 − (⟨g1, g2⟩/‖g1‖²)·g1 is kept.

    In between g_rule = g1 + alpha·(‖g1‖/‖g_v‖)·g_v, without a second pass. Only iterations with X_t = 1 are counted.
    Liu, Mai, Cheng, Chen, Hsieh and You, CVPR 2022.

    Args:
        k: sharpness-aware iterations per second pass.
        alpha: the weight of the kept part.
    """

    name: ClassVar[str] = "looksam"
    keeps_vectors: ClassVar[bool] = True
    descends_with_g2: ClassVar[bool] = False
    k: int = 5
    alpha: float = 0.7
    # g_v / ‖g_v‖ by the index of the parameter. Only the direction is used, so the loss scale cancels.
    _direction: Kept = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        if isinstance(self.k, bool) or not isinstance(self.k, int) or self.k < 1:
            raise InputError(f"k >= 1 must hold for rule 'looksam', but got k = {self.k!r}: 1 is SAM")
        if not self.alpha >= 0.0:
            raise InputError(f"alpha >= 0 must hold for rule 'looksam', but got alpha = {self.alpha!r}")

    def expected_pairs(self, p: Sequence[float], batch_size: int | None = None) -> float:  # noqa: ARG002
        """Return the expected number of k-th ascents, about 1/k per ascent."""
        return expected_refreshes(p, self.k)

    def second_pass_due(self) -> bool:
        """Return whether this is a k-th sharpness-aware iteration."""
        return self._count % self.k == 0

    def gradient(self, context: AscentContext, g1: list[Tensor], g2: list[Tensor] | None) -> list[Tensor]:
        """Return g2, or g1 with the kept direction added."""
        if g2 is not None:
            self._keep(context, g1, g2)
            return g2
        g = [gradient.clone() for gradient in g1]
        known = [place for place, index in enumerate(context.indices) if index in self._direction]
        kept = [self._direction[context.indices[place]].to(g[place].device) for place in known]
        length = context.norm(g1)
        if not overflowed(length):
            add_([g[place] for place in known], kept, self.alpha * length)
        return g

    def _keep(self, context: AscentContext, g1: list[Tensor], g2: list[Tensor]) -> None:
        along = ratio(context.dot(g1, g2), context.dot(g1, g1))
        if overflowed(along):
            return
        g_v = [g.clone() for g in g2]
        add_(g_v, g1, -along)
        length = context.norm(g_v)
        if overflowed(length):
            return
        self._direction = {i: v for i, v in self._direction.items() if i in context.indices}
        keep_finite(self._direction, context.indices, list(torch._foreach_mul(g_v, ratio(1.0, length))), length)
