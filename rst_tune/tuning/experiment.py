"""An experiment: a task, a space, a budget, resources. One frozen, validated object; its hash is its identity."""

import hashlib
import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, model_validator

from rst_tune.analysis.rungs import MIN_FINISHED
from rst_tune.errors import InputError
from rst_tune.method.ascent import build
from rst_tune.redaction import redact, register_url
from rst_tune.training.data import Dataset
from rst_tune.training.factories import resolve_factory
from rst_tune.training.models import build_model
from rst_tune.training.optimization import make_base_optimizer
from rst_tune.training.task import Task
from rst_tune.tuning import yaml_files
from rst_tune.tuning.axes import bounds
from rst_tune.tuning.backend.resources import Resources
from rst_tune.tuning.space import Space

__all__ = ["Experiment", "load_experiment"]

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(gt=0, lt=1)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Sampler(_Part):
    """How configurations are chosen: `front` (the largest expected gain of the front per compute), Optuna's `tpe`,
    `gp`, `nsga2` or `random`, or `grid` (every point of a space of lists).
    """

    name: Literal["front", "tpe", "gp", "nsga2", "random", "grid"] = "front"
    n_startup_trials: Count = 6
    storage: str | None = None
    """An Optuna storage URL; None keeps a journal file in the output directory."""


class Budget(_Part):
    """How much may be spent, confirmation included: propagation pairs, plain trainings (of the base optimizer at the
    recipe's length), trials (configurations), or device-hours.
    """

    pairs: Positive | None = None
    trainings: Positive | None = None
    trials: Count | None = None
    device_hours: Positive | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        given = [name for name in ("pairs", "trainings", "trials", "device_hours") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"give exactly one of pairs, trainings, trials, device_hours, but got {given or 'none'}")
        return self


class Fidelity(_Part):
    """How early a trial is judged: `prefix` at shares of its length, `full` not before its end.

    Rungs stand at 1/reduction_factor^k of the length, k = rungs … 1.
    """

    kind: Literal["prefix", "full"] = "prefix"
    reduction_factor: Annotated[int, Field(ge=2)] = 3
    rungs: Annotated[int, Field(ge=1, le=6)] = 2

    def epochs(self, total: int) -> list[int]:
        """Return the epochs of the rungs of a training of `total` epochs, ascending."""
        if self.kind == "full":
            return []
        steps = {math.ceil(total / self.reduction_factor**k) for k in range(1, self.rungs + 1)}
        return sorted(e for e in steps if e < total)


class Stopping(_Part):
    """Which rule stops trials at a rung (`halving.py`).

    `guarded` stops a trial only below `probability`, and only once `min_finished` trials have finished.
    """

    name: Literal["guarded", "pareto-asha", "asha", "none"] = "guarded"
    probability: Share = 0.05
    min_finished: Count = MIN_FINISHED


class Confirm(_Part):
    """Replication of the front's candidates on fresh shared seeds until each is settled.

    `budget_fraction` of the budget is kept for it. Each of `candidates` gets `min_seeds`, the uncertain ones up to
    `max_seeds`.
    """

    enabled: bool = True
    budget_fraction: Share = 0.25
    min_seeds: Count = 3
    max_seeds: Count = 10
    candidates: Count = 8
    probability: Share = 0.05


class Tracking(_Part):
    """Which MLflow store is used. `uri` None: MLFLOW_TRACKING_URI, else SQLite in the output directory."""

    enabled: bool = True
    uri: str | None = None
    experiment: str | None = None


class ReferencePoint(_Part):
    """The fixed reference point of the hypervolume.

    `error` None: 1.1 times that of the base optimizer at the recipe's length; `compute` None: a little beyond SAM at
    the longest length of the space.
    """

    error: Positive | None = None
    compute: Positive | None = None


