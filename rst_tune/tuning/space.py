"""Search spaces: which schedules, gammas, radii, rules, policies and lengths may be sampled.

A space is data, in one of two parametrizations. In `cost` a sample is (family, c, shape, gamma): the schedule of that
family is built so that its exact mean is c. In `native` a sample has the paper's own parameters. Both may have further
axes: the rule with its radius and options, the policy, the cap, and the horizon (the share of the recipe's epochs).
A sample is a plain dict, the `Params`; `trial_config` turns it into what is trained.
"""

import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import isfinite
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, field_validator, model_validator

from rst_tune.errors import InputError, unknown_name
from rst_tune.method import policies, schedules
from rst_tune.method.ascent import RULES, build
from rst_tune.method.checks import check_method
from rst_tune.method.coin import toss
from rst_tune.method.cost import expected_extra_propagation
from rst_tune.method.schedules.functionals import functionals
from rst_tune.records import RuleTimes, SchedulePreview, TrialConfig
from rst_tune.tuning import axes as axis_of
from rst_tune.tuning.axes import Axis, Range, Suggester

Params = dict[str, Any]
# The keys of `Params`; any other one is a spelling mistake.
PARAMS = (
    "family", "c", "shape", "schedule", "gamma_rst", "gamma_gnr", "rule", "rule_options", "policy", "policy_options",
    "cap", "rho", "rho_unit", "horizon",
)  # fmt: skip
# What a rule's radius is divided by to compare it with SAM's. ASAM's is in units of the weights: its authors use ten
# times SAM's (Kwon et al., ICML 2021, section 5).
RADIUS_SCALE = {"asam": 10.0}


OptionAxis = Annotated[
    Annotated[Any, Tag("number")]
    | Annotated[list[Any], Field(min_length=1), Tag("list")]
    | Annotated[Range, Tag("range")],
    Discriminator(axis_of.form),
]


class RuleAxes(BaseModel):
    """The axes of one rule: its radius, and any of its options as a value, a list or a range."""

    model_config = ConfigDict(frozen=True, extra="allow")
    __pydantic_extra__: dict[str, OptionAxis] = Field(init=False)
    rho: Axis | None = None

    @property
    def options(self) -> dict[str, Any]:
        """The axes of the options by name."""
        return self.model_extra or {}


