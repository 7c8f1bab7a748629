"""Batches of a run, from memory or from files through DataLoader workers; augmented on the device.

Both sources give the same order and augmentation for the same seed and epoch, from any step on.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from rst_tune.errors import InputError
from rst_tune.training.augment import Draws, crop, cutout, draw_epoch, flip, mixup
from rst_tune.training.data import Dataset, Split
from rst_tune.training.files import ImageFiles, Item
from rst_tune.training.seeds import torch_generator
from rst_tune.training.task import Task

__all__ = ["Batch", "Batches", "Layout", "make_batches"]

CHUNK_VALUES = 2**21
"""Small batches are prepared several at a time, up to this many pixel values."""
RESIDENT_BYTES = 2**31
"""A set up to this size is kept on the device; a larger one is copied batch by batch."""
EVALUATION_IMAGES = 1024


@dataclass(frozen=True)
class Batch:
    """Normalized images and labels; under mixup also the labels of the partners and the weight of the first label."""

    images: Tensor
    labels: Tensor
    partners: Tensor | None = None
    weight: Tensor | None = None

    def take(self, which: Tensor | None) -> "Batch":
        """Return the batch restricted to these indices; None: all."""
        if which is None:
            return self
        partners = None if self.partners is None else self.partners[which]
        return Batch(self.images[which], self.labels[which], partners, self.weight)


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Device and memory format of the batches, and the rank whose slice of each batch is returned."""

    device: torch.device
    channels_last: bool = False
    rank: int = 0
    world: int = 1


class Batches(Protocol):
    """Access of a run to its data."""

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """Yield the training batches of an epoch from step `start` on."""

    def sample(self, count: int) -> Batch:
        """Return a fixed sample of training images, not augmented, with their (noisy) training labels."""

    def evaluation(self, split: Split) -> Iterator[Batch]:
        """Yield the images of a split that belong to this rank, in large batches."""


def make_batches(task: Task, data: Dataset, layout: Layout, seed: int) -> Batches:
    """Return the batches of `task` after checking that batch size and augmentations fit the data."""
    size = task.recipe.batch_size
    if size > len(data.train):
        raise InputError(
            f"`batch_size` must be at most the number of training images ({len(data.train)}), got {size}: "
            "the incomplete last batch of an epoch is dropped; reduce `batch_size`"
        )
    if size % layout.world:
        raise InputError(f"`batch_size` must be a multiple of the {layout.world} processes of the run, got {size}")
    if isinstance(data.train.images, ImageFiles):
        return _FileBatches(task, data, layout, seed)
    if "resized-crop" in task.augment:
        raise InputError("`resized-crop` works on images read from files; use `crop` for data in memory")
    return _MemoryBatches(task, data, layout, seed)


