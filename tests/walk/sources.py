"""Tiny data of every source, and models of the user's own, written into a folder."""

from pathlib import Path

import numpy as np
from PIL import Image

CLASSES = 4
SHIPPED = {"digits": 1, "npz": 1, "folder": 3, "fashionmnist": 1}
"""Data source by its channels."""


def write_source(name: str, folder: Path) -> dict[str, object]:
    """Write the data of a source below a folder and return `task.data` with a root relative to the folder."""
    if name == "digits":
        return {"name": "digits", "validation": 100, "train_size": 64}
    root = {"npz": _write_npz, "folder": _write_folder, "fashionmnist": _write_idx}[name](folder / "Bilder & Töne")
    return {"name": name, "root": str(root.relative_to(folder)), "validation": 16, "image_size": 12, "workers": 1}


def _images(count: int, *shape: int) -> tuple[np.ndarray, np.ndarray]:
    labels = np.arange(count) % CLASSES
    rng = np.random.default_rng(count)
    images = rng.integers(0, 60, (count, *shape), dtype=np.uint8)
    for image, label in zip(images, labels, strict=True):
        image[2 * label : 2 * label + 2] += 180  # a bar whose height tells the class
    return images, labels


def _write_npz(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (x_train, y_train), (x_test, y_test) = _images(64, 8, 8), _images(16, 8, 8)
    np.savez(folder / "own.npz", x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test)
    return folder / "own.npz"


def _write_folder(folder: Path) -> Path:
    for split, count in (("train", 48), ("val", 16)):
        for number, (image, label) in enumerate(zip(*_images(count, 16, 16, 3), strict=True)):
            path = folder / split / f"class {label}" / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(path)
    return folder


def _write_idx(folder: Path) -> Path:
    """Write FashionMNIST's own files, as torchvision leaves them after a download."""
    raw = folder / "FashionMNIST" / "raw"
    raw.mkdir(parents=True)
    for prefix, count in (("train", 64), ("t10k", 16)):
        images, labels = _images(count, 28, 28)
        heads = {"images-idx3": (2051, count, 28, 28), "labels-idx1": (2049, count)}
        bodies = {"images-idx3": images, "labels-idx1": labels.astype(np.uint8)}
        for kind, head in heads.items():
            content = np.array(head, dtype=">i4").tobytes() + bodies[kind].tobytes()
            (raw / f"{prefix}-{kind}-ubyte").write_bytes(content)
    return folder


def write_model(folder: Path, module: str) -> str:
    """Write a model of one's own, whose factory imports a helper only when it is called; return its name."""
    (folder / f"{module}_helper.py").write_text("WIDTH = 8\n")
    (folder / f"{module}.py").write_text(
        "from torch import nn\n\n\n"
        "def net(num_classes, channels):\n"
        f"    from {module}_helper import WIDTH\n\n"
        "    layers = [nn.AdaptiveAvgPool2d(8), nn.Flatten(), nn.Linear(64 * channels, WIDTH), nn.ReLU()]\n"
        "    return nn.Sequential(*layers, nn.Linear(WIDTH, num_classes))\n"
    )
    return f"{module}:net"