class Space(BaseModel):
    """A space as its YAML says it.

    `families` is a list of cost families, or (native) a mapping of the paper's families to their parameters. Give
    `gamma_rst` or `gamma_gnr`, not both; neither means gamma_gnr = 1, plain RST. `rules` is a list of names, or maps
    names to axes of their own (`rho`, options); `rho` is the radius of rules without one. `rho_unit: recipe` makes
    radii multiples of the recipe's. `horizon` is the length as a share of the recipe's epochs. `baselines` adds the
    base optimizer at several lengths and SAM (`points.py`). `points_to_evaluate` are trained as they stand, before
    anything is sampled; a grid may consist of them alone.
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
    horizon: Axis = 1.0
    rho: Axis | None = None
    rho_unit: Literal["absolute", "recipe"] = "absolute"
    rules: Annotated[dict[str, RuleAxes], Field(min_length=1)] = {"sam": RuleAxes()}
    policies: Annotated[list[str], Field(min_length=1)] = ["coin"]
    cap: Axis | None = None
    points_to_evaluate: list[dict[str, Any]] = []
    baselines: bool = True

    @field_validator("rules", mode="before")
    @classmethod
    def _names_to_axes(cls, given: Any) -> Any:
        return {str(name): {} for name in given} if isinstance(given, list) else given

    @model_validator(mode="after")
    def _check(self) -> Self:
        known = schedules.MEAN_FAMILIES if self.parametrization == "cost" else schedules.FAMILIES
        if not self.families and not self.points_to_evaluate:
            raise ValueError(
                "families: a space needs at least one family or one of `points_to_evaluate`: both are empty"
            )
        for family in self.families:
            _named("families", known.__getitem__, family)
        for policy in self.policies:
            _named("policies", policies.build, policy)
        if self.gamma_rst is not None and self.gamma_gnr is not None:
            raise ValueError("gamma_rst: give it or gamma_gnr, not both: one follows from the other")
        if self.parametrization == "cost" and isinstance(self.families, dict):
            raise ValueError("families: in the cost parametrization it is a list of names")
        if self.parametrization == "native" and (isinstance(self.families, list) or self.gamma_rst is not None):
            raise ValueError(
                "families: in the native parametrization it maps names to parameters, and gamma is gamma_gnr"
            )
        self._check_rules()
        self._check_native()
        self._check_bounds()
        self._check_points()
        return self

    def _check_rules(self) -> None:
        """Build every rule with each value or end of its options: a wrong name or value shows here."""
        for rule, axes in self.rules.items():
            _named(f"rules.{rule}", build, rule)
            for name, axis in axes.options.items():
                for value in _ends(axis):
                    _named(f"rules.{rule}", build, rule, {name: value})
        self._check_one_pass()

    def _check_one_pass(self) -> None:
        """Raise where gamma, cap or policy could apply to no rule: rules of one pass have none of them."""
        alone = [rule for rule in self.rules if one_pass(rule)]
        if alone and "coin" not in self.policies:
            raise ValueError(
                f"policies: rule {alone[0]!r} takes one pass, which the coin decides before it, but the policies are "
                f"{self.policies}: add coin, or remove {alone[0]} from `rules`"
            )
        given = {"gamma_rst": self.gamma_rst, "gamma_gnr": self.gamma_gnr, "cap": self.cap}
        for name, axis in given.items():
            if axis is not None and axis != 1.0 and len(alone) == len(self.rules):
                raise ValueError(
                    f"{name}: rule {alone[0]!r} takes one pass, so there is no second gradient to mix with, but got "
                    f"{name} = {axis}: remove it and vary rho instead"
                )

    def _check_native(self) -> None:
        """Build every family of a native space at the ends of its parameters."""
        for family, axes in self.families.items() if isinstance(self.families, dict) else ():
            for end in (0, 1):
                own = {name: axis_of.bounds(axis)[end] for name, axis in axes.items()}
                _named(f"families.{family}", schedules.from_dict, {"family": family, **own})

    def _check_points(self) -> None:
        for point in self.points_to_evaluate:
            try:
                trial_config(self.fill_defaults(point), TaskScale(epochs=100, steps_per_epoch=1, rho=0.1))
            except InputError as error:
                raise ValueError(f"points_to_evaluate: {error}") from None
            except (KeyError, TypeError) as error:
                raise ValueError(
                    f"points_to_evaluate: each has a schedule or a family and c, {point} lacks {error}"
                ) from error

    def _check_bounds(self) -> None:
        for name in ("extra_propagation", "shape"):
            low, high = axis_of.bounds(getattr(self, name))
            if not (low >= 0 and high <= 1.0):
                raise ValueError(f"{name}: it must lie in [0, 1], but it spans {low} … {high}")
        if self.gamma_rst is not None and axis_of.bounds(self.extra_propagation)[0] <= 0:
            raise ValueError("extra_propagation: gamma_gnr = gamma_rst / c needs c > 0: raise its lower end above 0")
        if not (shortest := axis_of.bounds(self.horizon)[0]) > 0:
            raise ValueError(
                f"horizon: it is a share of the recipe's epochs and must be above 0, but it starts at {shortest}: 0.5 "
                "trains half as long"
            )
        radii = {f"rules.{rule}.rho": axes.rho for rule, axes in self.rules.items()}
        positive = {"gamma_rst": self.gamma_rst, "gamma_gnr": self.gamma_gnr, "rho": self.rho, "cap": self.cap, **radii}
        for name, given in positive.items():
            if given is not None and axis_of.bounds(given)[0] < 0:
                raise ValueError(f"{name}: it must not be negative, but it starts at {axis_of.bounds(given)[0]}")

    def sample(self, trial: Suggester) -> Params:
        """Return one sample. A parameter exists only in samples of the family or rule that has it."""
        family, rule = _choose(trial, "family", list(self.families)), _choose(trial, "rule", list(self.rules))
        values = {name: _value(axis, name, trial) for name, axis in self._axes(family, rule).items()}
        return self._params(family, rule, _choose(trial, "policy", self._policies(rule)), values)

    def varied(self) -> dict[str, Any]:
        """Return every axis with more than one value, by name; those of one family or rule begin with its name."""
        axes: dict[str, Any] = {"family": list(self.families), "rule": list(self.rules), "policy": self.policies}
        for family, rule in itertools.product(self.families, self.rules):
            axes |= self._axes(family, rule)
        axes = {"extra_propagation" if name == "c" else name: axis for name, axis in axes.items()}
        return {n: axis for n, axis in axes.items() if isinstance(axis, Range) or len(_values(axis, n)) > 1}

    def grid(self) -> Iterator[Params]:
        """Yield every point of a space of lists and numbers, without baselines and `points_to_evaluate`."""
        for family, rule in itertools.product(self.families, self.rules):
            axes = self._axes(family, rule)
            for policy in self._policies(rule):
                for values in itertools.product(*(_values(axis, name) for name, axis in axes.items())):
                    yield self._params(family, rule, policy, dict(zip(axes, values, strict=True)))

    def _policies(self, rule: str) -> list[str]:
        return ["coin"] if one_pass(rule) else self.policies

    def _axes(self, family: str, rule: str) -> dict[str, Any]:
        """Return the axes of a family and a rule by the name they are suggested under."""
        axes: dict[str, Any] = {}
        if isinstance(self.families, dict):
            axes |= {f"{family}.{name}": axis for name, axis in self.families[family].items()}
        else:
            axes["c"] = self.extra_propagation
            if family != "constant":
                axes["shape"] = self.shape
        if one_pass(rule):
            pass  # there is only one gradient: gamma has no meaning
        elif self.gamma_rst is not None:
            axes["gamma_rst"] = self.gamma_rst
        else:
            axes["gamma_gnr"] = 1.0 if self.gamma_gnr is None else self.gamma_gnr
        own = self.rules[rule]
        radius = own.rho if own.rho is not None else self.rho
        if radius is not None:
            axes["rho" if own.rho is None else f"{rule}.rho"] = radius
        axes |= {f"{rule}.{name}": axis for name, axis in own.options.items()}
        if self.cap is not None and not one_pass(rule):
            axes["cap"] = self.cap
        if self.horizon != 1.0:
            axes["horizon"] = self.horizon
        return axes

    def _params(self, family: str, rule: str, policy: str, values: Mapping[str, Any]) -> Params:
        """Return the parameters that suggested values mean."""
        schedule = {n.removeprefix(f"{family}."): v for n, v in values.items() if n.startswith(f"{family}.")}
        options = {n.removeprefix(f"{rule}."): v for n, v in values.items() if n.startswith(f"{rule}.")}
        native = isinstance(self.families, dict)
        params: Params = {"schedule": {"family": family, **schedule}} if native else {"family": family}
        params |= {n: v for n, v in values.items() if "." not in n}
        if "rho" in options:
            params["rho"] = options.pop("rho")
        params["rule"] = rule
        if self.rho_unit == "recipe" and "rho" in params:
            params["rho_unit"] = "recipe"
        if options:
            params["rule_options"] = options
        return params if policy == "coin" else params | {"policy": policy}

    def fill_defaults(self, params: Mapping[str, Any]) -> Params:
        """Return given parameters with what they leave out: the first rule and its fixed options, gamma_gnr 1."""
        rule = str(params.get("rule", next(iter(self.rules))))
        gamma = {} if "gamma_rst" in params or one_pass(rule) else {"gamma_gnr": 1.0}
        axes = self.rules.get(rule, RuleAxes()).options
        fixed = {name: axis for name, axis in axes.items() if not isinstance(axis, Range | list)}
        unit = {"rho_unit": "recipe"} if "rho" in params and self.rho_unit == "recipe" else {}
        return {"rule": rule, **({"rule_options": fixed} if fixed else {}), **gamma, **unit, **params}

    def sampled_params(self, params: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the suggested values that give `params`, or None where the space does not contain them.

        A length that they leave out is the recipe's, and a radius where the space has it in multiples of the recipe's.
        """
        schedule = dict(params.get("schedule", {}))
        family, rule = schedule.pop("family", params.get("family")), params.get("rule")
        policy = params.get("policy", "coin")
        if family not in self.families or rule not in self.rules or policy not in self._policies(rule):
            return None
        if isinstance(self.families, dict) != ("schedule" in params):
            return None
        axes, radius = self._axes(family, rule), "rho" if self.rules[rule].rho is None else f"{rule}.rho"
        recipe = ("horizon", radius) if self.rho_unit == "recipe" else ("horizon",)
        values: dict[str, Any] = {name: 1.0 for name in recipe if name in axes}
        values |= {f"{family}.{name}": value for name, value in schedule.items()}
        values |= {f"{rule}.{name}": value for name, value in params.get("rule_options", {}).items()}
        skip = ("schedule", "family", "rule", "rule_options", "policy", "rho", "rho_unit")
        values |= {name: value for name, value in params.items() if name not in skip}
        if "rho" in params:
            values[radius] = params["rho"]
        if set(axes) != set(values) or not all(_contains(axis, values[name]) for name, axis in axes.items()):
            return None
        return {"family": family, "rule": rule, "policy": policy, **values}


