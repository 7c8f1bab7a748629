"""Data sources: scikit-learn's digits, torchvision data sets, image folders, .npz files.

A source returns a training and a test split, as uint8 arrays (NCHW) or as files that are read on demand.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rst_tune.errors import InputError, unknown_name
from rst_tune.registry import Registry
from rst_tune.training.arrays import as_images, as_labels, read_npz
from rst_tune.training.files import ImageFiles
from rst_tune.training.stratify import stratified_choice

if TYPE_CHECKING:
    from rst_tune.training.task import DataSpec

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
"""Further torchvision data sets that can be loaded, listed for an unknown name. Names are case-insensitive."""

SPLIT_NAMES = {
    "OxfordIIITPet": ("trainval", "test"),
    "FGVCAircraft": ("trainval", "test"),
    "Imagenette": ("train", "val"),
    "ImageNet": ("train", "val"),
    "Places365": ("train-standard", "val"),
}
"""torchvision classes whose training and test split are not called train and test."""

DIGITS_TEST = 400
"""scikit-learn's digits have no test split: this many images are set aside, the same for every split seed."""


def read_source(spec: "DataSpec") -> RawDataset:
    """Return the images and labels of `spec.name`: a registered data set or a torchvision class."""
    reader = SOURCES[spec.name] if spec.name in SOURCES else partial(_torchvision, _torchvision_class(spec.name))
    # Absolute, because the paths of image files are kept and the working directory may change before they are read.
    return reader(spec.resolved(Path()))


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
    arrays = read_npz(path)
    return RawDataset(
        train=as_images(arrays["x_train"], f"x_train of {path}"),
        train_labels=as_labels(arrays["y_train"], f"y_train of {path}"),
        test=as_images(arrays["x_test"], f"x_test of {path}"),
        test_labels=as_labels(arrays["y_test"], f"y_test of {path}"),
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
    except OSError as error:
        raise InputError(f"every class of an image folder needs at least one readable image: {error}") from error
    if train.classes != test.classes:
        odd = sorted(set(train.classes) ^ set(test.classes))
        raise InputError(f"{root / 'train'} and {test_root} must have the same classes, these are in one only: {odd}")
    return RawDataset(
        train=ImageFiles(train, size=spec.image_size),
        train_labels=as_labels(train.targets, "the training folder"),
        test=ImageFiles(test, size=spec.image_size),
        test_labels=as_labels(test.targets, "the test folder"),
    )


def _torchvision_class(name: str) -> str:
    """Return the exact name of the torchvision class with a training and a test split, for any case of `name`."""
    from torchvision import datasets

    names = {each.lower(): str(each) for each in datasets.__all__ if _split_arguments(each)}
    if name.lower() not in names:
        raise unknown_name("data set", name, {*map(str.lower, SOURCES.names()), *CLASSIFICATION_SETS})
    return names[name.lower()]


def _split_arguments(name: str) -> list[dict[str, bool | str]]:
    """Return the arguments that select the training and the test split of a torchvision class; empty if none do."""
    from torchvision import datasets

    try:
        accepted = inspect.signature(getattr(datasets, name)).parameters
    except ValueError:
        return []
    if "train" in accepted:
        return [{"train": True}, {"train": False}]
    return [{"split": split} for split in SPLIT_NAMES.get(name, ("train", "test"))] if "split" in accepted else []


def _torchvision(name: str, spec: "DataSpec") -> RawDataset:
    root = spec.root or str(Path.home() / ".cache" / "rst_tune" / "data")
    splits = [_read_or_download(name, root, arguments) for arguments in _split_arguments(name)]
    (x_train, y_train), (x_test, y_test) = (_images_and_labels(split, name, spec.image_size) for split in splits)
    return RawDataset(train=x_train, train_labels=y_train, test=x_test, test_labels=y_test)


def _read_or_download(name: str, root: str, arguments: Mapping[str, bool | str]) -> Any:
    """Return the data set under `root`; download it only if it is not there."""
    from torchvision import datasets

    factory = getattr(datasets, name)
    try:
        return factory(root, **arguments)
    except (TypeError, ValueError) as error:
        raise InputError(f"torchvision's {name} has no plain training and test split: {error}") from error
    except (RuntimeError, OSError) as missing:
        if "download" not in inspect.signature(factory).parameters:
            raise InputError(f"{name} is not under {root} and cannot be downloaded: {missing}") from missing
    except Exception as error:  # the parsers of two dozen file formats raise errors of many kinds on damaged bytes
        raise InputError(f"{name} under {root} is damaged ({error!r}): remove it, or set `root`") from error
    try:
        return factory(root, download=True, **arguments)
    except Exception as error:
        raise InputError(
            f"{name} is not under {root} and could not be downloaded ({error}): set `root` to its directory"
        ) from error


def _images_and_labels(split: Any, name: str, size: int) -> tuple[Images, Labels]:
    found = (getattr(split, key, None) for key in ("targets", "labels", "_labels"))
    labels = next((each for each in found if each is not None), None)
    if labels is None and hasattr(split, "_samples"):
        labels = [sample[1] for sample in split._samples]
    if labels is None:
        raise InputError(f"torchvision's {name} does not list its labels: convert it to an image folder or a .npz file")
    data = getattr(split, "data", None)
    images = ImageFiles(split, size=size) if data is None else as_images(np.asarray(data), name)
    return images, as_labels(labels, name)


def _existing_root(spec: "DataSpec") -> Path:
    if spec.root is None:
        raise InputError(f"data {spec.name!r} needs `root`: the path to read from")
    path = Path(spec.root)
    try:
        path.stat()
    except (OSError, ValueError) as error:
        raise InputError(f"`root` must exist and be readable, {path} does not or is not: {error}") from error
    return path


for _name, _what in (
    ("CIFAR10", "60,000 colour images of 32x32, 10 classes"),
    ("CIFAR100", "60,000 colour images of 32x32, 100 classes"),
    ("FashionMNIST", "70,000 grey images of clothes, 28x28, 10 classes"),
    ("MNIST", "70,000 handwritten digits of 28x28"),
    ("SVHN", "99,289 house numbers of 32x32, 10 classes"),
):
    SOURCES.add(_name, partial(_torchvision, _name), f"{_what} (torchvision)")
