"""ESAM: perturb a random subset of the tensors, and take the second pass on the samples whose loss rose most."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil
from typing import ClassVar

import torch
from torch import Tensor

from rst_tune.method.ascent.rule import PAIRS_OF_A_FORWARD, AscentContext, Closure, PerSample, Perturbation, Rule
from rst_tune.method.coin import uniform
from rst_tune.method.vectors import ratio


@dataclass(kw_only=True)
class ESAM(Rule):
    """Weight part: each tensor is chosen with probability beta, and eps = (rho/beta)·g1/‖g1‖ on the chosen ones.

    Data part: a forward pass at w + eps, then the second pass on the share gamma of the samples whose loss rose most.
    It needs step(closure, per_sample=…); gamma = 1 has no data part. ‖g1‖ is over all tensors, so
    the mean of eps is that of SAM. A forward pass counts as a third of a pair, the second pass as its share of the
    samples. Du et al., ICLR 2022.

    Args:
        beta: the probability of a tensor.
        gamma: the share of samples.
    """

    name: ClassVar[str] = "esam"
    beta: float = 0.6
    gamma: float = 0.5

    def __post_init__(self) -> None:
        self._check_share("beta")
        self._check_share("gamma")

    def expected_pairs(self, p: Sequence[float], batch_size: int | None = None) -> float:
        """Return 1/3 + gamma per ascent, or 1 without the data part; gamma·batch_size is rounded up."""
        if not self.needs_sample_losses():
            return super().expected_pairs(p, batch_size)
        share = self.gamma if batch_size is None else ceil(self.gamma * batch_size) / batch_size
        return super().expected_pairs(p) * (PAIRS_OF_A_FORWARD + share)

    def needs_sample_losses(self) -> bool:
        """Return whether there is a data part."""
        return self.gamma < 1.0

    def perturbation(self, context: AscentContext) -> Perturbation:
        """Return (rho/beta)·g1/‖g1‖ on the tensors chosen by a coin of (seed, t, index)."""
        chosen = [k for k, index in enumerate(context.indices) if uniform(context.seed, context.t, index) < self.beta]
        params, vectors = [context.params[k] for k in chosen], [context.ascent_grads[k] for k in chosen]
        return Perturbation(params, vectors, ratio(context.rho / self.beta, context.norm(context.ascent_grads)))

    def second_closures(self, context: AscentContext) -> tuple[Sequence[Closure], float]:
        """Return the mean loss of the samples whose loss rose most, and the pairs of choosing and using them."""
        if not self.needs_sample_losses():
            return super().second_closures(context)
        parts = list(zip(context.per_sample or (), context.losses, strict=True))
        chosen = [self._worst(losses, before) for losses, before in parts]
        share = sum(len(indices) for indices in chosen) / sum(len(before) for _, before in parts)
        closures = [partial(_mean_of, losses, indices) for (losses, _), indices in zip(parts, chosen, strict=True)]
        return closures, PAIRS_OF_A_FORWARD + share

    @torch.no_grad()
    def _worst(self, losses: PerSample, before: Tensor) -> Tensor:
        rise = losses(None) - before
        torch.clear_autocast_cache()  # in older torch an outer autocast keeps casts made without a graph
        return rise.topk(ceil(self.gamma * len(rise))).indices.sort().values


def _mean_of(losses: PerSample, indices: Tensor) -> Tensor:
    return losses(indices).mean()