def one_pass(rule: str) -> bool:
    """Return whether a rule takes a single pass per step, so that there is only one gradient and gamma is 1."""
    return RULES[rule].passes_ahead


def _ends(axis: Any) -> list[Any]:
    if isinstance(axis, Range):
        return [int(end) if axis.integer else end for end in (axis.low, axis.high)]
    return axis if isinstance(axis, list) else [axis]


def _choose(trial: Suggester, name: str, choices: list[str]) -> str:
    return str(trial.suggest_categorical(name, choices)) if len(choices) > 1 else choices[0]


def _value(axis: Any, name: str, trial: Suggester) -> Any:
    if isinstance(axis, Range) and axis.integer:
        return trial.suggest_int(name, int(axis.low), int(axis.high), log=axis.log)
    if isinstance(axis, Range):
        return trial.suggest_float(name, axis.low, axis.high, log=axis.log)
    if isinstance(axis, list):
        return trial.suggest_categorical(name, axis) if len(axis) > 1 else axis[0]
    return axis


def _values(axis: Any, name: str) -> list[Any]:
    if isinstance(axis, Range):
        field = "extra_propagation" if name == "c" else name
        raise InputError(f"a grid needs lists, but {field} is the range {axis.low} … {axis.high}: list its values")
    return axis if isinstance(axis, list) else [axis]


