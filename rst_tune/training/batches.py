"""Batches of a run, from memory or from files through DataLoader workers; augmented on the device.

Both sources give the same order and augmentation for the same seed and epoch, from any step on.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from rst_tune.errors import InputError
from rst_tune.training.augment import Draws, crop, cutout, draw_epoch, flip, mixup
from rst_tune.training.data import Dataset, Split
from rst_tune.training.files import FileReader, ImageFiles, Item
from rst_tune.training.seeds import torch_generator
from rst_tune.training.task import Task

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


def make_batches(task: Task, data: Dataset, layout: Layout, seed: int) -> "Batches":
    """Return the batches of `task` after checking that batch size and augmentations fit the data."""
    check_batches(task, data, layout.world)
    kind = _FileBatches if isinstance(data.train.images, ImageFiles) else _MemoryBatches
    return kind(task, data, layout, seed)


def check_batches(task: Task, data: Dataset, world: int) -> None:
    """Raise unless batch size and augmentations fit the data and the number of processes."""
    size = task.recipe.batch_size
    if size > len(data.train):
        raise InputError(
            f"`batch_size` must be at most the number of training images ({len(data.train)}), got {size}: "
            "the incomplete last batch of an epoch is dropped; reduce `batch_size`"
        )
    if size % world:
        raise InputError(f"`batch_size` must be a multiple of the {world} processes of the run, got {size}")
    if "resized-crop" in task.augment and not isinstance(data.train.images, ImageFiles):
        raise InputError("`resized-crop` works on images read from files; use `crop` for data in memory")


class Batches(ABC):
    """Access of a run to its data: normalization, the draws of an epoch, augmentation of several batches at once."""

    @abstractmethod
    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """Yield the training batches of an epoch from step `start` on."""

    @abstractmethod
    def sample(self, count: int) -> Batch:
        """Return a fixed sample of training images, not augmented, with their (noisy) training labels."""

    @abstractmethod
    def evaluation(self, split: Split) -> Iterator[Batch]:
        """Yield the images of a split that belong to this rank, in large batches."""

    def __init__(self, task: Task, data: Dataset, layout: Layout, seed: int) -> None:
        self.task, self.data, self.layout, self.seed = task, data, layout, seed
        self.batch_size = task.recipe.batch_size
        self.steps = len(data.train) // self.batch_size
        self.per_rank = self.batch_size // layout.world
        self._halo = int("mixup" in task.augment and layout.world > 1)
        scale = 1 / (255 * torch.tensor(data.std, device=layout.device))
        self._scale = scale[:, None, None]
        self._shift = (-255 * torch.tensor(data.mean, device=layout.device) * scale)[:, None, None]

    def draws(self, epoch: int) -> Draws:
        """Return the random choices of an epoch."""
        sizes = (len(self.data.train), self.batch_size, self.data.shape)
        alpha = self.task.recipe.mixup_alpha
        return draw_epoch(*sizes, self.task.augment, mixup_alpha=alpha, seed=self.seed, epoch=epoch)

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
        """Return the rows of the epoch's order that belong to this rank, of the batches `first` to `last`.

        Under mixup a rank also takes the last row of the rank before it: the partner of its own first image.
        """
        own = torch.arange(-self._halo, self.per_rank, device=device) + self.layout.rank * self.per_rank
        batches = torch.arange(first, last, device=device)[:, None] * self.batch_size
        return (batches + own % self.batch_size).reshape(-1)

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
        return self._mixed(images, labels, draws.weights, first)

    def _mixed(self, images: Tensor, labels: Tensor, weights: Tensor, first: int) -> list[Batch]:
        """Blend each image with the one before it in the global batch, so that ranks do not change the partners.

        The order within a batch is random, so the neighbour is a random partner.
        """
        own, partners = self._neighbours(images)
        own_labels, partner_labels = self._neighbours(labels)
        weights = weights[first : first + len(own)]
        mixed = mixup(own, partners, weights).flatten(0, 1)
        pieces = torch.split(self._formatted(mixed), self.per_rank)
        return [Batch(*each) for each in zip(pieces, own_labels, partner_labels, weights, strict=True)]

    def _neighbours(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Return values as (batches, rank's share, ...), and for each the value before it in the global batch."""
        stacked = values.reshape(-1, self.per_rank + self._halo, *values.shape[1:])
        return (stacked[:, 1:], stacked[:, :-1]) if self._halo else (stacked, stacked.roll(1, dims=1))


class _MemoryBatches(Batches):
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
        for first in range(start, self.steps, self._chunk):
            rows = self.rows(first, min(first + self._chunk, self.steps), self.layout.device)
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


class _FileBatches(Batches):
    """Batches from files: worker processes read and crop, the device does the rest."""

    def __init__(self, task: Task, data: Dataset, layout: Layout, seed: int) -> None:
        super().__init__(task, data, layout, seed)
        self._splits = (data.train, data.validation, data.test)
        files = [split.images for split in self._splits if isinstance(split.images, ImageFiles)]
        self._reader = FileReader(files, workers=task.data.workers, pin_memory=layout.device.type == "cuda")

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        draws = self.draws(epoch)
        on_device = draws.to(self.layout.device)
        step = start
        # An evaluation in the middle of an epoch takes over the workers; reading then starts again at this step.
        while step < self.steps:
            for images in self._reader.read(self._items(draws, epoch, each) for each in range(step, self.steps)):
                rows = self.rows(step, step + 1)
                labels = self.data.train.labels[draws.order[rows]].to(self.layout.device, non_blocking=True)
                images = images.to(self.layout.device, non_blocking=True)
                yield from self.prepare(images, labels, on_device, rows.to(self.layout.device), step)
                step += 1

    def _items(self, draws: Draws, epoch: int, step: int) -> list[Item]:
        """Return the items of one batch, each with the seed of its crop if crops are random."""
        rows = self.rows(step, step + 1)
        indices = draws.order[rows]
        if "resized-crop" not in self.task.augment:
            return _centre_crops(0, indices)
        return [(0, index, (self.seed, epoch, row)) for index, row in zip(indices.tolist(), rows.tolist(), strict=True)]

    def sample(self, count: int) -> Batch:
        files = self.data.train.images
        assert isinstance(files, ImageFiles)
        indices = self.sample_indices(count)
        images = torch.stack([files.read(index) for index in indices.tolist()])
        return self.plain(images, self.data.train.labels[indices])

    def evaluation(self, split: Split) -> Iterator[Batch]:
        number = next(n for n, each in enumerate(self._splits) if each is split)
        own = torch.split(torch.arange(self.layout.rank, len(split), self.layout.world), self.per_rank)
        for some, images in zip(own, self._reader.read(_centre_crops(number, some) for some in own), strict=True):
            yield self.plain(images, split.labels[some])


def _centre_crops(split: int, indices: Tensor) -> list[Item]:
    return [(split, index, None) for index in indices.tolist()]
