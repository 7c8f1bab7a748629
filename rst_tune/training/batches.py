"""Batches for a run: from memory, augmented on the device, or from files through worker processes.

Both give the same order and the same augmentation for the same seed and epoch, from any step on.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from rst_tune.errors import InputError
from rst_tune.training.augment import Draws, crop, cutout, draw_epoch, flip, mixup
from rst_tune.training.data import Dataset, Part
from rst_tune.training.files import ImageFiles, Item
from rst_tune.training.seeds import torch_generator
from rst_tune.training.task import Task

__all__ = ["Batch", "Batches", "Layout", "make_batches"]

CHUNK_VALUES = 2**21
"""Several small batches are prepared at once, up to this many pixel values."""
RESIDENT_BYTES = 2**31
"""A set up to this size lives on the device; a larger one is copied there batch by batch."""
EVALUATION_IMAGES = 1024


@dataclass(frozen=True)
class Batch:
    """Normalized images with their labels; under mixup also the labels of the partners and the weight of the own."""

    images: Tensor
    labels: Tensor
    partners: Tensor | None = None
    weight: Tensor | None = None

    def take(self, which: Tensor | None) -> "Batch":
        """Return these images of the batch; None: all."""
        if which is None:
            return self
        partners = None if self.partners is None else self.partners[which]
        return Batch(self.images[which], self.labels[which], partners, self.weight)


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How batches are laid out: where, in which memory format, and which share of each is this process's."""

    device: torch.device
    channels_last: bool = False
    rank: int = 0
    world: int = 1


class Batches(Protocol):
    """What a run needs of its data."""

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """Yield the training batches of an epoch from step `start` on."""

    def sample(self, count: int) -> Batch:
        """Return a fixed sample of training images, not augmented, with the labels they are trained on."""

    def evaluation(self, part: Part) -> Iterator[Batch]:
        """Yield a whole part in large batches; each process its share."""


def make_batches(task: Task, data: Dataset, layout: Layout, seed: int) -> Batches:
    """Return the batches of `task`, after checking that its sizes and augmentations fit the data."""
    size = task.recipe.batch_size
    if size > len(data.train):
        raise InputError(
            f"`batch_size` must be at most the number of training images ({len(data.train)}), got {size}: "
            "the last, incomplete batch of an epoch is left out"
        )
    if size % layout.world:
        raise InputError(f"`batch_size` must be a multiple of the {layout.world} processes of the run, got {size}")
    if isinstance(data.train.images, ImageFiles):
        return _FileBatches(task, data, layout, seed)
    if "resized-crop" in task.augment:
        raise InputError("`resized-crop` works on images read from files; use `crop` for a set in memory")
    return _MemoryBatches(task, data, layout, seed)


