"""Models that misbehave, imported by real workers."""

import time
from pathlib import Path

import torch
from torch import nn

# What the n-th training of a search does, counted from 0, when its model is `moody`.
MOODS = {1: "out of memory", 2: "nan", 3: "hang", 4: "raise", 5: "machine"}


class Slow(nn.Module):
    """A small net that takes its time in training, so that a kill finds it in the middle of an epoch."""

    def __init__(self, num_classes: int, seconds: float) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, num_classes))
        self.seconds = seconds

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if self.training:
            time.sleep(self.seconds)
        return self.net(nn.functional.adaptive_avg_pool2d(images.mean(1, keepdim=True), 8))


def slow(num_classes: int, seconds: float = 0.02) -> nn.Module:
    return Slow(num_classes, seconds)


class Moody(Slow):
    """Good in evaluation; in training it does what its mood says."""

    def __init__(self, num_classes: int, mood: str) -> None:
        super().__init__(num_classes, 0.0)
        self.mood = mood

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if self.training and self.mood == "out of memory":
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 TiB")
        if self.training and self.mood == "hang":
            time.sleep(10_000)
        if self.training and self.mood == "raise":
            raise ValueError("the teapot is empty")
        if self.training and self.mood == "machine":
            raise ConnectionResetError("the cable is loose")
        factor = float("nan") if self.training and self.mood == "nan" else 1.0
        return super().forward(images) * factor


def moody(num_classes: int, folder: str) -> nn.Module:
    """Return a model whose mood depends on how many were made in `folder` before it: the driver makes the first."""
    number = len(list(Path(folder).iterdir()))
    (Path(folder) / f"{number}").touch()
    return Moody(num_classes, MOODS.get(number - 1, "good"))


class Faulty(Slow):
    """Raises in training while a file says so; the file holds the kind of error."""

    def __init__(self, num_classes: int, file: str) -> None:
        super().__init__(num_classes, 0.01)
        self.file = Path(file)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if self.training and self.file.exists():
            kinds = {"ValueError": ValueError, "OSError": OSError}
            raise kinds[self.file.read_text()]("the cable is loose")
        return super().forward(images)


def faulty(num_classes: int, file: str) -> nn.Module:
    return Faulty(num_classes, file)


class Patient(Slow):
    """Trains on once a file is there; without it, for so many forward passes."""

    def __init__(self, num_classes: int, file: str, passes: int) -> None:
        super().__init__(num_classes, 0.0)
        self.file, self.passes = Path(file), passes

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self.passes -= self.training
        while self.training and self.passes < 0 and not self.file.exists():
            time.sleep(0.05)
        return super().forward(images)


def patient(num_classes: int, file: str, passes: int = 0) -> nn.Module:
    return Patient(num_classes, file, passes)


class Weighty(Slow):
    """Slow, with so much ballast that its checkpoint fills a small disk."""

    def __init__(self, num_classes: int) -> None:
        super().__init__(num_classes, 0.01)
        self.register_buffer("ballast", torch.zeros(1_000_000))


def weighty(num_classes: int) -> nn.Module:
    return Weighty(num_classes)