class _Common:
    """Normalization, the draws of an epoch, and augmentation of several batches at once."""

    def __init__(self, task: Task, data: Dataset, layout: Layout, seed: int) -> None:
        self.task, self.data, self.layout, self.seed = task, data, layout, seed
        self.batch_size = task.recipe.batch_size
        self.per_rank = self.batch_size // layout.world
        scale = 1 / (255 * torch.tensor(data.std, device=layout.device))
        self._scale = scale[:, None, None]
        self._shift = (-255 * torch.tensor(data.mean, device=layout.device) * scale)[:, None, None]

    def draws(self, epoch: int) -> Draws:
        """Return the random choices of an epoch."""
        alpha = self.task.recipe.mixup_alpha
        return draw_epoch(
            len(self.data.train),
            self.batch_size,
            self.data.shape,
            self.task.augment,
            mixup_alpha=alpha,
            seed=self.seed,
            epoch=epoch,
        )

    def normalize(self, images: Tensor) -> Tensor:
        """Return float images on the device with mean 0 and standard deviation 1 per channel."""
        values = images.to(self.layout.device, torch.float32, non_blocking=True)
        return torch.addcmul(self._shift, values, self._scale)

    def plain(self, images: Tensor, labels: Tensor) -> Batch:
        """Return a normalized batch without augmentation."""
        return Batch(self._formatted(self.normalize(images)), labels.to(self.layout.device, non_blocking=True))

    def sample_indices(self, count: int) -> Tensor:
        """Return the indices of the fixed sample, the same for every run on this data."""
        total = len(self.data.train)
        return torch.randperm(total, generator=torch_generator("sample"))[: min(count, total)]

    def _formatted(self, images: Tensor) -> Tensor:
        return images.contiguous(memory_format=torch.channels_last) if self.layout.channels_last else images

    def rows(self, first: int, last: int, device: torch.device | None = None) -> Tensor:
        """Return the rows of the epoch's order that belong to this rank, of the batches `first` to `last`."""
        batches = torch.arange(first, last, device=device)[:, None] * self.batch_size
        return (batches + self.layout.rank * self.per_rank + torch.arange(self.per_rank, device=device)).reshape(-1)

    def prepare(self, images: Tensor, labels: Tensor, draws: Draws, rows: Tensor, first: int) -> list[Batch]:
        """Augment and normalize the images of consecutive batches together."""
        if draws.flips is not None:
            images = flip(images, draws.flips[rows])
        if draws.offsets is not None:
            images = crop(images, draws.offsets[rows])
        images = self.normalize(images)
        if draws.centres is not None:
            images = cutout(images, draws.centres[rows], self.task.recipe.cutout_size)
        if draws.weights is None:
            images = self._formatted(images)
            pieces = zip(torch.split(images, self.per_rank), torch.split(labels, self.per_rank), strict=True)
            return [Batch(*each) for each in pieces]
        weights = draws.weights[first : first + len(rows) // self.per_rank]
        stacked = labels.reshape(-1, self.per_rank)
        mixed = mixup(images.reshape(*stacked.shape, *images.shape[1:]), weights).flatten(0, 1)
        pieces = torch.split(self._formatted(mixed), self.per_rank)
        return [Batch(*each) for each in zip(pieces, stacked, stacked.roll(1, dims=1), weights, strict=True)]


class _MemoryBatches(_Common):
    """Batches from tensors, which are kept on the device if small enough."""

    def __init__(self, task: Task, data: Dataset, layout: Layout, seed: int) -> None:
        super().__init__(task, data, layout, seed)
        images = data.train.images
        assert isinstance(images, Tensor)
        resident = images.nbytes <= RESIDENT_BYTES
        self._images = images.to(layout.device) if resident else images
        self._labels = data.train.labels.to(layout.device)
        self._chunk = max(1, CHUNK_VALUES // (self.batch_size * images[0].numel()))

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        draws = self.draws(epoch).to(self.layout.device)
        steps = len(self.data.train) // self.batch_size
        for first in range(start, steps, self._chunk):
            rows = self.rows(first, min(first + self._chunk, steps), self.layout.device)
            indices = draws.order[rows]
            images = self._images[indices.to(self._images.device)].to(self.layout.device, non_blocking=True)
            yield from self.prepare(images, self._labels[indices], draws, rows, first)

    def sample(self, count: int) -> Batch:
        indices = self.sample_indices(count)
        return self.plain(self._images[indices.to(self._images.device)], self._labels[indices.to(self._labels.device)])

    def evaluation(self, split: Split) -> Iterator[Batch]:
        assert isinstance(split.images, Tensor)
        own = slice(self.layout.rank, None, self.layout.world)
        pieces = (torch.split(tensor[own], EVALUATION_IMAGES) for tensor in (split.images, split.labels))
        for images, labels in zip(*pieces, strict=True):
            yield self.plain(images, labels)


class _FileBatches(_Common):
    """Batches from files: worker processes read and crop, the device does the rest."""

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        files = self.data.train.images
        assert isinstance(files, ImageFiles)
        draws = self.draws(epoch)
        on_device = draws.to(self.layout.device)
        steps = range(start, len(self.data.train) // self.batch_size)
        loader = self._loader(files, [self._items(draws, epoch, step) for step in steps])
        for step, images in zip(steps, loader, strict=True):
            rows = self.rows(step, step + 1)
            labels = self.data.train.labels[draws.order[rows]].to(self.layout.device, non_blocking=True)
            images = images.to(self.layout.device, non_blocking=True)
            yield from self.prepare(images, labels, on_device, self.rows(step, step + 1, self.layout.device), step)

    def _items(self, draws: Draws, epoch: int, step: int) -> list[Item]:
        """Return the items of one batch, each with the seed of its crop if crops are random."""
        rows = self.rows(step, step + 1).tolist()
        random = "resized-crop" in self.task.augment
        return [(int(draws.order[row]), (self.seed, epoch, row) if random else None) for row in rows]

    def sample(self, count: int) -> Batch:
        files = self.data.train.images
        assert isinstance(files, ImageFiles)
        indices = self.sample_indices(count)
        images = torch.stack([files.read(index) for index in indices.tolist()])
        return self.plain(images, self.data.train.labels[indices])

    def evaluation(self, split: Split) -> Iterator[Batch]:
        assert isinstance(split.images, ImageFiles)
        indices = torch.split(torch.arange(self.layout.rank, len(split), self.layout.world), self.per_rank)
        items: list[list[Item]] = [[(index, None) for index in some.tolist()] for some in indices]
        for some, images in zip(indices, self._loader(split.images, items), strict=True):
            yield self.plain(images, split.labels[some])

    def _loader(self, files: ImageFiles, items: list[list[Item]]) -> Iterable[Tensor]:
        on_gpu = self.layout.device.type == "cuda"
        # Without its own generator a DataLoader draws from the global random state.
        return DataLoader(
            files,  # type: ignore[arg-type]
            batch_sampler=items,
            num_workers=self.task.data.workers,
            pin_memory=on_gpu,
            generator=torch.Generator().manual_seed(0),
        )
