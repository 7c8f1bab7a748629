"""Search spaces: which schedules, gammas, radii and rules may be sampled.

A space is data, in one of two parametrizations. In `cost` a sample is (family, c, shape, gamma): the schedule of that
family is built so that its exact mean is c, the extra propagation. In `native` a sample has the paper's own parameters.
Both are plain dicts, the `Params`; `trial_config` turns them into what is trained.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from rst_tune.errors import InputError
from rst_tune.method import schedules
from rst_tune.method.ascent import build
from rst_tune.method.coin import toss
from rst_tune.method.optimizer import expected_extra_propagation
from rst_tune.records import SchedulePreview, TrialConfig
from rst_tune.tuning import axes as axis_of
from rst_tune.tuning.axes import Axis, Range, Suggester

__all__ = ["Params", "Range", "Space", "Suggester", "schedule_preview", "trial_config"]

Params = dict[str, Any]


class Space(BaseModel):
    """A space as its YAML says it.

    `families` is a list of cost families, or (native) a mapping of the paper's families to their parameters. Give
    `gamma_rst` or `gamma_gnr`, not both; neither means gamma_gnr = 1, plain RST. `baselines` adds the base optimizer
    and SAM; `warm_start` begins with suggested points (`points.py`). `points_to_evaluate` are trained as they stand,
    before anything is sampled; a grid may consist of them alone.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: str = "unnamed"
    description: str = ""
    parametrization: Literal["cost", "native"] = "cost"
    families: list[str] | dict[str, dict[str, Axis]]
    extra_propagation: Axis = Range(low=0.05, high=1.0)
    shape: Axis = Range(low=0.0, high=1.0)
    gamma_rst: Axis | None = None
    gamma_gnr: Axis | None = None
    rho: Axis | None = None
    rules: Annotated[list[str], Field(min_length=1)] = ["sam"]
    rule_options: dict[str, dict[str, Any]] = {}
    points_to_evaluate: list[dict[str, Any]] = []
    warm_start: bool = True
    baselines: bool = True

    @model_validator(mode="after")
    def _check(self) -> Self:
        known = schedules.MEAN_FAMILIES if self.parametrization == "cost" else schedules.FAMILIES
        if not self.families and not self.points_to_evaluate:
            raise ValueError(
                "families: a space needs at least one family or one of `points_to_evaluate`, and both are empty"
            )
        for family in self.families:
            _named("families", known.__getitem__, family)
        for rule in [*self.rules, *self.rule_options]:
            _named("rules", build, rule, self.rule_options.get(rule))
        if self.gamma_rst is not None and self.gamma_gnr is not None:
            raise ValueError("gamma_rst: give it or gamma_gnr, not both: one follows from the other")
        if self.parametrization == "cost" and isinstance(self.families, dict):
            raise ValueError("families: in the cost parametrization it is a list of names")
        if self.parametrization == "native" and (isinstance(self.families, list) or self.gamma_rst is not None):
            raise ValueError(
                "families: in the native parametrization it maps names to parameters, and gamma is gamma_gnr"
            )
        self._check_native()
        self._check_bounds()
        self._check_points()
        return self

    def _check_native(self) -> None:
        """Build every family of a native space at the ends of its parameters: a wrong name or value shows here."""
        for family, axes in self.families.items() if isinstance(self.families, dict) else ():
            for end in (0, 1):
                own = {name: axis_of.bounds(axis)[end] for name, axis in axes.items()}
                _named(f"families.{family}", schedules.from_dict, {"family": family, **own})

    def _check_points(self) -> None:
        for point in self.points_to_evaluate:
            try:
                trial_config(self.fill_defaults(point), total_steps=100, rho=0.0)
            except (KeyError, TypeError) as error:
                raise ValueError(
                    f"points_to_evaluate: each has a schedule or a family and c, {point} lacks {error}"
                ) from error

    def fill_defaults(self, params: Mapping[str, Any]) -> Params:
        """Return given parameters with what they leave out: the first rule, gamma_gnr 1."""
        gamma = {} if "gamma_rst" in params else {"gamma_gnr": 1.0}
        return {**self._common(params.get("rule", self.rules[0]), None), **gamma, **params}

    def _check_bounds(self) -> None:
        for name, axis, high in (("extra_propagation", self.extra_propagation, 1.0), ("shape", self.shape, 1.0)):
            low_value, high_value = axis_of.bounds(axis)
            if not (low_value >= 0 and high_value <= high):
                raise ValueError(f"{name}: it must lie in [0, {high:g}], but it spans {low_value} … {high_value}")
        if self.gamma_rst is not None and axis_of.bounds(self.extra_propagation)[0] <= 0:
            raise ValueError("extra_propagation: gamma_gnr = gamma_rst / c needs c > 0: raise its lower end above 0")
        for name, positive in (("gamma_rst", self.gamma_rst), ("gamma_gnr", self.gamma_gnr), ("rho", self.rho)):
            if positive is not None and axis_of.bounds(positive)[0] < 0:
                raise ValueError(f"{name}: it must not be negative, but it starts at {axis_of.bounds(positive)[0]}")

    def sample(self, trial: Suggester) -> Params:
        """Return one sample. A parameter exists only in samples of the family that has it."""
        names = list(self.families)
        family = str(trial.suggest_categorical("family", names)) if len(names) > 1 else names[0]
        by_cost = self.parametrization == "cost"
        params = self._sample_cost(family, trial) if by_cost else self._sample_native(family, trial)
        rule = str(trial.suggest_categorical("rule", self.rules)) if len(self.rules) > 1 else self.rules[0]
        return params | self._common(rule, None if self.rho is None else axis_of.sample(self.rho, "rho", trial))

    def _common(self, rule: str, rho: float | None) -> Params:
        common: Params = {"rule": rule}
        if self.rule_options.get(rule):
            common["rule_options"] = self.rule_options[rule]
        return common if rho is None else common | {"rho": rho}

    def _sample_cost(self, family: str, trial: Suggester) -> Params:
        params: Params = {"family": family, "c": axis_of.sample(self.extra_propagation, "c", trial)}
        if family != "constant":
            params["shape"] = axis_of.sample(self.shape, "shape", trial)
        name, axis = self._gamma()
        return params | {name: axis_of.sample(axis, name, trial)}

    def _sample_native(self, family: str, trial: Suggester) -> Params:
        assert isinstance(self.families, dict)
        own = {n: axis_of.sample(axis, f"{family}.{n}", trial) for n, axis in self.families[family].items()}
        gamma = axis_of.sample(self._gamma_gnr(), "gamma_gnr", trial)
        return {"schedule": {"family": family, **own}, "gamma_gnr": gamma}

    def grid(self) -> Iterator[Params]:
        """Yield every point of a space of lists and numbers, without baselines and `points_to_evaluate`."""
        rhos = [None] if self.rho is None else list(axis_of.values(self.rho, "rho"))
        for family, rule, rho in itertools.product(self.families, self.rules, rhos):
            for point in self._grid_cost(family) if self.parametrization == "cost" else self._grid_native(family):
                yield point | self._common(rule, rho)

    def _grid_cost(self, family: str) -> Iterator[Params]:
        gamma_name, gamma_axis = self._gamma()
        shapes = [None] if family == "constant" else list(axis_of.values(self.shape, "shape"))
        costs, gammas = (
            axis_of.values(self.extra_propagation, "extra_propagation"),
            axis_of.values(gamma_axis, gamma_name),
        )
        for c, shape, gamma in itertools.product(costs, shapes, gammas):
            yield {"family": family, "c": c} | ({} if shape is None else {"shape": shape}) | {gamma_name: gamma}

    def _grid_native(self, family: str) -> Iterator[Params]:
        assert isinstance(self.families, dict)
        axes = {n: axis_of.values(axis, f"{family}.{n}") for n, axis in self.families[family].items()}
        for values in itertools.product(*axes.values(), axis_of.values(self._gamma_gnr(), "gamma_gnr")):
            own = dict(zip(axes, values, strict=False))
            yield {"schedule": {"family": family, **own}, "gamma_gnr": values[-1]}

    def sampled_params(self, params: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the suggested values that give `params`, or None where the space does not contain them."""
        own = self._own_axes(params)
        if own is None or not self.contains(params) or ("rho" in params) != (self.rho is not None):
            return None
        axes, values = own
        rho = {} if self.rho is None else {"rho": params["rho"]}
        return {"family": values["family"], "rule": params["rule"], **rho} | {name: values[name] for name in axes}

    def contains(self, params: Mapping[str, Any]) -> bool:
        """Return whether the space has this schedule, gamma and rule; parameters without rho have the recipe's."""
        own = self._own_axes(params)
        if own is None or params.get("rule") not in self.rules:
            return False
        axes, values = own
        if self.rho is not None and "rho" in params:
            axes, values = axes | {"rho": self.rho}, {**values, "rho": params["rho"]}
        return all(name in values and axis_of.contains(axis, values[name]) for name, axis in axes.items())

    def _own_axes(self, params: Mapping[str, Any]) -> tuple[dict[str, Axis], dict[str, Any]] | None:
        """Return the axes of the family and the values on them, both by the name they are suggested under."""
        if isinstance(self.families, dict):
            schedule = params.get("schedule", {})
            family = schedule.get("family")
            if family not in self.families or set(schedule) != {"family", *self.families[family]}:
                return None
            own = {f"{family}.{name}": axis for name, axis in self.families[family].items()}
            values = {f"{family}.{name}": schedule[name] for name in self.families[family]}
            return own | {"gamma_gnr": self._gamma_gnr()}, {**params, **values, "family": family}
        if params.get("family") not in self.families:
            return None
        shape: dict[str, Axis] = {} if params["family"] == "constant" else {"shape": self.shape}
        return {"c": self.extra_propagation, **shape} | dict([self._gamma()]), dict(params)

    def _gamma_gnr(self) -> Axis:
        return 1.0 if self.gamma_gnr is None else self.gamma_gnr

    def _gamma(self) -> tuple[str, Axis]:
        return ("gamma_gnr", self._gamma_gnr()) if self.gamma_rst is None else ("gamma_rst", self.gamma_rst)


def _named(field: str, check: Callable[..., Any], *given: Any) -> None:
    """Call the check; its error then names the field."""
    try:
        check(*given)
    except InputError as error:
        raise ValueError(f"{field}: {error}") from None


def trial_config(params: Mapping[str, Any], *, total_steps: int, rho: float) -> TrialConfig:
    """Return what is trained for `params` over `total_steps` steps, with its exact cost.

    >>> c = trial_config({"family": "constant", "c": 0.5, "gamma_rst": 1.0, "rule": "sam"}, total_steps=10, rho=0.1)
    >>> c.schedule, c.gamma_gnr, c.extra_propagation
    ({'family': 'constant', 'p': 0.5}, 2.0, 0.5)
    """
    rule, options = params.get("rule", "sam"), dict(params.get("rule_options", {}))
    schedule = _schedule(params, total_steps)
    mean = schedule.extra_propagation(total_steps)
    gamma_gnr = params["gamma_rst"] / mean if "gamma_rst" in params else params.get("gamma_gnr", 1.0)
    return TrialConfig(
        family=params.get("family") or params["schedule"]["family"],
        schedule=schedule.to_dict(),
        rule=rule,
        rule_options=options,
        rho=float(params.get("rho", rho)),
        gamma_gnr=float(gamma_gnr),
        gamma_rst=float(gamma_gnr * mean),
        extra_propagation=expected_extra_propagation(schedule, total_steps, rule, options),
        total_steps=total_steps,
        params=dict(params),
    )


def schedule_preview(config: TrialConfig, *, seed: int, width: int = 64) -> SchedulePreview:
    """Return p(t) and X_t at `width` steps spread over the training."""
    schedule, total = schedules.from_dict(config.schedule), config.total_steps
    steps = sorted({1 + (total - 1) * i // max(width - 1, 1) for i in range(width)})
    chances = [schedule(t, total) for t in steps]
    coins = [float(toss(seed, t, p)) for t, p in zip(steps, chances, strict=True)]
    return SchedulePreview(curve=tuple(round(p, 4) for p in chances), coins=tuple(coins))


def _schedule(params: Mapping[str, Any], total_steps: int) -> schedules.Schedule:
    if "schedule" in params:
        return schedules.from_dict(params["schedule"])
    return schedules.with_mean(params["family"], params["c"], total_steps, shape=params.get("shape", 0.0))
