"""A list of tensors as one long vector: its norm, inner products, and adding a multiple of another one.

A scale is a host float on the CPU and a 0-dim tensor on other devices, so that no step synchronizes with the device.
"""

from math import isfinite, nan, sqrt
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._utils import _flatten_dense_tensors

Scale = float | Tensor
Vector = list[Tensor]

LOW_PRECISION = (torch.float16, torch.bfloat16)
SMALL = 4096  # mean entries per tensor below which the calls cost more than the arithmetic


def is_host(vector: Vector) -> bool:
    """Return whether all entries are on the CPU, where reading a number needs no synchronization."""
    return all(v.device.type == "cpu" for v in vector)


def local(tensor: Tensor) -> Tensor:
    """Return the local shard of a DTensor, and any other tensor as it is."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def norm(vector: Vector, group: Any = None) -> Scale:
    """Return the Euclidean norm over all entries, accumulated in at least single precision.

    With a process group the vector is sharded over its ranks.
    """
    if group is not None:
        return _root(dot(vector, vector, group))
    if not vector:
        return 0.0
    if not is_host(vector):
        return _norm_by_tensor(vector)
    if all(v.dtype == torch.float32 for v in vector) and sum(v.numel() for v in vector) < SMALL * len(vector):
        # Many small tensors: on a CPU one flattened copy is cheaper than one kernel per tensor.
        return float(torch.linalg.vector_norm(_flatten_dense_tensors(vector)))  # type: ignore[no-untyped-call]
    return float(_norm_by_tensor(vector))


def _norm_by_tensor(vector: Vector) -> Tensor:
    low = any(v.dtype in LOW_PRECISION for v in vector)
    parts = torch._foreach_norm(vector, 2, dtype=torch.float32 if low else None)
    total: Tensor = torch.linalg.vector_norm(_together(list(parts)))
    return total


def dot(a: Vector, b: Vector, group: Any = None) -> Scale:
    """Return the inner product over all entries; with a process group the vectors are sharded over its ranks."""
    if not a:
        return 0.0
    products = [torch.dot(_wide(x), _wide(y)) for x, y in zip(a, b, strict=True)]
    total = _together(products).sum()
    if group is not None:
        dist.all_reduce(total, group=group)
    return float(total) if is_host(a) else total


def _root(square: Scale) -> Scale:
    return square.sqrt() if isinstance(square, Tensor) else sqrt(square)


def ratio(numerator: Scale, denominator: Scale) -> Scale:
    """Return numerator / denominator; 0 where the denominator is 0 (no direction), NaN where it is not finite.

    >>> ratio(1.0, 2.0), ratio(1.0, 0.0), ratio(1.0, float("inf"))
    (0.5, 0.0, nan)
    """
    if isinstance(denominator, Tensor):
        quotient = torch.where(torch.isfinite(denominator), numerator / denominator, torch.nan)
        return torch.where(denominator == 0, 0.0, quotient)
    if not isfinite(denominator):
        return nan
    return float(numerator / denominator) if denominator else 0.0


def overflowed(scale: Scale) -> bool:
    """Return whether a host number is not finite. A number on a device counts as finite, to avoid a synchronization."""
    return not isinstance(scale, Tensor) and not isfinite(scale)


def add_(vector: Vector, other: Vector, scale: Scale) -> None:
    """Add scale · other to `vector` in place."""
    if not vector or (isinstance(scale, float) and scale == 0.0):
        return
    if isinstance(scale, Tensor):
        torch._foreach_add_(vector, scaled(other, scale))
    else:
        torch._foreach_add_(vector, other, alpha=scale)


def scaled(vector: Vector, scale: Scale) -> Vector:
    """Return scale · vector; `vector` itself where scale is the number 1."""
    if not isinstance(scale, Tensor):
        return vector if scale == 1.0 or not vector else list(torch._foreach_mul(vector, scale))
    if all(v.device == scale.device for v in vector):
        return list(torch._foreach_mul(vector, scale))
    return [v * scale.to(v.device) for v in vector]


def shorten_(vector: Vector, length: Scale, longest: Scale) -> None:
    """Scale `vector`, whose norm is `length`, in place to the norm `longest` if it is longer and finite."""
    factor = ratio(longest, length)
    if isinstance(factor, Tensor):
        torch._foreach_mul_(vector, factor.clamp(max=1.0))
    elif vector and factor < 1.0:
        torch._foreach_mul_(vector, factor)


def _wide(x: Tensor) -> Tensor:
    flat = x.detach().flatten()
    return flat.float() if flat.dtype in LOW_PRECISION else flat


def _together(scalars: Vector) -> Tensor:
    # Scalars of a model on several devices or of several types are moved to the first one's device.
    first = scalars[0]
    if all(s.device == first.device and s.dtype == first.dtype for s in scalars):
        return torch.stack(scalars)
    return torch.stack([s.to(first.device, torch.float64) for s in scalars])
