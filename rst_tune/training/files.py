"""Images read from files on demand, cropped and resized one by one in DataLoader workers."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from rst_tune.training.seeds import derive

__all__ = ["ImageFiles", "Item"]

Item = tuple[int, object]
"""Index of an image and the seed of its random crop (None: centre crop)."""

RESIZE_MARGIN = 256 / 224
"""For evaluation the short side is resized to this multiple of the centre crop."""


@dataclass(frozen=True)
class ImageFiles:
    """A map-style set of (PIL image, label) whose images are read on demand as uint8 tensors of one size.

    `read` depends on the index and the seed alone, not on the worker process or on earlier reads.
    """

    source: Any
    size: int
    indices: tuple[int, ...] | None = None

    def __len__(self) -> int:
        return len(self.source) if self.indices is None else len(self.indices)

    def __getitem__(self, item: Item) -> Tensor:
        index, seed = item
        return self.read(index, seed)

    def take(self, indices: Sequence[int]) -> "ImageFiles":
        """Return the images at these indices."""
        own = self.indices
        return replace(self, indices=tuple(indices if own is None else (own[index] for index in indices)))

    def read(self, index: int, seed: object = None) -> Tensor:
        """Return one image, (3, size, size): a random resized crop drawn from `seed`, or the centre crop."""
        from torchvision.transforms import v2

        image = self.source[index if self.indices is None else self.indices[index]][0].convert("RGB")
        tensor: Tensor = v2.functional.pil_to_tensor(image)
        if seed is None:
            short_side = round(self.size * RESIZE_MARGIN)
            return v2.CenterCrop(self.size)(v2.Resize(short_side, antialias=True)(tensor))  # type: ignore[no-any-return]
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(derive("resized-crop", seed))
            return v2.RandomResizedCrop(self.size, antialias=True)(tensor)  # type: ignore[no-any-return]
