"""Vectors that a rule keeps between iterations: one tensor per parameter index, never replaced by a non-finite one."""

from collections.abc import Sequence
from math import cos, fsum, pi, sin

import torch
from torch import Tensor

from rst_tune.method.vectors import Scale, overflowed

Kept = dict[int, Tensor]


def kept_or_zero(kept: Kept, indices: list[int], like: list[Tensor]) -> list[Tensor]:
    """Return the kept tensors of these parameters, zeros for a parameter without one."""
    return [
        torch.zeros_like(tensor) if i not in kept else kept[i].to(tensor.device)
        for i, tensor in zip(indices, like, strict=True)
    ]


def keep_finite(kept: Kept, indices: list[int], new: list[Tensor], length: Scale) -> None:
    """Keep `new`, whose norm is `length`, unless it overflowed."""
    if overflowed(length):
        return
    if isinstance(length, Tensor):  # an overflow is not read from the device, so entries are selected there
        old = kept_or_zero(kept, indices, new)
        new = [torch.where(n.isfinite(), n, o) for n, o in zip(new, old, strict=True)]
    kept.update(zip(indices, new, strict=True))


def expected_refreshes(p: Sequence[float], every: int) -> float:
    """Return E⌈A/every⌉, where A = ΣX_t is the number of ascents with probabilities p(t).

    A refresh happens at the ascents 1, every + 1, 2·every + 1, …. With ω_j = exp(2πij/every) its expected number is
    (1/every)·(Σp(t) + Σ_{j=1}^{every−1} (Π_t(1 + p(t)(ω_j − 1)) − 1)/(ω_j − 1)).

    >>> expected_refreshes([1.0] * 10, 5), round(expected_refreshes([0.5, 0.5], 2), 6)
    (2.0, 0.75)
    """
    probabilities = torch.tensor(list(p), dtype=torch.float64)
    terms = [fsum(p)]
    for j in range(1, every // 2 + 1):
        step = complex(cos(2 * pi * j / every) - 1.0, sin(2 * pi * j / every))
        term = ((complex(torch.prod(1.0 + probabilities * step)) - 1.0) / step).real
        terms.append(term if 2 * j == every else 2.0 * term)  # the terms j and every − j are conjugate
    return round(fsum(terms) / every, 12)
