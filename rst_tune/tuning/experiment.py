"""An experiment: a task, a space, a budget, resources. One frozen, validated object; its hash is its identity."""

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Discriminator, Field, PrivateAttr, Tag, ValidationError, model_validator

from rst_tune.errors import InputError
from rst_tune.records import Cost, Metric, Prior, RuleTimes, TrialConfig
from rst_tune.redaction import redact, register_url
from rst_tune.training.function import FunctionTask
from rst_tune.training.task import Task
from rst_tune.training.workload import ClassifierWorkload, Workload
from rst_tune.tuning import yaml_files
from rst_tune.tuning.axes import bounds
from rst_tune.tuning.backend.resources import Resources
from rst_tune.tuning.space import Space, TaskScale

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(gt=0, lt=1)]
# Below this many plain trainings a front of replicates costs most of the budget and what is delivered is worse: on the
# suite, with 20 of them, 0.92 of the best known hypervolume with one seed per point and 0.87 with three (docs/log.md).
REPLICATES_FROM = 30.0


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Sampler(_Part):
    """How configurations are chosen: `front` (the largest expected gain of the front per compute), Optuna's `tpe`,
    `gp`, `nsga2` or `random`, or `grid` (every point of a space of lists).
    """

    name: Literal["front", "tpe", "gp", "nsga2", "random", "grid"] = "front"
    n_startup_trials: Count = 4
    storage: str | None = None
    """An Optuna storage URL; None keeps a journal file in the output directory."""


