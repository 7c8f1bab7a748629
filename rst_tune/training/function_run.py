"""One training of a user's function: the `trial` that the function gets, and the run that drives it epoch by epoch."""

import json
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from rst_tune.errors import InputError
from rst_tune.method.optimizer import RST
from rst_tune.records import Metric
from rst_tune.training import metrics
from rst_tune.training.base import Progress, Training
from rst_tune.training.checkpoint import CheckpointError, write_checkpoint
from rst_tune.training.coroutine import Coroutine
from rst_tune.training.optimization import make_rst
from rst_tune.training.stateful import RandomState, check_readable, check_stateful, get_state, set_state
from rst_tune.training.task import Method

RESERVED = frozenset({*metrics.TIMINGS, metrics.PAIRS, metrics.EXTRA_PROPAGATION, metrics.REALIZED_EXTRA_PROPAGATION})
OF_THE_TRIAL = (*Method.model_fields, "total_steps", "seed", "timer")


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """What a run of a function is made of. `steps_per_epoch` None: what the function itself says.

    `on_optimizer` is called with the base optimizer, the model and the steps per epoch; `timer` at the end of every
    phase of a step.
    """

    name: str
    function: Callable[..., Any]
    method: Method
    metric: Metric
    rho: float
    seed: int
    epochs: int
    steps_per_epoch: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    device: str | None = None
    on_optimizer: Callable[[Optimizer, nn.Module, int], None] = lambda *_: None
    timer: Callable[[str], None] | None = None

    def checked_steps(self, given: int | None) -> int:
        """Return the steps per epoch that the function gives, after comparing them with those of the plan."""
        planned = self.steps_per_epoch
        steps = planned if given is None else given
        if not isinstance(steps, int) or isinstance(steps, bool) or steps < 1:
            raise InputError(
                f"steps_per_epoch must be a whole number above 0, but got {steps!r}: pass the number of step() calls "
                "per epoch to trial.optimizer(..., steps_per_epoch=len(loader))"
            )
        if planned is not None and steps != planned:
            raise InputError(
                f"every trial must have the {planned} steps per epoch that the search was planned with, but this one "
                f"has {steps}: the number of steps must not depend on the seed or on the node"
            )
        return steps


class FunctionTrial:
    """What a training function gets: its seed, its optimizer, its epochs, and where it reports.

    Attributes:
        seed: of this training. Python's, numpy's and torch's global generators are seeded with it already.
        total_epochs: the length of this training, which differs between trials: learning-rate schedules end there.
        device: where to train.
    """

    def __init__(self, run: "FunctionRun") -> None:
        self._run = run
        self.seed, self.total_epochs, self.device = run.spec.seed, run.spec.epochs, run.device

    def optimizer(
        self,
        base: Optimizer,
        model: nn.Module,
        *,
        steps_per_epoch: int | None = None,
        optimizer_class: type[RST] = RST,
        **settings: Any,
    ) -> RST:
        """Return `base` as the RST of this trial: its schedule, rule, radius and gamma.

        Args:
            base: any torch optimizer.
            model: the module with its parameters; it and the optimizer are saved and restored.
            steps_per_epoch: how often `step` is called per epoch, for example len(loader).
            optimizer_class: RST, or LightningRST.
            settings: other arguments of RST: clip, scaler, eps, weight_decay_in_ascent.
        """
        run, spec = self._run, self._run.spec
        if given := [name for name in OF_THE_TRIAL if name in settings]:
            raise InputError(f"{', '.join(given)} come from the trial: leave them out of trial.optimizer(...)")
        if run.optimizer is not None:
            raise InputError("trial.optimizer must be called once: put all parameters into one base optimizer's groups")
        run._steps_per_epoch = spec.checked_steps(steps_per_epoch)
        spec.on_optimizer(base, model, run._steps_per_epoch)
        fixed: dict[str, Any] = {"kind": optimizer_class, "rho": spec.rho, "seed": spec.seed, "timer": spec.timer}
        total_steps = spec.epochs * run._steps_per_epoch
        run.optimizer = make_rst(spec.method, base, model, total_steps=total_steps, **fixed, **settings)
        run.model, run.extra_propagation = model, run.optimizer.expected_extra_propagation()
        return run.optimizer

    def epochs(self, **state: Any) -> Iterator[int]:
        """Yield the numbers of the epochs that are left, and save and resume in between.

        Args:
            state: what else changes during training, by name: a learning-rate scheduler, an averaged model, a random
                generator. Model, optimizer and the global random state are saved by themselves.
        """
        for epoch in range(self.resume(**state), self.total_epochs):
            yield epoch
            self.end_epoch()

    def resume(self, **state: Any) -> int:
        """Restore the state of the last checkpoint, if there is one, and return the first epoch to train.

        For a loop that is not yours, such as a Trainer's; it calls `end_epoch` after each epoch.
        """
        run = self._run
        if run._in_loop:
            raise InputError("trial.epochs() must be called once: train in one loop over it")
        for name, each in state.items():
            check_stateful(name, each)
        own = {"optimizer": run.optimizer, "model": None if run.optimizer is None else run.optimizer.model}
        known = {id(each) for each in state.values()}
        extra = {f"trial's {name}": each for name, each in own.items() if each is not None and id(each) not in known}
        run._objects = {**extra, **state}
        if run._checkpoint is not None:
            run._load(run._checkpoint)
        run._in_loop = True
        run._pause()
        return run.epoch_index

    def restore_random_state(self) -> None:
        """Set the global random state of the checkpoint again, if there is one: a Trainer draws before it begins."""
        if self._run._checkpoint is not None:
            RandomState(self._run._checkpoint["random"]).set()

    def report(self, value: float | None = None, /, **values: float) -> None:
        """Report the metric of the epoch, once per epoch; other numbers are logged beside it.

        Args:
            value: the metric on the validation data. It may be given by its name instead.
            values: the metric by its name, and other numbers.
        """
        name = self._run.spec.metric.name
        if not self._run._in_loop:
            raise InputError("trial.report must be called inside of the loop over trial.epochs()")
        if value is None and name not in values:
            raise InputError(
                f"trial.report needs the metric {name!r}, but got {sorted(values) or 'nothing'}: "
                f"trial.report(value, ...) or trial.report({name}=...)"
            )
        if reserved := RESERVED & set(values):
            raise InputError(f"{', '.join(sorted(reserved))} are measured by the search: report them by another name")
        found = {name: values[name] if value is None else value, **values}
        self._run._reported = {each: _number(each, number) for each, number in found.items()}

    def end_epoch(self) -> None:
        """End an epoch. `epochs` calls it."""
        self._run._close_epoch()
        self._run._pause()


