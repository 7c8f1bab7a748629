"""Seeds and generators as pure functions of a seed and a purpose, independent of earlier draws."""

import hashlib

import numpy as np
import torch


def derive(*parts: object) -> int:
    """Return a 63-bit seed from any values.

    >>> derive(0, "order", 1) == derive(0, "order", 1), derive(0, "order", 1) == derive(0, "order", 2)
    (True, False)
    """
    text = "/".join(map(str, parts)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") >> 1


def torch_generator(*parts: object) -> torch.Generator:
    """Return a torch generator on the CPU, so that the numbers do not depend on the device."""
    return torch.Generator().manual_seed(derive(*parts))


def numpy_generator(*parts: object) -> np.random.Generator:
    """Return a numpy generator seeded from any values."""
    return np.random.default_rng(derive(*parts))


def seed_device(seed: int, device: torch.device) -> None:
    """Seed the generator of dropout on `device` (torch.manual_seed is a hundred times slower)."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)
