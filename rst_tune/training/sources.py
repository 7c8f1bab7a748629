"""Data sources: scikit-learn's digits, torchvision data sets, image folders, .npz files.

A source returns a training and a test split, as uint8 arrays (NCHW) or as files that are read on demand.
"""

import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from rst_tune.errors import InputError, unknown_name
from rst_tune.registry import Registry
from rst_tune.training.files import ImageFiles
from rst_tune.training.stratify import stratified_choice

if TYPE_CHECKING:
    from rst_tune.training.task import DataSpec

__all__ = ["SOURCES", "RawDataset", "read_source"]

Images = NDArray[np.uint8] | ImageFiles
Labels = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class RawDataset:
    """Images and labels of the training and the test split, as a source returns them."""

    train: Images
    train_labels: Labels
    test: Images
    test_labels: Labels


SOURCES: Registry[Callable[["DataSpec"], RawDataset]] = Registry("data set")

CLASSIFICATION_SETS = (
    "kmnist",
    "stl10",
    "usps",
    "flowers102",
    "food101",
    "dtd",
    "gtsrb",
    "oxfordiiitpet",
    "imagenette",
)
"""Further sets of torchvision that fit, named when a name is not known. Upper and lower case are the same."""

DIGITS_TEST = 400
"""scikit-learn's digits have no test split: this many images are set aside, the same for every split seed."""


def read_source(spec: "DataSpec") -> RawDataset:
    """Return the images and labels that `spec.name` stands for: a registered set or any fitting torchvision class."""
    reader = SOURCES[spec.name] if spec.name in SOURCES else partial(_torchvision, _torchvision_class(spec.name))
    return reader(spec)


@SOURCES.register("digits", "1,797 handwritten digits of 8x8 pixels, inside scikit-learn; needs no download")
def _digits(_: "DataSpec") -> RawDataset:
    from sklearn.datasets import load_digits

    bunch = load_digits()
    images = np.round(bunch.images * (255 / 16)).astype(np.uint8)[:, None]
    labels = bunch.target.astype(np.int64)
    test = np.zeros(len(labels), dtype=bool)
    test[stratified_choice(labels, DIGITS_TEST, "digits", "test")] = True
    return RawDataset(train=images[~test], train_labels=labels[~test], test=images[test], test_labels=labels[test])


@SOURCES.register("npz", "a .npz file (`root`) with x_train, y_train, x_test, y_test; uint8 images")
def _npz(spec: "DataSpec") -> RawDataset:
    path = _existing_root(spec)
    wanted = ("x_train", "y_train", "x_test", "y_test")
    try:
        with np.load(path, allow_pickle=False) as file:
            if missing := [key for key in wanted if key not in file]:
                raise InputError(f"{path} must hold {', '.join(wanted)}; missing: {', '.join(missing)}")
            arrays = {key: file[key] for key in wanted}
    except (OSError, EOFError, ValueError, BadZipFile) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} is not a readable .npz file of plain arrays: {error}") from error
    return RawDataset(
        train=_as_images(arrays["x_train"], f"x_train of {path}"),
        train_labels=_as_labels(arrays["y_train"], f"y_train of {path}"),
        test=_as_images(arrays["x_test"], f"x_test of {path}"),
        test_labels=_as_labels(arrays["y_test"], f"y_test of {path}"),
    )


@SOURCES.register(
    "folder", "an image folder (`root`) in ImageNet layout: train/<class>/*, val/<class>/* or test/<class>/*"
)
def _folder(spec: "DataSpec") -> RawDataset:
    from torchvision.datasets import ImageFolder

    root = _existing_root(spec)
    test_root = next((root / name for name in ("test", "val") if any((root / name).glob("*/*"))), None)
    if not (root / "train").is_dir() or test_root is None:
        raise InputError(f"an image folder needs train/ and val/ (or test/) in it, {root} does not have both")
    try:
        train, test = ImageFolder(str(root / "train")), ImageFolder(str(test_root))
    except FileNotFoundError as error:
        raise InputError(f"every class of an image folder needs at least one image: {error}") from error
    if train.classes != test.classes:
        odd = sorted(set(train.classes) ^ set(test.classes))
        raise InputError(f"{root / 'train'} and {test_root} must have the same classes, these are in one only: {odd}")
    return RawDataset(
        train=ImageFiles(train, size=spec.image_size),
        train_labels=_as_labels(train.targets, "the training folder"),
        test=ImageFiles(test, size=spec.image_size),
        test_labels=_as_labels(test.targets, "the test folder"),
    )


