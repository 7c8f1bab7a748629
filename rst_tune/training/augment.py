"""Augmentation of whole batches on the device, and the random draws of one epoch.

The draws are a pure function of (seed, epoch), made once per epoch on the CPU: any batch of any epoch can be
rebuilt without the earlier ones, and the numbers depend neither on the device nor on the number of ranks.
"""

from collections.abc import Collection
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from rst_tune.training.seeds import numpy_generator, torch_generator

PADDING = 4


def flip(images: Tensor, which: Tensor) -> Tensor:
    """Mirror the images where `which` is true, left to right."""
    return torch.where(which[:, None, None, None], images.flip(3), images)


def crop(images: Tensor, offsets: Tensor) -> Tensor:
    """Pad each side by 4 black pixels and crop back, image i at row offsets[i, 0], column offsets[i, 1]."""
    count, _, height, width = images.shape
    padded = functional.pad(images, (PADDING,) * 4)
    rows = offsets[:, 0, None] + torch.arange(height, device=images.device)
    columns = offsets[:, 1, None] + torch.arange(width, device=images.device)
    which = torch.arange(count, device=images.device)
    return padded[which[:, None, None], :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2).contiguous()


def cutout(images: Tensor, centres: Tensor, size: int) -> Tensor:
    """Set a square of side `size` around each centre to 0, the mean after normalization; it may cross the edge."""
    height, width = images.shape[2:]
    low = centres - size // 2
    rows, columns = torch.arange(height, device=images.device), torch.arange(width, device=images.device)
    in_rows = (rows >= low[:, 0, None]) & (rows < low[:, 0, None] + size)
    in_columns = (columns >= low[:, 1, None]) & (columns < low[:, 1, None] + size)
    return images.masked_fill((in_rows[:, :, None] & in_columns[:, None, :])[:, None], 0)


def mixup(images: Tensor, partners: Tensor, weights: Tensor) -> Tensor:
    """Blend images and partners, both (batches, size, ...), with one weight per batch."""
    own = weights.reshape(-1, *(1,) * (images.ndim - 1))
    return own * images + (1 - own) * partners


@dataclass(frozen=True)
class Draws:
    """All random choices in the data of one epoch. Row i belongs to the i-th image of the epoch's order."""

    order: Tensor
    flips: Tensor | None = None
    offsets: Tensor | None = None
    centres: Tensor | None = None
    weights: Tensor | None = None
    """Mixup weights, one per batch."""

    def to(self, device: torch.device) -> "Draws":
        """Return the draws on `device`."""
        return Draws(**{name: None if each is None else each.to(device) for name, each in vars(self).items()})  # type: ignore[arg-type]


def draw_epoch(
    count: int,
    batch_size: int,
    shape: tuple[int, int, int],
    augment: Collection[str],
    *,
    mixup_alpha: float,
    seed: int,
    epoch: int,
) -> Draws:
    """Return order and augmentation of one epoch.

    Each augmentation has its own random stream, so enabling one does not change the draws of the others.
    """
    used = count - count % batch_size
    _, height, width = shape

    def uniform(purpose: str, *size: int) -> Tensor:
        return torch.rand(*size, generator=torch_generator(seed, purpose, epoch))

    def positions(purpose: str, rows: int, columns: int) -> Tensor:
        return (uniform(purpose, used, 2) * torch.tensor([rows, columns])).long()

    blend = numpy_generator(seed, "mixup", epoch).beta(mixup_alpha, mixup_alpha, used // batch_size)
    return Draws(
        order=torch.randperm(count, generator=torch_generator(seed, "order", epoch))[:used],
        flips=uniform("flip", used) < 0.5 if "flip" in augment else None,
        offsets=positions("crop", 2 * PADDING + 1, 2 * PADDING + 1) if "crop" in augment else None,
        centres=positions("cutout", height, width) if "cutout" in augment else None,
        weights=torch.from_numpy(blend).float() if "mixup" in augment else None,
    )
