"""What a search trains: the protocol between a search and a training, and the built-in image classifier.

A `Workload` is what the driver holds: it checks itself before anything starts, is pickled once for all workers, and
starts trainings. A `Training` is one run on one worker. The worker uses nothing else, so the built-in classifier
(`loop.Run`) and a function of the user's (`function_run.FunctionRun`) are searched alike.
"""

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import torch
from torch import nn

from rst_tune.errors import InputError
from rst_tune.method.ascent import build
from rst_tune.training.base import Training as Training
from rst_tune.training.batches import check_batches
from rst_tune.training.data import Dataset, load_dataset
from rst_tune.training.factories import resolve_factory
from rst_tune.training.loop import Run
from rst_tune.training.models import build_model
from rst_tune.training.optimization import compile_backend, make_base_optimizer
from rst_tune.training.task import Method, Task

# Steps of which the time is measured, however long they take: about half of them are sharpness-aware.
LEAST_STEPS = 40


class StepTime(NamedTuple):
    """One step of a training: its seconds with data and optimizer, its pairs, and whether it was sharpness-aware."""

    seconds: float
    pairs: float
    ascent: bool


class Workload(Protocol):
    """What a search trains, as the driver knows it. It is pickled for the workers."""

    @property
    def steps_per_epoch(self) -> int:
        """Optimizer steps per epoch, which turn epochs into pairs."""

    def check(self, rules: Iterable[str], workers: int = 1) -> None:
        """Raise an InputError where nothing could be trained with so many workers, or not by one of these rules."""

    def describe(self, *, gpu: bool) -> dict[str, Any]:
        """Return name, digest and what else the header of a search says of the data."""

    def start(
        self, method: Method, *, seed: int, epochs: int, device: str | None = None, replicate: bool = False
    ) -> Training:
        """Return a training that has not begun. A replicate may draw its split of the data from the seed as well."""

    def timed_steps(self, method: Method, device: str | None, seconds: float = 2.0) -> list[StepTime]:
        """Train for about so long, at least `LEAST_STEPS`, and return the time of single steps without validation."""

    def import_code(self) -> None:
        """Import the user's own code, which runs it; a failure is an InputError."""


def check_rules(rules: Iterable[str], model: nn.Module, base: torch.optim.Optimizer) -> None:
    """Raise where a rule does not fit the model or the base optimizer: one for normalization layers, or momentum."""
    for rule in dict.fromkeys(rules):
        try:
            build(rule).attach(model, base)
        except InputError as error:
            raise InputError(f"space.rules: {error}") from None


@dataclass(frozen=True)
class ClassifierWorkload:
    """The built-in image classifier. `search_path` holds the folders where a model of the user's is looked for."""

    task: Task
    data: Dataset
    search_path: tuple[str, ...] = ()

    @classmethod
    def load(cls, task: Task, search_path: tuple[str, ...] = ()) -> "ClassifierWorkload":
        """Return the workload with its data."""
        return cls(task, load_dataset(task.data), search_path)

    @property
    def steps_per_epoch(self) -> int:
        """Complete batches per epoch."""
        return len(self.data.train) // self.task.recipe.batch_size

    def check(self, rules: Iterable[str], workers: int = 1) -> None:
        """Build the model once. Batches that the images cannot fill, and an unknown compiler are refused as well."""
        check_batches(self.task, self.data, workers)
        compile_backend(self.task.recipe)
        self.import_code()
        spec = self.task.model
        model = build_model(spec.name, self.data.classes, self.data.shape, spec.options)
        check_rules(rules, model, make_base_optimizer(self.task.recipe, model))

    def describe(self, *, gpu: bool) -> dict[str, Any]:
        """Return the digest and the sizes of the data, and the precision of the training."""
        given = self.task.recipe.precision
        precision = ("bf16" if gpu else "fp32") if given == "auto" else given
        described = {"name": self.task.data.name, "digest": self.data.digest(), "precision": precision}
        return {**described, **self.data.describe()}

    def start(
        self, method: Method, *, seed: int, epochs: int, device: str | None = None, replicate: bool = False
    ) -> Run:
        """Return a run that has not begun; a replicate has a split of its own, the same for all of its seed."""
        self.import_code()
        data = self.data.resplit(seed) if replicate else self.data
        return Run(self.task, method, seed=seed, epochs=epochs, device=device, data=data)

    def timed_steps(self, method: Method, device: str | None, seconds: float = 2.0) -> list[StepTime]:
        """Time some steps of a run by its own clock."""
        epochs = max(self.task.recipe.epochs, math.ceil(LEAST_STEPS / self.steps_per_epoch))
        run = self.start(method, seed=0, epochs=epochs, device=device)
        found: list[StepTime] = []
        begun = time.perf_counter()
        while not run.finished and (len(found) < LEAST_STEPS or time.perf_counter() - begun < seconds):
            before, pairs, ascents = run.epoch_seconds, run.pairs, run.optimizer.ascents
            if run.steps(1):
                took = run.epoch_seconds - before
                found.append(StepTime(took, run.pairs - pairs, run.optimizer.ascents > ascents))
            else:
                run.epoch()
        return found

    def share(self, workers: int) -> "ClassifierWorkload":
        """Return the workload of one of so many workers: its batches are a share of the whole ones."""
        recipe = self.task.recipe
        recipe = recipe.model_copy(update={"batch_size": recipe.batch_size // workers})
        return replace(self, task=self.task.model_copy(update={"recipe": recipe}))

    def import_code(self) -> None:
        """Import a model of the user's own."""
        if ":" in self.task.model.name:
            resolve_factory(self.task.model.name, self.search_path)