class FunctionRun(Training):
    """One training of a user's function.

    The function runs in a thread that waits at the end of each epoch. The global random state is the run's own while
    the function runs, so one process can train several runs in sequence or interleaved.
    """

    def __init__(self, spec: RunSpec) -> None:
        super().__init__(spec.seed, spec.epochs, spec.device)
        self.spec = spec
        self.optimizer: RST | None = None
        self._objects: dict[str, Any] = {}
        self._checkpoint: dict[str, Any] | None = None
        self._reported: dict[str, float] | None = None
        self._random = RandomState.seeded(spec.seed)
        self._in_loop = self._readable = False
        self._steps_per_epoch = 0
        self._begun = 0.0
        self._coroutine = Coroutine(self._call)

    # --- what the worker uses -----------------------------------------------------------------------------------

    @property
    def error(self) -> float | None:
        """Error of the last epoch with a finite metric."""
        values = self.history.get(self.spec.metric.name)
        return self.spec.metric.error(values[-1]) if values else None

    @property
    def pairs(self) -> float:
        """Number of forward-backward passes since the start."""
        return self.optimizer.pairs if self.optimizer is not None else 0.0

    def epoch(self) -> dict[str, float]:
        """Let the function train to the end of its current epoch, and return the metrics."""
        self._check_running()
        self._open()
        if not self._resume() and not self.finished:
            raise InputError(
                f"{self.spec.name} must train in `for epoch in trial.epochs():` to the last epoch, but it left the "
                f"loop after {self.epoch_index} of {self.total_epochs} epochs: remove the break, the search itself "
                "stops trials"
            )
        return self.last_metrics

    def progress(self) -> Iterator[Progress]:
        """Train to the end, yielding after every epoch, which is the step."""
        while not self.finished:
            measured = self.epoch()
            yield Progress(self.epoch_index, self.total_epochs, measured)

    def test(self) -> dict[str, float]:
        """Let the complete function go on after its loop, and return what it returns as the error of the test set."""
        self._open()
        self._resume()
        value = self._coroutine.result
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise InputError(
                f"after its loop {self.spec.name} must return the {self.spec.metric.name} on the test set, a number, "
                f"but it returned {value!r}: without a test set leave it so, and only the validation data are used"
            )
        return {metrics.TEST_ERROR: self.spec.metric.error(float(value))}

    def close(self) -> None:
        """End the function where it waits."""
        self._coroutine.close()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a checkpoint atomically."""
        states = {name: get_state(each) for name, each in self._objects.items()}
        if not self._readable:
            check_readable(states)
            self._readable = True
        write_checkpoint({**self._state(), "objects": states, "random": self._random.state}, path)

    def restore(self, path: str | os.PathLike[str]) -> None:
        """Continue from a checkpoint of the same function, method, seed and number of epochs."""
        super().restore(path)
        self._open()

    def _load_state(self, state: dict[str, Any]) -> None:
        super()._load_state(state)
        if self.epoch_index == 0 or self.status == "diverged":
            raise ValueError(f"status {self.status!r} after epoch {self.epoch_index!r}")
        self._checkpoint = state

    @property
    def identity(self) -> str:
        """Function, method, seed and number of epochs as JSON."""
        spec = self.spec
        method = spec.method.model_dump(mode="json")
        parts = {"function": spec.name, "options": dict(spec.options), "method": method}
        return json.dumps({**parts, "seed": spec.seed, "epochs": spec.epochs}, sort_keys=True, default=str)

    def probe(self) -> None:
        """Let the function run until it ends, or until `on_optimizer` or `timer` stops it."""
        try:
            while self._resume() and not self.finished:
                pass
        finally:
            self.close()

    # --- the thread of the function -----------------------------------------------------------------------------

    def _call(self, pause: Callable[[], None]) -> Any:
        self._pause = pause
        torch.set_num_threads(torch.get_num_threads())  # OpenMP counts threads per thread
        return self.spec.function(FunctionTrial(self), **self.spec.options)

    def _open(self) -> None:
        """Let the function run to its loop."""
        if not self._in_loop and not self._resume():
            raise InputError(
                f"{self.spec.name} must train in `for epoch in trial.epochs():`, but it returned without it"
            )

    def _resume(self) -> bool:
        outside = RandomState()
        self._random.set()
        self._begun = time.perf_counter()
        try:
            return self._coroutine.resume()
        finally:
            self._random = RandomState()
            outside.set()

    def _load(self, state: dict[str, Any]) -> None:
        try:
            if set(state["objects"]) != set(self._objects):
                raise ValueError(f"it holds {sorted(state['objects'])}, the function has {sorted(self._objects)}")
            for name, each in self._objects.items():
                set_state(each, state["objects"][name])
            RandomState(state["random"]).set()
        except Exception as error:  # the values come from a file and may have any type
            raise CheckpointError(f"the checkpoint does not fit {self.spec.name}: {error!r}") from error

    def _close_epoch(self) -> None:
        reported, opt = self._reported, self.optimizer
        if opt is None:
            raise InputError(
                f"{self.spec.name} must train with trial.optimizer(base, model, steps_per_epoch=...), but it never "
                "called it"
            )
        if reported is None:
            raise InputError(
                f"each epoch must end with trial.report(...), but epoch {self.epoch_index + 1} did not: "
                "call it once inside of the loop over trial.epochs()"
            )
        planned = self._steps_per_epoch
        if (done := opt.t - planned * self.epoch_index) != planned:
            raise InputError(
                f"an epoch must take {planned} optimizer steps, as trial.optimizer(..., steps_per_epoch={planned}) "
                f"says, but epoch {self.epoch_index + 1} took {done}: pass steps_per_epoch={done}"
            )
        value = reported[self.spec.metric.name]
        if not math.isfinite(value):
            self.status = "diverged"
            return
        if self.spec.metric.error(value) < 0:
            raise InputError(
                f"no value of {self.spec.metric.name} may be better than {self.spec.metric.ideal:g}, but {value:g} was "
                "reported: set `best` of the metric to a value that is never passed, or correct its direction"
            )
        now = time.perf_counter()
        self._append(
            {
                **reported,
                metrics.EXTRA_PROPAGATION: self.extra_propagation,
                metrics.REALIZED_EXTRA_PROPAGATION: opt.pairs / opt.t - 1,
                metrics.PAIRS: opt.pairs,
                metrics.SECONDS: now - self._begun,
            }
        )
        self._begun, self._reported = now, None


def _number(name: str, value: Any) -> float:
    """Return a reported number: an int, a float, a numpy number or a tensor of one element."""
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError):
        raise InputError(f"trial.report takes numbers, but {name} is of type {type(value).__name__}") from None
