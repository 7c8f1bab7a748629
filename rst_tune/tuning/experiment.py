"""An experiment: a task, a space, a budget, resources. One frozen, validated object; its hash is its identity."""

import hashlib
import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from rst_tune.errors import InputError
from rst_tune.training.task import Task
from rst_tune.tuning import files
from rst_tune.tuning.space import Space

__all__ = ["Experiment", "load_experiment"]

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(gt=0, lt=1)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Sampler(_Part):
    """Who draws: `front` (the largest expected gain of the front for its compute), Optuna's `tpe`, `gp`, `nsga2` or
    `random`, or `grid` (every point of a space of lists).
    """

    name: Literal["front", "tpe", "gp", "nsga2", "random", "grid"] = "front"
    startup: Count = 6
    storage: str | None = None  # an Optuna storage URL; None keeps a journal file in the output directory


class Budget(_Part):
    """How much may be spent, confirmation included: propagation pairs, trials, or device-hours. Exactly one."""

    pairs: Positive | None = None
    trials: Count | None = None
    device_hours: Positive | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        given = [name for name in ("pairs", "trials", "device_hours") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"give exactly one of pairs, trials, device_hours, but got {given or 'none'}")
        return self


class Fidelity(_Part):
    """How early a trial is judged.

    `prefix` judges one training at shares of its length; `rescaled` trains whole short runs and promotes them;
    `full` judges nothing before its end. Rungs stand at 1/reduction^k of the horizon, k = rungs … 1.
    """

    kind: Literal["prefix", "rescaled", "full"] = "prefix"
    reduction: Annotated[int, Field(ge=2)] = 3
    rungs: Annotated[int, Field(ge=1, le=6)] = 2

    def epochs(self, horizon: int) -> list[int]:
        """Return the epochs of the rungs below the horizon, ascending."""
        if self.kind == "full":
            return []
        steps = {math.ceil(horizon / self.reduction**k) for k in range(1, self.rungs + 1)}
        return sorted(e for e in steps if e < horizon)


class Stopping(_Part):
    """Who stops a trial at a rung. `probability`: below it a trial may be stopped by `guarded`."""

    name: Literal["guarded", "pareto-asha", "asha", "none"] = "guarded"
    probability: Share = 0.05
    minimum: Count = 8


class Confirm(_Part):
    """Retraining the candidates of the front on fresh shared seeds until each is settled.

    `share` of the budget is kept for it. `seeds` is the most a candidate gets, `first` what each gets before the
    most uncertain go on alone, `candidates` how many are taken up.
    """

    enabled: bool = True
    share: Share = 0.25
    seeds: Count = 10
    first: Count = 3
    candidates: Count = 8
    probability: Share = 0.05


class Resources(_Part):
    """What one worker gets, and how many a trial has: `workers` above 1 trains data-parallel.

    `concurrent` bounds the trials at a time; None: as many as the cluster holds.
    """

    cpu: Positive = 1.0
    gpu: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    workers: Count = 1
    concurrent: Count | None = None
    retries: Annotated[int, Field(ge=0)] = 2
    time_limit_minutes: Positive | None = None
    checkpoint_seconds: Annotated[float, Field(ge=0)] = 10.0

    @field_validator("gpu")
    @classmethod
    def _whole_or_fraction(cls, value: float) -> float:
        if value > 1 and value != int(value):
            raise ValueError("a trial takes a fraction of one GPU or a whole number of GPUs: use 0.5, 1, 2 …")
        return value


class Tracking(_Part):
    """Where MLflow is. `uri` None: the environment's MLFLOW_TRACKING_URI, else SQLite in the output directory."""

    enabled: bool = True
    uri: str | None = None
    experiment: str | None = None


class Reference(_Part):
    """The fixed reference point of the hypervolume."""

    error: Positive | None = None
    extra_propagation: Positive = 1.1


