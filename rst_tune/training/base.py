"""One training as a worker drives it: what the built-in classifier and a function of the user's share."""

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from rst_tune.errors import InputError
from rst_tune.training import distributed
from rst_tune.training.checkpoint import CheckpointError, read_checkpoint


@dataclass(frozen=True)
class Progress:
    """Position of a training; `metrics` are those of the epoch that just ended, else None."""

    step: int
    total_steps: int
    metrics: dict[str, float] | None = None


class Training(ABC):
    """One training that is run epoch by epoch, saved, and continued bit for bit. Errors are minimized.

    `status` is `running`, `complete` or `diverged`; `epoch_index` the number of epochs since the start; `history` has
    one value per epoch of every metric, `pairs` and `seconds` among them; `extra_propagation` are the expected extra
    passes per step.
    """

    model: nn.Module
    extra_propagation: float = 0.0

    def __init__(self, seed: int, epochs: int, device: str | torch.device | None) -> None:
        if epochs < 1:
            raise InputError(f"`epochs` must be at least 1, got {epochs}")
        self.seed, self.total_epochs = seed, epochs
        self.device = distributed.select_device(device)
        self.status, self.epoch_index = "running", 0
        self.history: dict[str, list[float]] = {}

    @property
    @abstractmethod
    def identity(self) -> str:
        """All inputs of the training as JSON."""

    @property
    @abstractmethod
    def error(self) -> float | None:
        """The validation error of the last epoch with a finite one; None before."""

    @property
    @abstractmethod
    def pairs(self) -> float:
        """Number of forward-backward passes since the start, including those of a diverged epoch."""

    @property
    def finished(self) -> bool:
        """True once the training is complete or diverged."""
        return self.status != "running"

    @property
    def last_metrics(self) -> dict[str, float]:
        """Metrics of the last epoch that did not diverge; empty if there is none."""
        return {name: values[-1] for name, values in self.history.items()}

    @abstractmethod
    def epoch(self) -> dict[str, float]:
        """Train to the end of the current epoch and return its metrics."""

    @abstractmethod
    def progress(self) -> Iterator[Progress]:
        """Train to the end, yielding on the way."""

    @abstractmethod
    def test(self) -> dict[str, float]:
        """Read the test set and return at least `test_error`."""

    def sharpness(self) -> dict[str, float]:
        """Return what is measured once, at the end; it may be empty."""
        return {}

    @abstractmethod
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a checkpoint atomically."""

    def restore(self, path: str | os.PathLike[str]) -> None:
        """Continue from a checkpoint of the same training; any other one is a CheckpointError.

        The identity in the file is compared and never used to build anything. After a CheckpointError the state of
        this training is undefined: build a new one.
        """
        state = read_checkpoint(path, self.identity)
        try:
            self._load_state(state)
        except Exception as error:  # the values come from a file and may have any type
            raise CheckpointError(f"the checkpoint {path} does not fit this run: {error!r}") from error

    def close(self) -> None:  # noqa: B027  a training that holds memory only has nothing to release
        """Release what the training holds. It cannot be continued afterwards."""

    def _check_running(self) -> None:
        if self.finished:
            raise InputError(f"a run that is {self.status} cannot be trained further: start a new one")

    def _append(self, measured: Mapping[str, float]) -> None:
        """Append the metrics of an epoch to the history; one that is new or missing is NaN elsewhere."""
        for name in {**self.history, **measured}:
            column = self.history.setdefault(name, [math.nan] * self.epoch_index)
            column.append(measured.get(name, math.nan))
        self.epoch_index += 1
        if self.epoch_index == self.total_epochs:
            self.status = "complete"

    def _state(self) -> dict[str, Any]:
        names = ("identity", "status", "epoch_index", "history")
        return {name: getattr(self, name) for name in names}

    def _load_state(self, state: dict[str, Any]) -> None:
        self.status, self.epoch_index, self.history = state["status"], state["epoch_index"], state["history"]
        if self.status not in ("running", "complete", "diverged") or not 0 <= self.epoch_index <= self.total_epochs:
            raise ValueError(f"status {self.status!r} after epoch {self.epoch_index!r} of {self.total_epochs}")