class Budget(_Part):
    """How much may be spent, confirmation included: propagation pairs, plain trainings (of the base optimizer at the
    recipe's length) or epochs, trials (configurations), or device-hours. A text such as "60 trainings" works as well.

    >>> Budget.model_validate("60 trainings").trainings, Budget.model_validate("1.5 device-hours").device_hours
    (60.0, 1.5)
    """

    pairs: Positive | None = None
    trainings: Positive | None = None
    epochs: Positive | None = None
    trials: Count | None = None
    device_hours: Positive | None = None

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, given: Any) -> Any:
        if not isinstance(given, str):
            return given
        number, _, unit = given.strip().partition(" ")
        name = {"device-hours": "device_hours", "hours": "device_hours"}.get(unit, unit)
        if name not in cls.model_fields or not number.replace(",", "").replace(".", "", 1).isdigit():
            raise ValueError(f"a budget is a number and a unit ({', '.join(cls.model_fields)}), such as '60 trainings'")
        return {name: float(number.replace(",", ""))}

    @model_validator(mode="after")
    def _check(self) -> Self:
        names = list(type(self).model_fields)
        given = [name for name in names if getattr(self, name) is not None]
        if len(given) != 1:
            remedy = "--set 'budget=40 trainings' replaces that of the file" if given else "such as {trainings: 40}"
            raise ValueError(f"give exactly one of {', '.join(names)}, but got {given or 'none'}: {remedy}")
        return self

    def weight(self, config: TrialConfig) -> float:
        """Return what one pair of a configuration counts: one, or its cost where the budget is not in pairs."""
        return 1.0 if self.pairs is not None else config.pair_weight

    @property
    def unit(self) -> str:
        """The name of the field that is given."""
        return next(name for name in type(self).model_fields if getattr(self, name) is not None)

    @property
    def amount(self) -> float:
        """The whole budget in its own unit."""
        return float(getattr(self, self.unit))

    def pairs_per_unit(self, steps_per_epoch: int, epochs: int) -> float | None:
        """Return how many pairs one unit of the budget is; None for trials and device-hours."""
        pairs = {"pairs": 1.0, "trainings": float(epochs * steps_per_epoch), "epochs": float(steps_per_epoch)}
        return pairs.get(self.unit)


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

    Nothing is stopped unless it is asked for: on the tasks of the suite stopping gains nothing (docs/log.md).
    """

    name: Literal["none", "pareto-asha", "asha"] = "none"


class Confirm(_Part):
    """Replication, on fresh shared seeds, of what the answer is about.

    These are the `candidates` points that hold most of the posterior front's hypervolume, the base optimizer at its
    best length, and SAM. Each gets `min_seeds`; the budget for that is reserved during the search. What is left goes to
    further seeds, up to `max_seeds` each. Where `min_seeds` is not given and the budget is below 30 plain trainings, it
    is 1.
    """

    enabled: bool = True
    min_seeds: Count = 3
    max_seeds: Count = 10
    candidates: Count = 3


class Tracking(_Part):
    """Which MLflow store is used. `uri` None: MLFLOW_TRACKING_URI, else SQLite in the output directory.

    `system_metrics`: the load of the driver's machine is logged to the run of the search.
    """

    enabled: bool = True
    uri: str | None = None
    experiment: str | None = None
    system_metrics: bool = False


class ReferencePoint(_Part):
    """The fixed reference point of the hypervolume.

    `error` None: 1.1 times that of the base optimizer at the recipe's length; `compute` None: a little beyond SAM at
    the longest length of the space.
    """

    error: Positive | None = None
    compute: Positive | None = None


def _task_form(given: Any) -> str:
    function = isinstance(given, FunctionTask) or (isinstance(given, Mapping) and "function" in given)
    return "(function)" if function else "(classifier)"


AnyTask = Annotated[
    Annotated[Task, Tag("(classifier)")] | Annotated[FunctionTask, Tag("(function)")], Discriminator(_task_form)
]


class Experiment(_Part):
    """A whole experiment. Every configuration of the search is trained with `seeds` seeds.

    `cost` is what front, hypervolume, sampler and budget count: `compute` (forward-backward pairs), or `seconds`, for
    which the time of the passes and of each rule's own work is measured once, on a worker, before the first trial.
    """

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][\w.\-]*$")]
    description: str = ""
    task: AnyTask
    space: Space | str
    sampler: Sampler = Sampler()
    budget: Budget
    cost: Cost = "compute"
    fidelity: Fidelity = Fidelity()
    stopping: Stopping = Stopping()
    seed: Annotated[int, Field(ge=0, lt=2**62)] = 0  # trials count up from it
    seeds: Count = 1
    confirm: Confirm = Confirm()
    resources: Resources = Resources()
    tracking: Tracking = Tracking()
    reference_point: ReferencePoint = ReferencePoint()
    prior: Prior | None = None
    _search_path: tuple[str, ...] = PrivateAttr(())
    _times: RuleTimes | None = PrivateAttr(None)

    @model_validator(mode="after")
    def _afford_replicates(self) -> Self:
        budget = self.budget.trainings or (self.budget.epochs or math.inf) / self.task.epochs
        if budget < REPLICATES_FROM and "min_seeds" not in self.confirm.model_fields_set:
            self.__dict__["confirm"] = self.confirm.model_copy(update={"min_seeds": 1})  # the model is frozen
        return self

    @model_validator(mode="after")
    def _check(self) -> Self:
        epochs, prefix = self.task.epochs, self.task.PREFIX
        if self.fidelity.kind != "full" and not self.fidelity.epochs(epochs):
            raise ValueError(f"{prefix}.epochs: {epochs} leave no room for a rung: raise it or use fidelity.kind: full")
        shortest = min(self._horizons)
        if shortest * epochs < 1.0:
            raise ValueError(
                f"space.horizon: a training has at least one epoch, but {shortest:g} of {epochs} epochs is "
                f"{shortest * epochs:.2g}: start the horizon at {1 / epochs:.2g} or raise {prefix}.epochs to "
                f"{math.ceil(1 / shortest)}"
            )
        if isinstance(self.space, Space) and self.space.rho_unit == "recipe" and not self.task.rho:
            raise ValueError(
                f"space.rho_unit: recipe makes radii multiples of {prefix}.rho, which is 0: raise it, or use absolute"
            )
        seeds, most = self.confirm.min_seeds, self.confirm.max_seeds
        if seeds > most:
            raise ValueError(f"confirm.min_seeds: {seeds} must not exceed confirm.max_seeds: {most}")
        if isinstance(self.task, FunctionTask) and self.resources.workers > 1:
            raise ValueError(
                f"resources.workers: a training function runs on one worker, but got {self.resources.workers}: start "
                "further processes inside of it, or set workers to 1"
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
            try:
                list(self.space.grid())
            except InputError as error:
                raise ValueError(f"sampler.name: {error}") from None
        elif not self.space.families:
            raise ValueError("sampler.name: a space without families is a grid of its points: use grid")

    @property
    def metric(self) -> Metric:
        """What trainings are judged by."""
        return self.task.metric

    @property
    def longest_horizon(self) -> float:
        """The longest length that the space allows, as a share of the recipe's epochs."""
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
        if self.cost == "compute":  # searches from before there was a choice keep their identity
            del content["cost"]
        if self.prior is None:
            del content["prior"]
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

    def workload(self) -> Workload:
        """Return what is trained, with its data or its imported function."""
        if isinstance(self.task, FunctionTask):
            return self.task.workload(self.search_path)
        return ClassifierWorkload.load(self.task, self.search_path)

    @property
    def rules(self) -> list[str]:
        """The rules that the space may sample."""
        if not isinstance(self.space, Space):
            return []
        return [*self.space.rules, *(p.get("rule", "sam") for p in self.space.points_to_evaluate)]

    def scale(self, steps_per_epoch: int, *, exact: bool = True) -> TaskScale:
        """Return what turns sampled parameters into trainings."""
        task, workers = self.task, self.resources.workers
        return TaskScale(
            epochs=task.epochs,
            steps_per_epoch=steps_per_epoch,
            rho=task.rho,
            batch_size=None if task.batch_size is None else task.batch_size // workers,
            exact=exact,
            times=self._times,
        )

    def timed(self, times: RuleTimes | None) -> Self:
        """Return the experiment with the measured times by which its configurations cost seconds; None: pairs."""
        experiment = self.model_copy()
        experiment._times = times
        return experiment

    def public(self) -> dict[str, Any]:
        """Return the experiment as plain data without credentials, for the event log and for files."""
        clean: dict[str, Any] = redact(self.model_dump(mode="json"))
        return clean


