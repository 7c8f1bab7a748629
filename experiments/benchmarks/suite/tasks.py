"""The tasks of the suite: different in data, network, label noise, radius, optimizer, and in whether SAM helps.

Data sets are never kept here. Fashion-MNIST and CIFAR-10 are read from `.npz` files (x_train, y_train) in the folder
that `SUITE_DATA` names; the trainings that a table already holds need none of them.
"""

import os
from functools import cache
from pathlib import Path

import numpy as np
from ensemble import Arrays, SuiteTask
from sklearn.datasets import load_digits, make_classification, make_gaussian_quantiles


@cache
def _digits() -> Arrays:
    x, y = load_digits(return_X_y=True)
    return _standardized(x), y


@cache
def _images(name: str, count: int, size: int) -> Arrays:
    """Return the first `count` images as grey values, averaged over blocks to `size` x `size` pixels."""
    root = os.environ.get("SUITE_DATA")
    if root is None:
        raise FileNotFoundError(f"to train on {name}, set SUITE_DATA to the folder of {name}.npz")
    with np.load(Path(root) / f"{name}.npz") as file:
        x, y = file["x_train"][:count].astype(np.float32).mean(axis=-1), file["y_train"][:count]
    edges = np.linspace(0, x.shape[1], size + 1).astype(int)
    rows = np.add.reduceat(np.add.reduceat(x, edges[:-1], axis=1), edges[:-1], axis=2)
    return _standardized(rows.reshape(count, -1)), y.reshape(-1)


def _two_classes(data: Arrays, first: int = 1, second: int = 6) -> Arrays:
    """Return cars and frogs, with labels 0 and 1."""
    x, y = data
    chosen = (y == first) | (y == second)
    return x[chosen], (y[chosen] == second).astype(np.int64)


@cache
def _words(seed: int = 3, examples: int = 6000, vocabulary: int = 60, topics: int = 6, length: int = 12) -> Arrays:
    """Return bags of words of generated texts: each topic has its own word frequencies."""
    rng = np.random.default_rng(seed)
    frequencies = rng.dirichlet(np.full(vocabulary, 0.6), topics) * 0.55 + 0.45 / vocabulary
    y = rng.integers(topics, size=examples)
    x = np.stack([rng.multinomial(length, frequencies[label]) for label in y])
    return _standardized(x), y


@cache
def _clusters(seed: int = 5) -> Arrays:
    x, y = make_classification(
        n_samples=9000, n_features=24, n_informative=12, n_redundant=6, n_classes=5, n_clusters_per_class=3,
        class_sep=1.3, flip_y=0.0, random_state=seed,
    )  # fmt: skip
    return _standardized(x), y


@cache
def _spirals(seed: int = 9, examples: int = 6000, arms: int = 3) -> Arrays:
    """Return points on three spiral arms, lifted to 24 dimensions by random waves."""
    rng = np.random.default_rng(seed)
    y, along = rng.integers(arms, size=examples), np.sqrt(rng.uniform(0.05, 1.0, examples))
    angle = 4.0 * along + 2 * np.pi * y / arms + 0.25 * rng.normal(size=examples)
    points = along[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
    waves = np.sin(points @ rng.normal(0, 2.5, (2, 24)) + rng.uniform(0, 2 * np.pi, 24))
    return _standardized(waves + 0.1 * rng.normal(size=waves.shape)), y


@cache
def _shells(seed: int = 13) -> Arrays:
    """Return a normal distribution whose classes are shells around its centre."""
    x, y = make_gaussian_quantiles(n_samples=6000, n_features=5, n_classes=4, random_state=seed)
    return _standardized(x), y


def _standardized(x: np.ndarray, components: int = 20) -> np.ndarray:
    """Return the first principal components, in units of their common deviation: fewer inputs, faster trainings."""
    x = x - x.mean(axis=0)
    _, _, directions = np.linalg.svd(x, full_matrices=False)
    x = x @ directions[:components].T
    return np.sqrt(components) * x / np.sqrt((x**2).sum(axis=1).mean())


TASKS: dict[str, SuiteTask] = {
    task.name: task
    for task in (
        SuiteTask(
            name="digits-noisy", about="digits, 20 % wrong labels: long trainings fit the noise, SAM helps",
            pool=_digits, classes=10, train=480, validation=400, label_noise=0.2, hidden=(32,), lr=0.2,
            epochs=16, rho=0.4,
        ),
        SuiteTask(
            name="digits-short", about="digits, clean labels, batch norm, too few epochs: longer training wins",
            pool=_digits, classes=10, train=480, validation=600, hidden=(24,), batch_norm=True, lr=0.03, epochs=10,
            rho=0.1, weight_decay=5e-4,
        ),
        SuiteTask(
            name="fashion-adam", about="Fashion-MNIST 8 x 8, Adam, 3,000 validation images: little noise",
            pool=lambda: _images("fashion_mnist", 12000, 8), classes=10, train=576, validation=3000, label_noise=0.2,
            hidden=(24,), optimizer="adam", lr=0.012, epochs=14, rho=0.4,
        ),
        SuiteTask(
            name="cifar-bn", about="CIFAR-10 8 x 8 grey, two of ten classes, batch norm, weight decay",
            pool=lambda: _two_classes(_images("cifar10", 20000, 8)), classes=2, train=480, validation=1200,
            hidden=(24,), batch_norm=True, lr=0.1, epochs=14, rho=0.15, weight_decay=1e-3,
        ),
        SuiteTask(
            name="words", about="generated texts, a small vocabulary, Adam, 15 % wrong labels",
            pool=_words, classes=6, train=480, validation=1500, label_noise=0.15, hidden=(24,), optimizer="adam",
            lr=0.015, epochs=14, rho=0.3,
        ),
        SuiteTask(
            name="clusters-hot", about="clusters, a high learning rate and a large radius: large gammas break down",
            pool=_clusters, classes=5, train=480, validation=1000, label_noise=0.1, hidden=(24, 16), lr=0.25,
            epochs=14, rho=0.4,
        ),
        SuiteTask(
            name="digits-40", about="digits, 40 % wrong labels, a wide MLP: SAM helps, a larger radius breaks down",
            pool=_digits, classes=10, train=720, validation=400, label_noise=0.4, hidden=(40,), lr=0.15, epochs=12,
            rho=0.6,
        ),
    )
}  # fmt: skip

# Nothing was chosen on these: no setting, no prior. They were defined before anything was trained on them.
UNSEEN: dict[str, SuiteTask] = {
    task.name: task
    for task in (
        SuiteTask(
            name="fashion-deep", about="Fashion-MNIST 8 x 8, clean labels, two hidden layers, weight decay",
            pool=lambda: _images("fashion_mnist", 12000, 8), classes=10, train=960, validation=2000, hidden=(32, 16),
            lr=0.1, epochs=12, rho=0.1, weight_decay=5e-4,
        ),
        SuiteTask(
            name="spirals", about="three spirals, Adam, batch norm, 20 % wrong labels",
            pool=_spirals, classes=3, train=480, validation=1000, label_noise=0.2, hidden=(24,), batch_norm=True,
            optimizer="adam", lr=0.02, epochs=16, rho=0.2,
        ),
        SuiteTask(
            name="shells", about="four shells of a normal distribution, 10 % wrong labels, a wide network",
            pool=_shells, classes=4, train=720, validation=1500, label_noise=0.1, hidden=(48,), lr=0.1, epochs=14,
            rho=0.2,
        ),
    )
}  # fmt: skip
ALL = TASKS | UNSEEN
