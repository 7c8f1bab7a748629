"""One training run that can be stepped, saved in the middle of an epoch, and resumed bit for bit.

A run depends on its task, method, seed and number of epochs alone. It neither uses nor changes the global random
state, so one process can train several runs in sequence or interleaved.
"""

import json
import math
import os
import zlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from rst_tune.training import distributed, metrics
from rst_tune.training.base import Progress, Training
from rst_tune.training.batches import Batch, Layout, make_batches
from rst_tune.training.checkpoint import write_checkpoint
from rst_tune.training.clock import make_clock
from rst_tune.training.data import Dataset, Split, load_dataset
from rst_tune.training.evaluation import batch_loss, evaluate, measure_sharpness
from rst_tune.training.optimization import autocast, learning_rate, make_base_optimizer, make_model, make_rst
from rst_tune.training.seeds import derive, seed_device
from rst_tune.training.task import Method, Task

SHARPNESS_IMAGES = 512


class Run(Training):
    """One training of `task` with `method`.

    >>> task = Task.model_validate({"recipe": {"base": "digits", "epochs": 2}})
    >>> run = Run(task, Method(schedule={"family": "constant", "p": 0.5}, gamma_gnr=2), seed=0)
    >>> while not run.finished:
    ...     measured = run.epoch()
    >>> run.status, run.epoch_index, sorted(measured) == sorted(metrics.EPOCH_METRICS)
    ('complete', 2, True)
    """

    def __init__(
        self,
        task: Task,
        method: Method,
        *,
        seed: int = 0,
        epochs: int | None = None,
        device: str | torch.device | None = None,
        data: Dataset | None = None,
    ) -> None:
        super().__init__(seed, task.recipe.epochs if epochs is None else epochs, device)
        self.task, self.method = task, method
        self.data = load_dataset(task.data) if data is None else data
        self._build()

    def _build(self) -> None:
        recipe = self.task.recipe
        self._rank, self._world = distributed.rank(), distributed.world_size()
        layout = Layout(device=self.device, channels_last=recipe.channels_last, rank=self._rank, world=self._world)
        self._batches = make_batches(self.task, self.data, layout, self.seed)
        self.model = make_model(self.task, self.data, self.device, seed=self.seed)
        self._network = distributed.wrap(self.model, self.device)
        self._autocast = autocast(recipe, self.device)
        self._clock = make_clock(self.device)
        self._build_optimizer()
        self._step_in_epoch = 0
        self._stream: Iterator[Batch] | None = None
        self._loss_sum = torch.zeros((), dtype=torch.float64, device=self.device)

    def _build_optimizer(self) -> None:
        recipe = self.task.recipe
        self._warmup_steps = round(recipe.warmup_epochs / recipe.epochs * self.total_steps)
        self.optimizer = make_rst(
            self.method,
            make_base_optimizer(recipe, self.model),
            self._network,
            total_steps=self.total_steps,
            rho=recipe.rho,
            seed=self.seed,
            clip=recipe.max_grad_norm,
            eps=recipe.eps,
            timer=self._clock.mark,
        )
        self.rho = self.optimizer.rho
        self.extra_propagation = self.optimizer.expected_extra_propagation(recipe.batch_size // self._world)

    @property
    def steps_per_epoch(self) -> int:
        """Number of complete batches per epoch; the images left over differ from epoch to epoch."""
        return len(self.data.train) // self.task.recipe.batch_size

    @property
    def total_steps(self) -> int:
        """Horizon T of the schedule and of the learning rate."""
        return self.total_epochs * self.steps_per_epoch

    @property
    def step_index(self) -> int:
        """Number of steps since the start."""
        return self.epoch_index * self.steps_per_epoch + self._step_in_epoch

    @property
    def pairs(self) -> float:
        """Number of forward-backward passes since the start, including those of a diverged epoch."""
        return self.optimizer.pairs

    @property
    def epoch_seconds(self) -> float:
        """Seconds of the current epoch so far. On a GPU this waits for it."""
        return sum(self._clock.read().values())

    @property
    def error(self) -> float | None:
        """Validation error of the last epoch with a finite loss."""
        return self.last_metrics.get(metrics.VALIDATION_ERROR)

    def steps(self, count: int) -> int:
        """Train up to `count` steps within the current epoch and return the number done."""
        self._check_running()
        todo = min(count, self.steps_per_epoch - self._step_in_epoch)
        if self._stream is None:
            self._stream = self._batches.epoch(self.epoch_index, self._step_in_epoch)
        self._network.train()
        with torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []):
            self._clock.start()
            for _ in range(todo):
                self._train_on(next(self._stream))
        return todo

    def _train_on(self, batch: Batch) -> None:
        recipe = self.task.recipe
        t = self.step_index + 1
        rate = learning_rate(t, self.total_steps, peak=recipe.lr, warmup_steps=self._warmup_steps)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        # Seeded per step: dropout masks are then a function of (seed, t), and resuming needs no generator state.
        seed_device(derive(self.seed, "masks", self._rank, t), self.device)
        self._clock.mark("data")
        # The loss stays on the device: reading it here would synchronize at every step.
        self._loss_sum += self.optimizer.step(
            lambda: self._training_loss(batch),
            per_sample=lambda which: self._training_loss(batch.take(which), reduction="none"),
        )
        self._step_in_epoch += 1

    def _training_loss(self, batch: Batch, reduction: str = "mean") -> Tensor:
        with self._autocast:
            outputs = self._network(batch.images)
        smoothing = self.task.recipe.label_smoothing
        return batch_loss(outputs, batch, label_smoothing=smoothing, reduction=reduction)

    def epoch(self) -> dict[str, float]:
        """Train to the end of the current epoch, evaluate, and return its metrics.

        A loss that is not finite ends the run as `diverged`; the metrics of the last finite epoch are returned.
        """
        self.steps(self.steps_per_epoch)
        train_loss = float(distributed.sum_over_processes(self._loss_sum)) / (self.steps_per_epoch * self._world)
        error, loss = self._evaluate(self.data.validation)
        self._clock.mark("evaluation")
        if not all(map(math.isfinite, (train_loss, loss))):
            self.status = "diverged"
            return self.last_metrics
        self._close_epoch(train_loss, error, loss)
        return self.last_metrics

    def _close_epoch(self, train_loss: float, error: float, loss: float) -> None:
        """Append the metrics of the epoch to the history and advance to the next epoch."""
        measured = {
            metrics.TRAIN_LOSS: train_loss,
            metrics.VALIDATION_ERROR: error,
            metrics.VALIDATION_LOSS: loss,
            metrics.EXTRA_PROPAGATION: self.extra_propagation,
            metrics.REALIZED_EXTRA_PROPAGATION: self.pairs / self.step_index - 1,
            metrics.PAIRS: self.pairs,
            **self._clock.close_epoch(self.steps_per_epoch * self.task.recipe.batch_size),
        }
        self._append(measured)
        self._step_in_epoch, self._stream = 0, None
        self._loss_sum.zero_()

    def progress(self, every: int = 10) -> Iterator[Progress]:
        """Train to the end, yielding after every `every` steps and after every epoch."""
        while not self.finished:
            while self.steps(every):
                yield Progress(self.step_index, self.total_steps)
            yield Progress(self.step_index, self.total_steps, self.epoch())

    def _evaluate(self, split: Split) -> tuple[float, float]:
        return evaluate(self.model, self._batches.evaluation(split), len(split), self._autocast)

    def test(self) -> dict[str, float]:
        """Return error and loss on the test split. Nothing else reads that split."""
        error, loss = self._evaluate(self.data.test)
        return {metrics.TEST_ERROR: error, metrics.TEST_LOSS: loss}

    def sharpness(self) -> dict[str, float]:
        """Return the loss increase at radius rho and the gradient norm, on a fixed sample of the training images."""
        self.model.eval()
        sample = self._batches.sample(SHARPNESS_IMAGES)
        return measure_sharpness(self.model, lambda: batch_loss(self.model(sample.images), sample), self.rho)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a checkpoint atomically. Only rank 0 writes."""
        state = self._state()
        if self._rank == 0:
            write_checkpoint(state, path)
        distributed.barrier()

    @property
    def identity(self) -> str:
        """Task, method, seed and number of epochs as JSON: all inputs of the run.

        Of the data it holds sizes and labels, not the path: they may move. A search compares their digest as well.
        """
        described = self.data.describe()
        labels = zlib.crc32(self.data.train.labels.numpy().data)
        parts = {
            "task": self.task.model_dump(mode="json", exclude={"data": {"root", "workers"}}),
            "data": {**{name: described[name] for name in ("sizes", "classes", "shape")}, "labels": labels},
            "method": self.method.model_dump(mode="json"),
            "seed": self.seed,
            "epochs": self.total_epochs,
        }
        return json.dumps(parts, sort_keys=True)

    def _state(self) -> dict[str, Any]:
        return {
            **super()._state(),
            "step_in_epoch": self._step_in_epoch,
            "loss_sums": distributed.gather(self._loss_sum),
            "seconds": self._clock.read(),
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
        }

    def _load_state(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        super()._load_state(state)
        self._step_in_epoch = state["step_in_epoch"]
        if not 0 <= self.step_index <= self.total_steps:
            raise ValueError(f"step {self.step_index!r} of {self.total_steps}")
        if any(len(values) != self.epoch_index for values in self.history.values()):
            raise ValueError(f"the history must hold one value per epoch, of {self.epoch_index} epochs")
        self._loss_sum = distributed.own_share(state["loss_sums"]).to(self.device)
        self._clock.load(state["seconds"])
        self._stream = None
