"""Randomness as a pure function of a seed and a purpose: nothing depends on what was drawn before."""

import hashlib
from contextlib import AbstractContextManager

import numpy as np
import torch

__all__ = ["derive", "lend_random_state", "numpy_generator", "seed_device", "torch_generator"]


def derive(*parts: object) -> int:
    """Return a 63-bit seed from any values.

    >>> derive(0, "order", 1) == derive(0, "order", 1), derive(0, "order", 1) == derive(0, "order", 2)
    (True, False)
    """
    text = "/".join(map(str, parts)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") >> 1


def torch_generator(*parts: object) -> torch.Generator:
    """Return a torch generator on the CPU, so that every device sees the same numbers."""
    return torch.Generator().manual_seed(derive(*parts))


def numpy_generator(*parts: object) -> np.random.Generator:
    """Return a numpy generator."""
    return np.random.default_rng(derive(*parts))


def seed_device(seed: int, device: torch.device) -> None:
    """Seed the generator that dropout on `device` draws from (torch.manual_seed is a hundred times slower)."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)


def lend_random_state(device: torch.device) -> AbstractContextManager[None]:
    """Return a context after which the global random state is as it was before."""
    return torch.random.fork_rng(devices=[device] if device.type == "cuda" else [])
