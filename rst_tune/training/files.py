"""Images read from files on demand, cropped and resized one by one, in DataLoader workers started once per run."""

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from rst_tune.errors import InputError
from rst_tune.training.seeds import derive

RESIZE_MARGIN = 256 / 224
"""For evaluation the short side is resized to this multiple of the centre crop."""


class UnreadableError(OSError):
    """A file cannot be read from this node. Its content may be sound: another node may read it."""


@dataclass(frozen=True, eq=False)
class ImageFiles:
    """A map-style set of (PIL image, label) whose images are read on demand as uint8 tensors of one size.

    `read` depends on the index and the seed alone, not on the worker process or on earlier reads.
    """

    source: Any
    size: int
    indices: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.source) if self.indices is None else len(self.indices)

    def take(self, indices: NDArray[np.int64]) -> "ImageFiles":
        """Return the images at these indices."""
        return replace(self, indices=indices if self.indices is None else self.indices[indices])

    def joined(self, other: "ImageFiles") -> "ImageFiles":
        """Return these images followed by others of the same source."""
        own, more = (np.arange(len(x)) if x.indices is None else x.indices for x in (self, other))
        return replace(self, indices=np.concatenate([own, more]))

    def read(self, index: int, seed: object = None) -> Tensor:
        """Return one image, (3, size, size): a random resized crop drawn from `seed`, or the centre crop."""
        from torchvision.transforms import v2

        where = index if self.indices is None else int(self.indices[index])
        try:
            tensor: Tensor = v2.functional.pil_to_tensor(self.source[where][0].convert("RGB"))
        except (OSError, ValueError, SyntaxError) as error:  # PIL raises all three for damaged images
            if isinstance(error, OSError) and error.errno is not None:  # the system's own error, not PIL's
                raise UnreadableError(error.errno, error.strerror, self._path(where)) from error
            raise InputError(f"every image must be readable, {self._path(where)} is not: {error}") from error
        if seed is None:
            short_side = round(self.size * RESIZE_MARGIN)
            return v2.CenterCrop(self.size)(v2.Resize(short_side, antialias=True)(tensor))  # type: ignore[no-any-return]
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(derive("resized-crop", seed))
            return v2.RandomResizedCrop(self.size, antialias=True)(tensor)  # type: ignore[no-any-return]

    def fingerprint(self, contents: int) -> bytes:
        """Return a hash of the relative names and sizes of all files and of the content of `contents` of them."""
        digest = hashlib.blake2b(str(self.size).encode(), digest_size=16)
        chosen = range(len(self)) if self.indices is None else self.indices
        paths, root = [self._path(int(index)) for index in chosen], f"{self.source.root}{os.sep}"
        try:
            for path in paths:
                digest.update(f"{path.removeprefix(root)}\0{os.stat(path).st_size}\0".encode(errors="surrogateescape"))
            for index in np.linspace(0, len(paths) - 1, min(contents, len(paths))).astype(int):
                with open(paths[index], "rb") as file:
                    digest.update(file.read())
        except OSError as error:
            raise InputError(f"every image file must be readable: {error}") from error
        return digest.digest()

    def _path(self, index: int) -> str:
        """Return the file of one image of the source. torchvision's classes keep them under different names."""
        for name in ("samples", "_samples", "imgs", "_image_files", "_images"):
            if (files := getattr(self.source, name, None)) is not None:
                return str(files[index][0] if isinstance(files[index], tuple) else files[index])
        raise InputError(
            f"the files of {type(self.source).__name__} cannot be listed: convert the set to an image folder"
        )


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
