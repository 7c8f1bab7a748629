"""Reads batches of image files in DataLoader workers that are started once per run."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from rst_tune.errors import InputError
from rst_tune.training.files import ImageFiles, UnreadableError

Item = tuple[int, int, object]
"""Number of the split, index in the split, seed of the random crop (None: centre crop)."""


class FileReader:
    """One DataLoader over several sets of files. Its workers are reused by every epoch and every evaluation."""

    def __init__(self, splits: Sequence[ImageFiles], *, workers: int, pin_memory: bool) -> None:
        self._sampler = _BatchSampler()
        self._loader: DataLoader[Tensor | Exception] = DataLoader(
            _Splits(splits),
            batch_sampler=self._sampler,
            collate_fn=_unchanged,
            num_workers=workers,
            persistent_workers=workers > 0,
            pin_memory=pin_memory,
            # Without its own generator a DataLoader draws from the global random state.
            generator=torch.Generator().manual_seed(0),
        )
        self._current: object = None

    def read(self, batches: Iterable[list[Item]]) -> Iterator[Tensor]:
        """Yield the images of each batch. `batches` is consumed lazily, a few batches ahead.

        The workers serve one call at a time: a later call ends this one, which then stops yielding.
        """
        self._sampler.batches = batches
        current = self._current = object()
        for images in self._loader:
            if isinstance(images, Exception):
                raise images
            yield images
            if self._current is not current:
                return


class _BatchSampler:
    """The batches of the present call of `read`. A DataLoader asks its sampler for an iterator once per pass."""

    batches: Iterable[list[Item]] = ()

    def __iter__(self) -> Iterator[list[Item]]:
        return iter(self.batches)


class _Splits(Dataset[Tensor]):
    """Several sets of files behind one index, so that one pool of workers reads them all.

    A file that cannot be read is returned as its error: a worker that raised it would bury the message in a traceback.
    """

    def __init__(self, splits: Sequence[ImageFiles]) -> None:
        self._splits = tuple(splits)

    def __getitems__(self, items: list[Item]) -> Tensor | Exception:
        try:
            return torch.stack([self._splits[split].read(index, seed) for split, index, seed in items])
        except (InputError, UnreadableError) as error:
            return error


def _unchanged(batch: Any) -> Any:
    return batch