class Experiment(_Part):
    """A whole experiment. Every configuration of the search is trained with `seeds` seeds."""

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
    reference_point: ReferencePoint = ReferencePoint()
    _search_path: tuple[str, ...] = PrivateAttr(())

    @model_validator(mode="after")
    def _check(self) -> Self:
        epochs = self.task.recipe.epochs
        if self.fidelity.kind != "full" and not self.fidelity.epochs(epochs):
            raise ValueError(
                f"task.recipe.epochs: {epochs} leave no room for a rung: raise it or use fidelity.kind: full"
            )
        shortest = self.shortest_horizon * epochs
        if shortest < 1.0:
            raise ValueError(
                f"space.horizon: a training has at least one epoch, but {self.shortest_horizon:g} of {epochs} epochs "
                f"is {shortest:.2g}: start the horizon at {1 / epochs:.2g} or raise task.recipe.epochs to "
                f"{math.ceil(1 / self.shortest_horizon)}"
            )
        if isinstance(self.space, Space) and self.space.rho_unit == "recipe" and not self.task.recipe.rho:
            raise ValueError(
                "space.rho_unit: recipe makes radii multiples of task.recipe.rho, which is 0: raise it, or use absolute"
            )
        if self.confirm.min_seeds > self.confirm.max_seeds:
            raise ValueError(
                f"confirm.min_seeds: {self.confirm.min_seeds} must not exceed "
                f"confirm.max_seeds: {self.confirm.max_seeds}"
            )
        self._check_sampler()
        return self

    def _check_sampler(self) -> None:
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
    def shortest_horizon(self) -> float:
        """The shortest length that the space allows, as a share of the recipe's epochs."""
        return min(self._horizons)

    @property
    def longest_horizon(self) -> float:
        """The longest length that the space allows."""
        return max(self._horizons)

    @property
    def _horizons(self) -> list[float]:
        if not isinstance(self.space, Space):
            return [1.0]
        return [*bounds(self.space.horizon), *(p["horizon"] for p in self.space.points_to_evaluate if "horizon" in p)]

    def identity(self) -> dict[str, Any]:
        """Return all that decides the results, as plain data.

        That excludes where trials run and where results go; a search may be continued on other machines, with its
        data at another path (its digest is compared instead) and with another password of its storage.
        """
        content = self.model_dump(
            mode="json",
            exclude={
                "description": True,
                "tracking": True,
                "resources": set(Resources.model_fields) - {"workers"},
                "sampler": {"storage"},
                "task": {"data": {"root", "workers"}},
            },
        )
        if isinstance(self.space, str):
            content["space"] = hashlib.sha256(Path(self.space).read_bytes()).hexdigest()
        return content

    @property
    def search_id(self) -> str:
        """The hash of the identity."""
        return hashlib.sha256(json.dumps(self.identity(), sort_keys=True).encode()).hexdigest()[:16]

    @property
    def search_path(self) -> tuple[str, ...]:
        """The folders where a model of the user's own is looked for besides the installed packages.

        They are those of the experiment's file and the current one, at the time when the experiment was loaded.
        """
        return self._search_path

    def import_model(self) -> None:
        """Import a model of the user's own, which runs its module. A failure is an InputError."""
        if ":" in self.task.model.name:
            resolve_factory(self.task.model.name, self.search_path)

    def check_model(self, data: Dataset) -> None:
        """Build the model once, so that one that cannot be trained is an InputError before anything starts.

        The same holds for a rule that does not fit it: one for normalization layers, or for the momentum.
        """
        self.import_model()
        model = build_model(self.task.model.name, data.classes, data.shape, self.task.model.options)
        if not isinstance(self.space, Space):
            return
        base = make_base_optimizer(self.task.recipe, model)
        for rule in dict.fromkeys([*self.space.rules, *(p.get("rule", "sam") for p in self.space.points_to_evaluate)]):
            try:
                build(rule).attach(model, base)
            except InputError as error:
                raise InputError(f"space.rules: {error}") from None

    def public(self) -> dict[str, Any]:
        """Return the experiment as plain data without credentials, for the event log and for files."""
        clean: dict[str, Any] = redact(self.model_dump(mode="json"))
        return clean


def _grid_of_lists(space: Space) -> None:
    try:
        list(space.grid())
    except InputError as error:
        raise ValueError(f"sampler.name: {error}") from None


def load_space(name: str, *, beside: Path | None = None) -> Space | str:
    """Return the space that a name, a YAML path or a Python path means; a Python file stays a path."""
    path = yaml_files.find("search_spaces", name, beside=beside)
    if path.suffix == ".py":
        yaml_files.load_function(path, "space")
        return str(path)
    return yaml_files.validate(Space, {"name": path.stem, **yaml_files.read_yaml(path)}, str(path))


def load_experiment(name: str, settings: Iterable[str] = (), *, search: bool = True) -> Experiment:
    """Return the experiment that a name or a path means, with `a.b=c` settings applied and absolute paths.

    With `search=False` it is for a single training: its lengths and rungs do not have to fit the recipe.
    """
    path = yaml_files.find("experiments", name)
    content = yaml_files.override({"name": path.stem, **yaml_files.read_yaml(path)}, settings)
    if not search:
        content |= {"space": {"families": ["constant"]}, "fidelity": {"kind": "full"}, "sampler": {}}
    if not isinstance(content.get("task"), dict):
        raise InputError(f"{path}: task: this field is needed: data, model and recipe")
    if content.get("space") is not None:
        content["space"] = _resolved_space(content["space"], path)
    experiment = yaml_files.validate(Experiment, content, str(path))
    register_url(experiment.sampler.storage)
    register_url(experiment.tracking.uri)
    data = experiment.task.data.resolved(_base_of(experiment.task.data.root, path.parent))
    experiment = experiment.model_copy(update={"task": experiment.task.model_copy(update={"data": data})})
    experiment._search_path = (str(path.parent), str(Path.cwd()))
    return experiment


def _base_of(root: str | None, folder: Path) -> Path:
    """Return where a relative data path starts: the current directory, or the YAML's own where only that has it."""
    here = Path.cwd()
    return folder if root is not None and not (here / root).exists() and (folder / root).exists() else here


def _resolved_space(given: Any, path: Path) -> dict[str, Any] | str:
    """Return the space of an experiment: a name, fields of its own, or (`base`) a named one with some changed."""
    if isinstance(given, str):
        given = {"base": given}
    if not isinstance(given, dict):
        raise InputError(f"{path}: space: give the name of a space, a path or its fields (got {given!r})")
    rest = {key: value for key, value in given.items() if key != "base"}
    if "base" not in given:
        return yaml_files.validate(Space, rest, f"{path}: space").model_dump()
    try:
        base = load_space(str(given["base"]), beside=path.parent)
    except InputError as error:
        raise InputError(f"{path}: space: {error}") from None
    if isinstance(base, Space):
        return yaml_files.validate(Space, base.model_dump(exclude_unset=True) | rest, f"{path}: space").model_dump()
    if rest:
        raise InputError(f"{path}: space.base: a Python space has no fields to override: edit {base}")
    return base
