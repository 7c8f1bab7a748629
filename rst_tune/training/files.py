"""Images read from files on demand, cropped and resized one by one in DataLoader workers."""

import hashlib
import os
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

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