class Experiment(_Part):
    """A whole experiment. `seeds` is how many seeds every configuration of the search is trained with."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][\w.\-]*$")]
    description: str = ""
    task: Task
    space: Space | str
    sampler: Sampler = Sampler()
    budget: Budget
    fidelity: Fidelity = Fidelity()
    stopping: Stopping = Stopping()
    seed: Annotated[int, Field(ge=0)] = 0
    seeds: Count = 1
    confirm: Confirm = Confirm()
    resources: Resources = Resources()
    tracking: Tracking = Tracking()
    reference: Reference = Reference()

    @model_validator(mode="after")
    def _check(self) -> Self:
        horizon = self.task.recipe.epochs
        if self.fidelity.kind != "full" and not self.fidelity.epochs(horizon):
            raise ValueError(
                f"task.recipe.epochs: {horizon} leave no room for a rung: raise it or use fidelity.kind: full"
            )
        if self.seeds > 1 and self.fidelity.kind == "rescaled":
            raise ValueError(
                f"seeds: rescaled fidelity promotes single runs, so not {self.seeds} but 1: confirmation adds seeds"
            )
        if self.confirm.first > self.confirm.seeds:
            raise ValueError(f"confirm.first: {self.confirm.first} must not exceed confirm.seeds: {self.confirm.seeds}")
        self._check_draws()
        return self

    def _check_draws(self) -> None:
        grid = self.sampler.name == "grid"
        if isinstance(self.space, str):
            if grid:
                raise ValueError("sampler.name: grid needs a space of lists, and a Python space has none: use tpe")
            return
        if grid:
            _grid_of_lists(self.space)
        elif not self.space.families:
            raise ValueError("sampler.name: a space without families is a grid of its points: use grid")

    @property
    def search_id(self) -> str:
        """The identity: a hash of all that decides the results, so not of resources and tracking."""
        content = self.model_dump(mode="json", exclude={"resources", "tracking", "description"})
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def _grid_of_lists(space: Space) -> None:
    try:
        list(space.grid())
    except InputError as error:
        raise ValueError(f"sampler.name: {error}") from None


def load_space(name: str, *, beside: Path | None = None) -> Space | str:
    """Return the space that a name, a YAML path or a Python path means; a Python file stays a path."""
    path = files.find("search_spaces", name, beside=beside)
    if path.suffix == ".py":
        files.load_function(path, "space")
        return str(path)
    return files.validate(Space, {"name": path.stem, **files.read_yaml(path)}, str(path))


def load_experiment(name: str, settings: Iterable[str] = ()) -> Experiment:
    """Return the experiment that a name or a path means, with `a.b=c` settings applied."""
    path = files.find("experiments", name)
    content = files.override({"name": path.stem, **files.read_yaml(path)}, settings)
    if not isinstance(content.get("task"), dict):
        raise InputError(f"{path}: task: this field is needed: data, model and recipe")
    if content.get("space") is not None:
        content["space"] = _resolved_space(content["space"], path)
    return files.validate(Experiment, content, str(path))


def _resolved_space(given: Any, path: Path) -> dict[str, Any] | str:
    """Return the space an experiment means: a name, fields of its own, or (`base`) a named one with some changed."""
    if isinstance(given, str):
        given = {"base": given}
    if not isinstance(given, dict):
        raise InputError(f"{path}: space: give the name of a space, a path or its fields (got {given!r})")
    rest = {key: value for key, value in given.items() if key != "base"}
    if "base" not in given:
        return files.validate(Space, rest, f"{path}: space").model_dump()
    try:
        base = load_space(str(given["base"]), beside=path.parent)
    except InputError as error:
        raise InputError(f"{path}: space: {error}") from None
    if isinstance(base, Space):
        return files.validate(Space, base.model_dump(exclude_unset=True) | rest, f"{path}: space").model_dump()
    if rest:
        raise InputError(f"{path}: space.base: a Python space has no fields to override: edit {base}")
    return base
