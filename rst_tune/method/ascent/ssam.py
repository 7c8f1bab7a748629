"""SSAM: perturb a subset of the entries, chosen by Fisher information or by a dynamic mask."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import cos, pi
from typing import ClassVar

import torch
from torch import Tensor

from rst_tune.errors import InputError, unknown_name
from rst_tune.method.ascent.fisher import fisher_information
from rst_tune.method.ascent.kept import expected_refreshes
from rst_tune.method.ascent.rule import AscentContext, CountingRule, Perturbation
from rst_tune.method.coin import hash64
from rst_tune.method.vectors import ratio

MASKS = ("fisher", "dynamic")


@dataclass(kw_only=True)
class SSAM(CountingRule):
    """eps = rho · m⊙g1/‖g1‖ with a mask m that is 0 on the share `sparsity` of all entries; g_rule = g2.

    Fisher: m keeps the entries with the largest Σ_i (∂ℓ_i)² over some samples, which needs step(closure, per_sample=…);
    their passes count min(samples, batch)/batch pairs per refresh. Dynamic: m starts at random; a refresh drops
    drop·(1 + cos(πt/T))/2 of the live entries, those with the smallest |g1|, and grows as many dead ones at random (or
    as many as are dead).
    Frozen parameters are not counted. Mi et al., NeurIPS 2022.

    Args:
        mask: "fisher" or "dynamic".
        sparsity: the share of entries that is not perturbed.
        samples: the samples of the batch that the Fisher mask uses; all of a smaller batch.
        every: sharpness-aware iterations per refresh of the mask.
        drop: the largest share of live entries that a refresh of the dynamic mask replaces.
    """

    name: ClassVar[str] = "ssam"
    keeps_vectors: ClassVar[bool] = True
    mask: str = "fisher"
    sparsity: float = 0.5
    samples: int = 128
    every: int = 100
    drop: float = 0.5
    _masks: dict[int, Tensor] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        if self.mask not in MASKS:
            raise unknown_name("mask of rule ssam", self.mask, MASKS)
        self._check_share("sparsity", above_zero=False)
        self._check_share("drop")
        for name in ("samples", "every"):
            if not isinstance(getattr(self, name), int) or getattr(self, name) < 1:
                raise InputError(f"{name} >= 1 must hold for rule 'ssam', but got {name} = {getattr(self, name)!r}")

    def expected_pairs(self, p: Sequence[float], batch_size: int | None = None) -> float:
        """Return 1 per ascent, and for the Fisher mask min(samples, batch_size)/batch_size per refresh.

        Without batch_size the cost of the refreshes is unknown and not included.
        """
        if self.mask != "fisher" or batch_size is None:
            return super().expected_pairs(p)
        share = min(self.samples, batch_size) / batch_size
        return super().expected_pairs(p) + share * expected_refreshes(p, self.every)

    def _refresh_due(self) -> bool:
        return self._count % self.every == 0

    def needs_sample_losses(self) -> bool:
        """Return whether the Fisher mask is to be refreshed."""
        return self.mask == "fisher" and self._refresh_due()

    def prepare(self, context: AscentContext) -> float:
        """Refresh the mask if that is due, and return the pairs it took."""
        if not self._refresh_due():
            return 0.0
        if self.mask == "fisher":
            information, pairs = fisher_information(context, self.samples)
            largest = torch.zeros_like(information, dtype=torch.bool)
            largest[information.topk(self._live(information)).indices] = True
            self._set(context, largest)
            return pairs
        self._set(context, self._moved(context) if self._count else self._random(context))
        return 0.0

    @torch.no_grad()
    def perturbation(self, context: AscentContext) -> Perturbation:
        """Return rho · m⊙g1 / ‖g1‖."""
        masks = [self._mask(index, p) for index, p in zip(context.indices, context.params, strict=True)]
        vectors = [g * mask for g, mask in zip(context.ascent_grads, masks, strict=True)]
        return Perturbation(context.params, vectors, ratio(context.rho, context.norm(context.ascent_grads)))

    def unset(self, param: Tensor) -> Tensor:
        """Return a mask of ones: a parameter that was frozen at the last refresh is perturbed until the next."""
        return torch.ones_like(param, dtype=torch.bool, requires_grad=False)

    def _live(self, flat: Tensor) -> int:
        return round((1.0 - self.sparsity) * flat.numel())

    def _set(self, context: AscentContext, flat: Tensor) -> None:
        members = _members(context)
        parts = torch.split(flat, [p.numel() for p in members.values()])
        self._masks = {i: part.view(p.shape) for (i, p), part in zip(members.items(), parts, strict=True)}

    def _mask(self, index: int, param: Tensor) -> Tensor:
        return self._masks[index].to(param.device) if index in self._masks else self.unset(param)

    def _random(self, context: AscentContext) -> Tensor:
        total = sum(p.numel() for p in _members(context).values())
        flat = torch.zeros(total, dtype=torch.bool)
        flat[torch.randperm(total, generator=_generator(context))[: self._live(flat)]] = True
        return flat

    @torch.no_grad()
    def _moved(self, context: AscentContext) -> Tensor:
        members, g1 = _members(context), dict(zip(context.indices, context.g1, strict=True))
        flat = torch.cat([self._mask(i, p).flatten().cpu() for i, p in members.items()])
        gradient = torch.cat([g1.get(i, torch.zeros_like(p)).flatten().float().cpu() for i, p in members.items()])
        live, dead = flat.nonzero().flatten(), (~flat).nonzero().flatten()
        rate = self.drop * (1.0 + cos(pi * context.t / context.T)) / 2.0
        moving = min(int(rate * len(live)), len(dead))
        flat[live[gradient.abs()[live].topk(moving, largest=False).indices]] = False
        flat[dead[torch.randperm(len(dead), generator=_generator(context))[:moving]]] = True
        return flat


def _members(context: AscentContext) -> dict[int, Tensor]:
    return {i: p for i, p in enumerate(context.all_params) if p.requires_grad}


def _generator(context: AscentContext) -> torch.Generator:
    # One generator per refresh, seeded by (seed, t), on the CPU: equal masks on all ranks, devices and resumed runs.
    return torch.Generator().manual_seed(hash64(context.seed, context.t) >> 1)