def _contains(axis: Any, value: Any) -> bool:
    if isinstance(axis, Range):
        number = isinstance(value, int) or (isinstance(value, float) and not axis.integer)
        return number and axis.low <= value <= axis.high
    return value in (axis if isinstance(axis, list) else [axis])


def _named(field: str, check: Callable[..., Any], *given: Any) -> None:
    """Call the check; its error then names the field."""
    try:
        check(*given)
    except InputError as error:
        raise ValueError(f"{field}: {error}") from None


@dataclass(frozen=True, kw_only=True)
class TaskScale:
    """What a configuration needs to know of the task: the recipe's length and radius, and the batch size.

    `exact`: schedules are summed over every step of the training. A sampler that looks at thousands of candidates
    takes the mean of p(t) over a few steps and the rule's cost per ascent of a long training instead. `times`: the
    cost is in seconds.
    """

    epochs: int
    steps_per_epoch: int
    rho: float
    batch_size: int | None = None
    exact: bool = True
    times: RuleTimes | None = None

    def epochs_of(self, params: Mapping[str, Any]) -> int:
        """Return the whole number of epochs nearest to the sampled horizon."""
        horizon = float(params.get("horizon", 1.0))
        epochs = round(horizon * self.epochs) if isfinite(horizon) else 0
        if epochs < 1:
            raise InputError(
                f"a training has at least one epoch, but horizon = {horizon:g} of {self.epochs} epochs is less: "
                f"raise it to {1 / self.epochs:.2g} at least"
            )
        return epochs