def _torchvision_class(name: str) -> str:
    """Return the exact name of the torchvision set that has a training and a test part, whatever the case typed."""
    from torchvision import datasets

    names: dict[str, str] = {each.lower(): each for each in datasets.__all__ if _part_argument(getattr(datasets, each))}
    if name.lower() not in names:
        raise unknown_name("data set", name, {*map(str.lower, SOURCES.names()), *CLASSIFICATION_SETS})
    return names[name.lower()]


def _part_argument(factory: Any) -> dict[str, tuple[Any, Any]]:
    """Return how a torchvision set is asked for its training and its test part; empty if it has none."""
    try:
        accepted = inspect.signature(factory).parameters
    except ValueError:
        return {}
    if "train" in accepted:
        return {"train": (True, False)}
    return {"split": ("train", "test")} if "split" in accepted else {}


def _torchvision(name: str, spec: "DataSpec") -> RawDataset:
    from torchvision import datasets

    factory = getattr(datasets, name)
    root = spec.root or str(Path.home() / ".cache" / "rst_tune" / "data")
    [(argument, (train, test))] = _part_argument(factory).items()
    parts = [_read_or_download(factory, name, root, {argument: part}) for part in (train, test)]
    (x_train, y_train), (x_test, y_test) = (_of_torchvision(part, name, spec.image_size) for part in parts)
    return RawDataset(train=x_train, train_labels=y_train, test=x_test, test_labels=y_test)


def _read_or_download(factory: Any, name: str, root: str, part: dict[str, Any]) -> Any:
    """Return the set as it lies under `root`; fetch it only if it is not there."""
    try:
        return factory(root, **part)
    except (TypeError, ValueError) as error:
        raise InputError(f"torchvision's {name} has no plain training and test part: {error}") from error
    except (RuntimeError, OSError) as missing:
        if "download" not in inspect.signature(factory).parameters:
            raise InputError(f"{name} is not under {root} and cannot be downloaded: {missing}") from missing
    try:
        return factory(root, download=True, **part)
    except (RuntimeError, OSError) as error:
        raise InputError(
            f"{name} is not under {root} and could not be downloaded ({error}): set `root` to where it lies"
        ) from error


def _of_torchvision(part: Any, name: str, size: int) -> tuple[Images, Labels]:
    found = (getattr(part, key, None) for key in ("targets", "labels", "_labels"))
    labels = next((each for each in found if each is not None), None)
    if labels is None:
        raise InputError(
            f"torchvision's {name} does not give its labels at once: convert it to an image folder or .npz"
        )
    data = getattr(part, "data", None)
    images = ImageFiles(part, size=size) if data is None else _as_images(np.asarray(data), name)
    return images, _as_labels(labels, name)


def _as_images(array: NDArray[Any], where: str) -> NDArray[np.uint8]:
    """Return the array as contiguous NCHW; it may come as NHW, NHWC or NCHW."""
    if array.dtype != np.uint8:
        raise InputError(f"images must be uint8 (0 to 255), {where} is {array.dtype}")
    if array.ndim == 3:
        array = array[:, None]
    elif array.ndim == 4 and array.shape[3] in (1, 3):
        array = array.transpose(0, 3, 1, 2)
    elif array.ndim != 4 or array.shape[1] not in (1, 3):
        raise InputError(
            f"images must be (count, height, width), with 1 or 3 channels first or last, {where} is {array.shape}"
        )
    return np.ascontiguousarray(array)


def _as_labels(labels: Any, where: str) -> Labels:
    array = np.asarray(labels)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise InputError(f"labels must be one whole number an image, {where} has shape {array.shape}, {array.dtype}")
    return array.astype(np.int64)


def _existing_root(spec: "DataSpec") -> Path:
    if spec.root is None:
        raise InputError(f"data {spec.name!r} needs `root`: the path to read from")
    path = Path(os.path.expanduser(spec.root))
    if not path.exists():
        raise InputError(f"`root` must exist, {path} does not")
    return path


for _name, _what in (
    ("CIFAR10", "60,000 colour images of 32x32, 10 classes"),
    ("CIFAR100", "60,000 colour images of 32x32, 100 classes"),
    ("FashionMNIST", "70,000 grey images of clothes, 28x28, 10 classes"),
    ("MNIST", "70,000 handwritten digits of 28x28"),
    ("SVHN", "99,289 house numbers of 32x32, 10 classes"),
):
    SOURCES.add(
        _name, partial(_torchvision, _name), f"{_what} (torchvision; so is any other of its sets, by class name)"
    )
