"""SSAM: perturb a part of the entries only, those that matter by Fisher information or by a mask that moves."""

from dataclasses import dataclass, field
from math import cos, pi
from typing import Any, ClassVar

import torch
from torch import Tensor

from rst_tune.errors import InputError, unknown_name
from rst_tune.method.ascent.fisher import fisher_information
from rst_tune.method.ascent.rule import Moment, Perturbation, Rule, in_unit
from rst_tune.method.coin import hash64
from rst_tune.method.vectors import norm, ratio

__all__ = ["SSAM"]

MASKS = ("fisher", "dynamic")


@dataclass(kw_only=True)
class SSAM(Rule):
    """eps = rho · m⊙g1/‖g1‖ with a mask m that leaves out the share `sparsity` of all entries; g_rule = g2.

    Fisher: m keeps the entries with the largest Σ_i (∂ℓ_i)² over some samples, which needs step(closure, per_sample=…);
    their passes are counted as they happen. Dynamic: m starts at random; a refresh drops drop·(1 + cos(πt/T))/2
    of the live entries, those with the smallest |g1|, and grows as many dead ones at random (or as many as are dead).
    Frozen parameters are not counted. Mi et al., NeurIPS 2022.

    Args:
        mask: "fisher" or "dynamic".
        sparsity: the share of entries that is not perturbed.
        samples: how many samples of the batch the Fisher mask looks at; a smaller batch gives all it has.
        every: after how many sharpness-aware iterations the mask is refreshed.
        drop: the largest share of live entries that a refresh of the dynamic mask replaces.
    """

    name: ClassVar[str] = "ssam"
    mask: str = "fisher"
    sparsity: float = 0.5
    samples: int = 128
    every: int = 100
    drop: float = 0.5
    _count: int = field(default=0, init=False)
    _masks: dict[int, Tensor] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        if self.mask not in MASKS:
            raise unknown_name("mask of rule ssam", self.mask, MASKS)
        in_unit("ssam", "sparsity", self.sparsity, above_zero=False)
        in_unit("ssam", "drop", self.drop)
        for name in ("samples", "every"):
            if not isinstance(getattr(self, name), int) or getattr(self, name) < 1:
                raise InputError(f"{name} >= 1 must hold for rule 'ssam', but got {name} = {getattr(self, name)!r}")

    @property
    def shared(self) -> bool:
        """The mask is kept, so it has to be the same on all ranks."""
        return True

    def _refresh_due(self) -> bool:
        return self._count % self.every == 0

    def losses_due(self) -> bool:
        """Return whether the Fisher mask is to be refreshed."""
        return self.mask == "fisher" and self._refresh_due()

    def prepare(self, moment: Moment) -> float:
        """Refresh the mask when it is due."""
        if not self._refresh_due():
            return 0.0
        if self.mask == "fisher":
            information, pairs = fisher_information(moment, self.samples)
            self._set(moment, _largest(information, self._live(information)))
            return pairs
        self._set(moment, self._moved(moment) if self._masks else self._random(moment))
        return 0.0

    @torch.no_grad()
    def perturbation(self, moment: Moment) -> Perturbation:
        """Return rho · m⊙g1 / ‖g1‖."""
        masks = [self._mask(index, p) for index, p in zip(moment.indices, moment.params, strict=True)]
        vectors = [g * mask for g, mask in zip(moment.up, masks, strict=True)]
        return Perturbation(moment.params, vectors, ratio(moment.rho, norm(moment.up)))

    def ended(self) -> None:
        """Count one sharpness-aware iteration."""
        self._count += 1

    def state_dict(self) -> dict[str, Any]:
        """Return the count and the masks."""
        return {"count": self._count, "masks": dict(self._masks)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up the count and the masks."""
        self._count, self._masks = int(state["count"]), dict(state["masks"])

    def _live(self, flat: Tensor) -> int:
        return round((1.0 - self.sparsity) * flat.numel())

    def _set(self, moment: Moment, flat: Tensor) -> None:
        members = _members(moment)
        parts = torch.split(flat, [p.numel() for p in members.values()])
        self._masks = {i: part.view(p.shape) for (i, p), part in zip(members.items(), parts, strict=True)}

    def _mask(self, index: int, param: Tensor) -> Tensor:
        # A parameter that was frozen at the last refresh has no mask yet, and is perturbed whole until the next.
        mask = self._masks.get(index)
        return torch.ones_like(param, dtype=torch.bool) if mask is None else mask.to(param.device)

    def _random(self, moment: Moment) -> Tensor:
        total = sum(p.numel() for p in _members(moment).values())
        flat = torch.zeros(total, dtype=torch.bool)
        flat[torch.randperm(total, generator=_generator(moment))[: self._live(flat)]] = True
        return flat

    @torch.no_grad()
    def _moved(self, moment: Moment) -> Tensor:
        flat = torch.cat([self._mask(i, p).flatten().cpu() for i, p in _members(moment).items()])
        live, dead = flat.nonzero().flatten(), (~flat).nonzero().flatten()
        rate = self.drop * (1.0 + cos(pi * moment.t / moment.T)) / 2.0
        moving = min(int(rate * len(live)), len(dead))
        size = _flat_gradient(moment).abs()
        flat[live[size[live].topk(moving, largest=False).indices]] = False
        flat[dead[torch.randperm(len(dead), generator=_generator(moment))[:moving]]] = True
        return flat


def _members(moment: Moment) -> dict[int, Tensor]:
    return {i: p for i, p in enumerate(moment.everything) if p.requires_grad}


def _generator(moment: Moment) -> torch.Generator:
    # One generator a refresh, seeded by (seed, t), on the CPU: the same mask on every rank, device and resumed run.
    return torch.Generator().manual_seed(hash64(moment.seed, moment.t) >> 1)


def _largest(values: Tensor, count: int) -> Tensor:
    flat = torch.zeros(values.numel(), dtype=torch.bool, device=values.device)
    flat[values.topk(count).indices] = True
    return flat


def _flat_gradient(moment: Moment) -> Tensor:
    g1 = dict(zip(moment.indices, moment.g1, strict=True))
    return torch.cat([g1.get(i, torch.zeros_like(p)).flatten().float().cpu() for i, p in _members(moment).items()])