def trial_config(params: Mapping[str, Any], scale: TaskScale) -> TrialConfig:
    """Return what is trained for `params`, with its exact cost.

    >>> scale = TaskScale(epochs=10, steps_per_epoch=1, rho=0.1)
    >>> c = trial_config({"family": "constant", "c": 0.5, "gamma_rst": 1.0, "rule": "sam", "horizon": 0.5}, scale)
    >>> c.schedule, c.gamma_gnr, c.extra_propagation, c.horizon, c.compute
    ({'family': 'constant', 'p': 0.5}, 2.0, 0.5, 0.5, 0.75)
    """
    rule, options = params.get("rule", "sam"), dict(params.get("rule_options", {}))
    epochs = scale.epochs_of(params)
    total_steps = epochs * scale.steps_per_epoch
    if "schedule" in params:
        schedule = schedules.from_dict(params["schedule"])
    else:
        schedule = schedules.with_mean(params["family"], params["c"], total_steps, shape=params.get("shape", 0.0))
    shape = functionals(schedule)
    if scale.exact:
        mean = schedule.extra_propagation(total_steps)
        extra = expected_extra_propagation(schedule, total_steps, rule, options, scale.batch_size)
    else:
        mean = shape.mean
        extra = mean * _cost_per_ascent(rule, json.dumps(options) if options else "{}", scale.batch_size)
    gamma_gnr = params["gamma_rst"] / mean if "gamma_rst" in params else params.get("gamma_gnr", 1.0)
    policy, cap = params.get("policy", "coin"), params.get("cap")
    policy_options = dict(params.get("policy_options", {}))
    if scale.exact:
        _check_params(params)
        check_method(build(rule, options), policies.build(policy, policy_options), gamma_gnr=gamma_gnr, cap=cap)
    unit = scale.rho if params.get("rho_unit") == "recipe" else 1.0
    rho = float(params["rho"]) * unit if "rho" in params else scale.rho
    strength = gamma_gnr * rho / (scale.rho * RADIUS_SCALE.get(rule, 1.0)) if scale.rho else 0.0
    config = TrialConfig(
        family=params.get("family") or params["schedule"]["family"],
        schedule=schedule.to_dict(),
        rule=rule,
        rule_options=options,
        policy=policy,
        policy_options=policy_options,
        cap=cap,
        rho=rho,
        gamma_gnr=float(gamma_gnr),
        gamma_rst=float(gamma_gnr * mean),
        extra_propagation=extra,
        horizon=epochs / scale.epochs,
        total_steps=total_steps,
        effect=strength * shape.weight,
        strain=strength * shape.peak**0.5,
        lateness=shape.lateness,
        params=dict(params),
    )
    return config if scale.times is None else config.timed(scale.times)


# A refresh that is due every k ascents, at the first one too, costs 1/k per ascent of a training this long.
LONG = 1000


@lru_cache(maxsize=1024)
def _cost_per_ascent(rule: str, options: str, batch_size: int | None) -> float:
    return build(rule, json.loads(options)).expected_pairs([1.0] * LONG, batch_size) / LONG


def _check_params(params: Mapping[str, Any]) -> None:
    for name in params:
        if name not in PARAMS:
            raise unknown_name("parameter", name, list(PARAMS))


def schedule_preview(config: TrialConfig, *, seed: int, width: int = 64) -> SchedulePreview:
    """Return p(t) and X_t at `width` steps spread over the training."""
    schedule, total = schedules.from_dict(config.schedule), config.total_steps
    steps = sorted({1 + (total - 1) * i // max(width - 1, 1) for i in range(width)})
    chances = [schedule(t, total) for t in steps]
    coins = [float(toss(seed, t, p)) for t, p in zip(steps, chances, strict=True)]
    return SchedulePreview(curve=tuple(round(p, 4) for p in chances), coins=tuple(coins))
