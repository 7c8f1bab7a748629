"""Images that stay files: read, cropped and resized one by one, in worker processes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from rst_tune.training.seeds import derive

__all__ = ["ImageFiles", "Item"]

Item = tuple[int, object]
"""Which image, and the seed of its random crop (None: the centre)."""

RESIZE_MARGIN = 256 / 224
"""For evaluation the short side becomes this much larger than the crop from the centre."""


@dataclass(frozen=True)
class ImageFiles:
    """A map-style set of (picture, label) whose pictures are read on demand as uint8 tensors of one size.

    `picture` depends on the place and the seed alone: not on the worker that reads it, nor on what it read before.
    """

    source: Any
    size: int
    places: tuple[int, ...] | None = None

    def __len__(self) -> int:
        return len(self.source) if self.places is None else len(self.places)

    def __getitem__(self, item: Item) -> Tensor:
        place, seed = item
        return self.picture(place, seed)

    def take(self, places: Sequence[int]) -> "ImageFiles":
        """Return the images at these places."""
        own = self.places
        return replace(self, places=tuple(places if own is None else (own[place] for place in places)))

    def picture(self, place: int, seed: object = None) -> Tensor:
        """Return one image, (3, size, size): a random resized crop drawn from `seed`, or the centre."""
        from torchvision.transforms import v2

        image = self.source[place if self.places is None else self.places[place]][0].convert("RGB")
        tensor: Tensor = v2.functional.pil_to_tensor(image)
        if seed is None:
            short_side = round(self.size * RESIZE_MARGIN)
            return v2.CenterCrop(self.size)(v2.Resize(short_side, antialias=True)(tensor))  # type: ignore[no-any-return]
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(derive("resized-crop", seed))
            return v2.RandomResizedCrop(self.size, antialias=True)(tensor)  # type: ignore[no-any-return]
