"""Images and labels as arrays of one layout, and .npz files that hold them."""

import math
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from rst_tune.errors import InputError

NPZ_KEYS = ("x_train", "y_train", "x_test", "y_test")


def read_npz(path: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays `NPZ_KEYS` of a .npz file. Any other or damaged file is an InputError."""
    if not path.is_file():
        raise InputError(f"`root` of npz data must be a .npz file, {path} is a directory")
    if not zipfile.is_zipfile(path):
        raise InputError(f"`root` must be a .npz file written by numpy.savez, {path} is not: {', '.join(NPZ_KEYS)}")
    try:
        _check_members(path)
        with np.load(path, allow_pickle=False) as file:
            return {key: file[key] for key in NPZ_KEYS}
    except InputError:
        raise
    except Exception as error:  # the parsers of zip, deflate and npy raise errors of many kinds on damaged bytes
        raise InputError(
            f"{path} is not a readable .npz file of plain arrays: {error or type(error).__name__}. Write it again "
            "with numpy.savez"
        ) from error


def _check_members(path: Path) -> None:
    """Check that all arrays are there and fit into memory, before any of them is allocated."""
    total = 0
    with zipfile.ZipFile(path) as archive:
        names = set(archive.namelist())
        if missing := [key for key in NPZ_KEYS if f"{key}.npy" not in names]:
            raise InputError(f"{path} must hold {', '.join(NPZ_KEYS)}; missing: {', '.join(missing)}")
        for key in NPZ_KEYS:
            total += _member_bytes(archive, key, path)
    available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if total > available:
        raise InputError(
            f"the arrays of {path} must fit into memory, they need {total / 2**30:.1f} GiB of "
            f"{available / 2**30:.1f} GiB: use an image folder instead"
        )


def _member_bytes(archive: zipfile.ZipFile, key: str, path: Path) -> int:
    """Return the size of one array, after checking that its header agrees with the size of its content."""
    info = archive.getinfo(f"{key}.npy")
    with archive.open(info) as member:
        readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
        version = npy.read_magic(member)
        if version not in readers:
            raise InputError(f"{key} of {path} must be in version 1 or 2 of the npy format, got version {version}")
        shape, _, dtype = readers[version](member)
        if dtype.hasobject:
            raise InputError(f"{path} is not a readable .npz file of plain arrays: {key} holds Python objects")
        expected = member.tell() + math.prod(shape) * dtype.itemsize
    if expected != info.file_size:
        raise InputError(f"{path} is damaged: {key} declares {expected} bytes and holds {info.file_size}")
    return expected


def as_images(array: NDArray[Any], name: str) -> NDArray[np.uint8]:
    """Return the array as contiguous NCHW. Accepted layouts are NHW, NHWC and NCHW."""
    if array.dtype != np.uint8:
        raise InputError(f"images must be uint8 (0 to 255), {name} is {array.dtype}")
    if array.ndim == 3:
        array = array[:, None]
    elif array.ndim == 4 and array.shape[3] in (1, 3):
        array = array.transpose(0, 3, 1, 2)
    elif array.ndim != 4 or array.shape[1] not in (1, 3):
        raise InputError(
            f"images must be (count, height, width), with 1 or 3 channels first or last, {name} is {array.shape}"
        )
    if 0 in array.shape[1:]:
        raise InputError(f"images must have at least one pixel, {name} is {array.shape}")
    return np.ascontiguousarray(array)


def as_labels(labels: Any, name: str) -> NDArray[np.int64]:
    """Return the labels as int64. Accepted shapes are (count,) and (count, 1)."""
    array = np.asarray(labels)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise InputError(f"labels must be one whole number per image, {name} has shape {array.shape}, {array.dtype}")
    return array.astype(np.int64)