def _validated(content: Mapping[str, Any], where: str, *search_path: Path) -> Experiment:
    """Return the experiment of these fields; the credentials in its URLs are redacted from then on."""
    experiment = yaml_files.validate(Experiment, content, where)
    register_url(experiment.sampler.storage)
    register_url(experiment.tracking.uri)
    experiment._search_path = tuple(map(str, search_path))
    return experiment


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
        raise InputError(f"{path}: task: this field is needed: data, model and recipe, or function")
    if content.get("space") is None:
        raise InputError(f"{path}: space: this field is needed: the name of a space (`rst-tune list spaces`) or a path")
    content["space"] = _resolved_space(content["space"], path)
    experiment = _validated(content, str(path), path.parent, Path.cwd())
    if isinstance(experiment.task, Task):
        data = experiment.task.data.resolved(_base_of(experiment.task.data.root, path.parent))
        experiment = experiment.model_copy(update={"task": experiment.task.model_copy(update={"data": data})})
    return experiment


def function_experiment(train: Callable[..., Any], **settings: Any) -> Experiment:
    """Return the experiment of a training function that is here already: fields of its task and of the experiment."""
    own = set(FunctionTask.model_fields) - {"function"}
    label = f"rst_tune.search({getattr(train, '__name__', type(train).__name__)})"
    if not callable(train):
        raise InputError(f"{label}: a function `def train(trial)` is needed, but got {train!r}")
    try:
        task = FunctionTask.of(train, **{name: value for name, value in settings.items() if name in own})
    except ValidationError as error:
        raise yaml_files.explained(FunctionTask, error, label) from None
    name = "".join(c if c.isalnum() or c in "_-." else "-" for c in getattr(train, "__name__", "search")).strip("-.")
    fields = {"name": name or "search", **{k: v for k, v in settings.items() if k not in own}, "task": task}
    fields["space"] = _resolved_space(fields["space"], Path.cwd() / label)
    return _validated(fields, label, Path.cwd())


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