class _Common:
    """Normalization, the draws of an epoch, and what is done to a stack of whole batches."""

    def __init__(self, task: Task, data: Dataset, layout: Layout, seed: int) -> None:
        self.task, self.data, self.layout, self.seed = task, data, layout, seed
        self.batch_size = task.recipe.batch_size
        self.share = self.batch_size // layout.world
        scale = 1 / (255 * torch.tensor(data.std, device=layout.device))
        self._scale = scale[:, None, None]
        self._shift = (-255 * torch.tensor(data.mean, device=layout.device) * scale)[:, None, None]

    def draws(self, epoch: int) -> Draws:
        """Return what is random in an epoch."""
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
        """Return float images on the device, of mean 0 and deviation 1 a channel."""
        values = images.to(self.layout.device, torch.float32, non_blocking=True)
        return torch.addcmul(self._shift, values, self._scale)

    def plain(self, images: Tensor, labels: Tensor) -> Batch:
        """Return a batch that is not augmented."""
        return Batch(self._formatted(self.normalize(images)), labels.to(self.layout.device, non_blocking=True))

    def sample_places(self, count: int) -> Tensor:
        """Return which training images make the fixed sample: the same for every run on this data."""
        total = len(self.data.train)
        return torch.randperm(total, generator=torch_generator("sample"))[: min(count, total)]

    def _formatted(self, images: Tensor) -> Tensor:
        return images.contiguous(memory_format=torch.channels_last) if self.layout.channels_last else images

    def rows(self, first: int, last: int, device: torch.device | None = None) -> Tensor:
        """Return which rows of the epoch's order this process takes of the batches `first` to `last`."""
        batches = torch.arange(first, last, device=device)[:, None] * self.batch_size
        return (batches + self.layout.rank * self.share + torch.arange(self.share, device=device)).reshape(-1)

    def prepare(self, images: Tensor, labels: Tensor, draws: Draws, rows: Tensor, first: int) -> list[Batch]:
        """Augment and normalize the images of consecutive batches, all at once."""
        if draws.flips is not None:
            images = flip(images, draws.flips[rows])
        if draws.offsets is not None:
            images = crop(images, draws.offsets[rows])
        images = self.normalize(images)
        if draws.centres is not None:
            images = cutout(images, draws.centres[rows], self.task.recipe.cutout_size)
        if draws.weights is None:
            images = self._formatted(images)
            pieces = zip(torch.split(images, self.share), torch.split(labels, self.share), strict=True)
            return [Batch(*each) for each in pieces]
        weights = draws.weights[first : first + len(rows) // self.share]
        stacked = labels.reshape(-1, self.share)
        mixed = mixup(images.reshape(*stacked.shape, *images.shape[1:]), weights).flatten(0, 1)
        parts = torch.split(self._formatted(mixed), self.share)
        return [Batch(*each) for each in zip(parts, stacked, stacked.roll(1, dims=1), weights, strict=True)]


class _MemoryBatches(_Common):
    """A set of tensors: small ones live on the device."""

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
            places = draws.order[rows]
            images = self._images[places.to(self._images.device)].to(self.layout.device, non_blocking=True)
            yield from self.prepare(images, self._labels[places], draws, rows, first)

    def sample(self, count: int) -> Batch:
        places = self.sample_places(count)
        return self.plain(self._images[places.to(self._images.device)], self._labels[places.to(self._labels.device)])

    def evaluation(self, part: Part) -> Iterator[Batch]:
        assert isinstance(part.images, Tensor)
        own = slice(self.layout.rank, None, self.layout.world)
        parts = (torch.split(tensor[own], EVALUATION_IMAGES) for tensor in (part.images, part.labels))
        for images, labels in zip(*parts, strict=True):
            yield self.plain(images, labels)


class _FileBatches(_Common):
    """A set of files: worker processes read and crop, the device does the rest."""

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
        """Return the images of one batch, each with the seed of its own crop if crops are random."""
        rows = self.rows(step, step + 1).tolist()
        random = "resized-crop" in self.task.augment
        return [(int(draws.order[row]), (self.seed, epoch, row) if random else None) for row in rows]

    def sample(self, count: int) -> Batch:
        files = self.data.train.images
        assert isinstance(files, ImageFiles)
        places = self.sample_places(count)
        images = torch.stack([files.picture(place) for place in places.tolist()])
        return self.plain(images, self.data.train.labels[places])

    def evaluation(self, part: Part) -> Iterator[Batch]:
        assert isinstance(part.images, ImageFiles)
        places = torch.split(torch.arange(self.layout.rank, len(part), self.layout.world), self.share)
        items: list[list[Item]] = [[(place, None) for place in some.tolist()] for some in places]
        for some, images in zip(places, self._loader(part.images, items), strict=True):
            yield self.plain(images, part.labels[some])

    def _loader(self, files: ImageFiles, items: list[list[Item]]) -> Iterable[Tensor]:
        on_gpu = self.layout.device.type == "cuda"
        # Its own generator: a DataLoader would otherwise draw from the global random state.
        return DataLoader(
            files,  # type: ignore[arg-type]
            batch_sampler=items,
            num_workers=self.task.data.workers,
            pin_memory=on_gpu,
            generator=torch.Generator().manual_seed(0),
        )
