"""A data set as a run uses it: split, label noise added and normalization measured once, then shared by all runs."""

import hashlib
import json
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rst_tune.errors import InputError
from rst_tune.training.files import ImageFiles, UnreadableError
from rst_tune.training.seeds import numpy_generator
from rst_tune.training.sources import Images, RawDataset, read_source
from rst_tune.training.stratify import noisy_labels, stratified_choice
from rst_tune.training.task import DataSpec

MEASURED_FILES = 1000
"""Number of training images from which the normalization of a file set is measured."""

HASHED_FILES = 256
"""Number of files per split whose content is part of the digest."""
MAX_CLASSES = 100_000
"""More classes than any public set has: a larger label is an identifier, and its output layer would not fit."""


@dataclass(frozen=True, eq=False)
class Split:
    """Images (uint8 NCHW, or files) and labels (int64) of the training, validation or test split.

    It is pickled as numpy arrays, so unpickling from shared memory copies nothing.
    """

    images: Tensor | ImageFiles
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def __reduce__(self) -> tuple[Any, ...]:
        images = self.images.numpy() if isinstance(self.images, Tensor) else self.images
        return _make_split, (images, self.labels.numpy())


@dataclass(frozen=True, kw_only=True, eq=False)
class Dataset:
    """Training, validation and test split, with number of classes, image shape and normalization."""

    train: Split
    validation: Split
    test: Split
    classes: int
    shape: tuple[int, int, int]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    noisy_labels: int
    """Number of training labels replaced by label noise."""
    clean_labels: NDArray[np.int64]
    """The training labels before that."""

    def describe(self) -> dict[str, Any]:
        """Return sizes and constants as JSON values, for the event log."""
        sizes = {"train": len(self.train), "validation": len(self.validation), "test": len(self.test)}
        measured = {"shape": list(self.shape), "mean": list(self.mean), "std": list(self.std)}
        return {"sizes": sizes, "classes": self.classes, "noisy_labels": self.noisy_labels, **measured}

    def resplit(self, seed: int) -> "Dataset":
        """Return the same images with another split and other wrong labels, drawn from `seed`.

        Sizes, the share of wrong labels, the test split and the normalization stay. A mean over several seeds is then
        not fitted to one small validation set, and its standard error contains that set's own.
        """
        labels = np.concatenate([self.clean_labels, self.validation.labels.numpy()])
        validation = stratified_choice(labels, len(self.validation), seed, "replicate")
        train = np.setdiff1d(np.arange(len(labels)), validation)
        share = self.noisy_labels / len(self.train)
        images = _joined(self.train.images, self.validation.images)
        noisy = noisy_labels(labels[train], share, self.classes, seed, "replicate noise")
        return replace(
            self,
            train=_make_split(_take(images, train), noisy),
            validation=_make_split(_take(images, validation), labels[validation]),
            clean_labels=labels[train],
        )

    def digest(self) -> str:
        """Return a hash of labels and images of all splits, equal for equal data on any machine.

        Images in memory are hashed completely. Of files: the relative names and sizes of all, and the content of
        `HASHED_FILES` per split. Modification times do not count, so a copied set keeps its digest.
        """
        digest = hashlib.blake2b(json.dumps([self.classes, self.shape]).encode(), digest_size=16)
        for split in (self.train, self.validation, self.test):
            images = split.images
            digest.update(split.labels.numpy().data)
            content = images.numpy().data if isinstance(images, Tensor) else images.fingerprint(HASHED_FILES)
            digest.update(content)
        return digest.hexdigest()


def load_dataset(spec: DataSpec) -> Dataset:
    """Read, check, split and measure the data. All random choices come from the seeds of `spec`.

    >>> data = load_dataset(DataSpec(name="digits", validation=397, train_size=1000, label_noise=0.2))
    >>> len(data.train), len(data.validation), len(data.test), data.noisy_labels
    (1000, 397, 400, 200)
    """
    raw = read_source(spec)
    classes = _checked_classes(raw, spec)
    train, validation = _split_indices(raw.train_labels, spec)
    labels = raw.train_labels[train]
    noisy = noisy_labels(labels, spec.label_noise, classes, spec.noise_seed, "label noise")
    train_split = _make_split(_take(raw.train, train), noisy)
    mean, std, shape = _measure(train_split.images)
    return Dataset(
        train=train_split,
        validation=_make_split(_take(raw.train, validation), raw.train_labels[validation]),
        test=_make_split(raw.test, raw.test_labels),
        classes=classes,
        shape=shape,
        mean=mean,
        std=std,
        noisy_labels=int((noisy != labels).sum()),
        clean_labels=labels,
    )


