"""Write the data of two tasks below `data/results/`: small Fashion-MNIST and CIFAR-10 images.

    python experiments/results/data.py --fashion-mnist data/fashion_mnist.npz --cifar10 data/cifar10.npz

The files given hold `x_train`, `y_train`, `x_test` and `y_test` (uint8, NHWC); without them torchvision downloads.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from trainings import DATA

Arrays = dict[str, np.ndarray]
TRAIN, TEST = 10_000, 4_000
SETS = {"fashion_mnist": ("FashionMNIST", 4), "cifar10": ("CIFAR10", 2)}


def images(name: str, path: Path | None) -> Arrays:
    """Return the first images of a set, averaged over squares of pixels."""
    source, square = SETS[name]
    whole = dict(np.load(path)) if path else _torchvision(source)
    first = {key: part[: TRAIN if key.endswith("train") else TEST] for key, part in whole.items()}
    return {key: _averaged(part, square) if key.startswith("x") else part for key, part in first.items()}


def _torchvision(source: str) -> Arrays:
    from torchvision import datasets

    splits = {"train": True, "test": False}
    sets: dict[str, Any] = {
        n: getattr(datasets, source)(DATA.parent, train=t, download=True) for n, t in splits.items()
    }
    pixels = {f"x_{name}": np.asarray(part.data) for name, part in sets.items()}
    pixels = {name: part.reshape(*part.shape[:3], -1) for name, part in pixels.items()}
    return pixels | {f"y_{name}": np.asarray(part.targets) for name, part in sets.items()}


def _averaged(pixels: np.ndarray, square: int) -> np.ndarray:
    n, height, width, channels = pixels.shape
    squares = pixels.reshape(n, height // square, square, width // square, square, channels)
    return squares.mean((2, 4)).round().astype(np.uint8)


def main() -> None:
    """Write the two files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fashion-mnist", type=Path)
    parser.add_argument("--cifar10", type=Path)
    given = vars(parser.parse_args())
    DATA.mkdir(parents=True, exist_ok=True)
    for name in SETS:
        np.savez(DATA / f"{name}.npz", **images(name, given[name]))


if __name__ == "__main__":
    main()
