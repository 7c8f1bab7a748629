"""A user's training function as a workload: its configuration, its checks, its trainings."""

import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar

from pydantic import Field, PrivateAttr, field_validator
from torch import nn
from torch.optim import Optimizer

from rst_tune.errors import InputError
from rst_tune.records import Metric
from rst_tune.training.clock import synchronize
from rst_tune.training.coroutine import Stopped
from rst_tune.training.factories import check_factory_name
from rst_tune.training.function_run import FunctionRun, RunSpec
from rst_tune.training.task import Frozen, Method, Positive
from rst_tune.training.user_code import UserCode, function_name
from rst_tune.training.workload import LEAST_STEPS, StepTime, check_rules

Count = Annotated[int, Field(ge=1)]


class FunctionTask(Frozen):
    """A function of the user's that trains, named `module:function`.

    `epochs` is the length of one plain training, `rho` the radius of SAM, and `options` are passed to the function by
    name. `steps_per_epoch` None: the function is called once before the search, up to trial.optimizer, to find out.
    """

    PREFIX: ClassVar[str] = "task"
    function: str
    epochs: Count
    metric: Metric = Metric(unit="")
    rho: Positive = 0.05
    steps_per_epoch: Count | None = None
    options: dict[str, Any] = Field(default_factory=dict)
    _function: Callable[..., Any] | None = PrivateAttr(None)

    @field_validator("function")
    @classmethod
    def _named(cls, name: str) -> str:
        return name if name.startswith("__main__:") else check_factory_name(name, "training function")

    @field_validator("metric", mode="before")
    @classmethod
    def _without_unit(cls, given: Any) -> Any:
        if isinstance(given, Metric):
            return given
        given = {"name": given} if isinstance(given, str) else given
        return {**asdict(Metric(unit="")), **given} if isinstance(given, Mapping) else given

    @property
    def batch_size(self) -> None:
        """Not known."""
        return None

    @classmethod
    def of(cls, function: Callable[..., Any], **fields: Any) -> "FunctionTask":
        """Return the task of a function that is here already."""
        task = cls.model_validate({"function": function_name(function), **fields})
        task._function = function
        return task

    def workload(self, search_path: tuple[str, ...] = ()) -> "FunctionWorkload":
        """Return the workload. This imports the function."""
        if self._function is None:
            return FunctionWorkload(self, UserCode.of_name(self.function, search_path))
        plain = FunctionTask.model_validate(self.model_dump())  # without the function, which travels as code
        return FunctionWorkload(plain, UserCode.of_function(self._function))


@dataclass(frozen=True)
class FunctionWorkload:
    """A user's function; see `workload.Workload`."""

    task: FunctionTask
    code: UserCode

    @cached_property
    def steps_per_epoch(self) -> int:
        """As the task says, else as the function says when it is called up to trial.optimizer."""
        return self.task.steps_per_epoch or self._probe(())

    def check(self, rules: Iterable[str], workers: int = 1) -> None:  # noqa: ARG002  of the protocol
        """Call the function up to trial.optimizer, unless the steps per epoch are given."""
        if self.task.steps_per_epoch is None:
            self.__dict__["steps_per_epoch"] = self._probe(rules)  # what cached_property would keep
        else:
            self.import_code()

    def _probe(self, rules: Iterable[str]) -> int:
        found: list[int] = []

        def stop(base: Optimizer, model: nn.Module, steps: int) -> None:
            check_rules(rules, model, base)
            found.append(steps)
            raise Stopped

        run = self._run(Method(schedule={"family": "constant", "p": 0.0}), on_optimizer=stop)
        try:
            run.probe()
        except InputError as error:
            field = "" if str(error).startswith("space.") else "task.function: "
            raise InputError(f"{field}{error}") from error
        except Exception as error:
            raise InputError(
                f"task.function: {self.task.function} must run up to trial.optimizer on this machine, but raised "
                f"{type(error).__name__}: {error}. Correct it; where it can run on the workers only, give "
                "task.steps_per_epoch"
            ) from error
        if not found:
            raise InputError(
                f"task.function: {self.task.function} must train with trial.optimizer(base, model, "
                "steps_per_epoch=...), but it ended without it"
            )
        return found[0]

    def describe(self, *, gpu: bool) -> dict[str, Any]:
        """Return the function's name and the digest of its source."""
        return {"name": self.task.function, "digest": self.code.digest, "precision": "cuda" if gpu else "cpu"}

    def start(
        self,
        method: Method,
        *,
        seed: int,
        epochs: int,
        device: str | None = None,
        replicate: bool = False,  # noqa: ARG002  the function splits its data itself, by its seed if it likes
    ) -> FunctionRun:
        """Return a run that has not begun."""
        return self._run(method, seed=seed, epochs=epochs, device=device)

    def _run(self, method: Method, **changes: Any) -> FunctionRun:
        task = self.task
        planned = self.__dict__.get("steps_per_epoch", task.steps_per_epoch)
        spec = {"seed": 0, "epochs": task.epochs, "steps_per_epoch": planned, "options": task.options, **changes}
        function = self.code.load()
        return FunctionRun(
            RunSpec(name=task.function, function=function, method=method, metric=task.metric, rho=task.rho, **spec)
        )

    def timed_steps(self, method: Method, device: str | None, seconds: float = 2.0) -> list[StepTime]:
        """Call the function and take the time from the end of one step to the end of the next one in its epoch.

        Where an epoch has one step only, validation is included.
        """
        per_epoch = self.steps_per_epoch
        found: list[StepTime] = []
        last, until = (0.0, 0.0, 0), math.inf

        def timer(phase: str) -> None:
            nonlocal last, until
            opt = run.optimizer
            if phase != "step" or opt is None:
                return
            synchronize(run.device)
            now = (time.perf_counter(), opt.pairs, opt.ascents)
            if opt.t % per_epoch or (per_epoch == 1 and opt.t):
                found.append(StepTime(now[0] - last[0], now[1] - last[1], now[2] > last[2]))
            last, until = now, min(until, now[0] + seconds)
            if len(found) >= LEAST_STEPS and now[0] > until:
                raise Stopped

        epochs = max(self.task.epochs, math.ceil(2 * LEAST_STEPS / per_epoch))
        run = self._run(method, device=device, timer=timer, epochs=epochs)
        run.probe()
        return found

    def import_code(self) -> None:
        """Import the function."""
        self.code.load()