def _make_split(images: Images, labels: NDArray[np.int64]) -> Split:
    return Split(images if isinstance(images, ImageFiles) else _tensor(images), _tensor(labels))


def _tensor(array: NDArray[Any]) -> Tensor:
    """Return a tensor on the same memory. It may be shared and read-only: no run writes to it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(np.ascontiguousarray(array))


def _joined(first: Tensor | ImageFiles, second: Tensor | ImageFiles) -> Images:
    """Return two disjoint parts of one source as one."""
    if isinstance(first, ImageFiles) and isinstance(second, ImageFiles):
        return first.joined(second)
    assert isinstance(first, Tensor)
    assert isinstance(second, Tensor)
    return np.concatenate([first.numpy(), second.numpy()])


def _take(images: Images, indices: NDArray[np.int64]) -> Images:
    return images.take(indices) if isinstance(images, ImageFiles) else images[indices]


def _checked_classes(raw: RawDataset, spec: DataSpec) -> int:
    """Return the number of classes after checking that images and labels match."""
    splits = ((raw.train, raw.train_labels, "training"), (raw.test, raw.test_labels, "test"))
    for images, labels, split in splits:
        if len(images) != len(labels) or len(labels) == 0:
            raise InputError(
                f"the {split} split of {spec.name} needs one label per image and at least one image, "
                f"got {len(images)} images and {len(labels)} labels"
            )
    classes = int(raw.train_labels.max()) + 1
    for _, labels, split in splits:
        if labels.min() < 0 or labels.max() >= classes:
            raise InputError(
                f"labels must be 0 to {classes - 1} (the largest in the training split), "
                f"the {split} split of {spec.name} has {labels.min()} to {labels.max()}"
            )
    if classes > MAX_CLASSES:
        raise InputError(
            f"labels must be 0 to K - 1 with at most {MAX_CLASSES} classes, {spec.name} has {classes - 1}: renumber"
        )
    if classes < 2:
        raise InputError(f"classification needs at least 2 classes, {spec.name} has labels of one class")
    train, test = (None if isinstance(images, ImageFiles) else images.shape[1:] for images in (raw.train, raw.test))
    if train != test:
        raise InputError(f"training and test images must have the same shape, {spec.name} has {train} and {test}")
    return classes


def _split_indices(labels: NDArray[np.int64], spec: DataSpec) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the indices of the training and of the validation images."""
    total = len(labels)
    held_out = round(spec.validation * total) if spec.validation < 1 else int(spec.validation)
    if not 0 < held_out < total:
        raise InputError(f"`validation` must leave images in both splits, {spec.validation} of {total} is {held_out}")
    validation = stratified_choice(labels, held_out, spec.split_seed, "validation")
    train = np.setdiff1d(np.arange(total), validation)
    if spec.train_size is not None:
        if spec.train_size > len(train):
            raise InputError(
                f"`train_size` must be at most the {len(train)} images that validation leaves, got {spec.train_size}"
            )
        train = train[stratified_choice(labels[train], spec.train_size, spec.split_seed, "train size")]
    return train, validation


def _measure(images: Tensor | ImageFiles) -> tuple[tuple[float, ...], tuple[float, ...], tuple[int, int, int]]:
    """Return mean and standard deviation per channel, for pixels scaled to 0 ... 1, and the shape of an image."""
    if isinstance(images, ImageFiles):
        indices = numpy_generator("measured files").permutation(len(images))[:MEASURED_FILES]
        try:
            images = torch.stack([images.read(int(index)) for index in indices])
        except UnreadableError as error:
            raise InputError(f"every image must be readable: {error}") from error
    channels, height, width = images.shape[1:]
    mean, std = zip(*(_moments(images[:, channel]) for channel in range(channels)), strict=True)
    return mean, std, (channels, height, width)


def _moments(channel: Tensor) -> tuple[float, float]:
    """Return mean and standard deviation from the histogram of the 256 values: exact, in little memory."""
    counts = torch.bincount(channel.reshape(-1), minlength=256).double()
    values, total = torch.arange(256, dtype=torch.double) / 255, counts.sum()
    mean = (counts * values).sum() / total
    variance = (counts * (values - mean) ** 2).sum() / total
    return float(mean), float(variance.sqrt().clamp_min(1 / 255))
