"""Stratified subsets and label noise, as pure functions of labels and seeds."""

import numpy as np
from numpy.typing import NDArray

from rst_tune.errors import InputError
from rst_tune.training.seeds import numpy_generator

Indices = NDArray[np.int64]


def quotas(class_counts: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Return the number of images per class, proportional and `count` in total, by largest remainder.

    >>> quotas(np.array([50, 30, 20]), 7).tolist()
    [4, 2, 1]
    """
    exact = class_counts * (count / class_counts.sum())
    whole: NDArray[np.int64] = np.floor(exact).astype(np.int64)
    left_over = count - int(whole.sum())
    whole[np.argsort(whole - exact, kind="stable")[:left_over]] += 1
    return whole


def stratified_choice(labels: Indices, count: int, *seed: object) -> Indices:
    """Return sorted indices of `count` images, drawn from `seed` with proportional classes."""
    if not 0 < count <= len(labels):
        raise InputError(f"between 1 and {len(labels)} images can be taken, got {count}")
    classes, class_counts = np.unique(labels, return_counts=True)
    generator = numpy_generator(*seed)
    chosen = [
        generator.permutation(np.flatnonzero(labels == each))[:quota]
        for each, quota in zip(classes, quotas(class_counts, count), strict=True)
    ]
    return np.sort(np.concatenate(chosen))


def noisy_labels(labels: Indices, fraction: float, classes: int, *seed: object) -> Indices:
    """Return a copy in which round(fraction * count) labels are replaced by another class, uniformly."""
    generator = numpy_generator(*seed)
    indices = generator.permutation(len(labels))[: round(fraction * len(labels))]
    noisy = labels.copy()
    noisy[indices] = (labels[indices] + generator.integers(1, classes, len(indices))) % classes
    return noisy
