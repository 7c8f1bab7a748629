"""Search spaces: which schedules, gammas, radii and rules may be drawn.

A space is data. It has one of two coordinate systems. In `cost` a draw is (family, c, shape, gamma): the schedule
of that family is built so that its exact mean is c, the extra propagation. In `native` a draw has the paper's own
parameters. Whatever was drawn is a plain dict, the `coordinates`; `configuration` turns it into what is trained.
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
from rst_tune.tuning import axes as axis_of
from rst_tune.tuning.axes import Axis, Range, Suggester

__all__ = ["Coordinates", "Range", "Space", "Suggester", "configuration", "picture"]

Coordinates = dict[str, Any]


class Space(BaseModel):
    """A space as its YAML says it.

    `families` is a list of cost families, or (native) a mapping of the paper's families to their parameters. Give
    `gamma_rst` or `gamma_gnr`, not both; neither means gamma_gnr = 1, plain RST. `ends` adds the base optimizer
    and SAM as the two ends of the front; `priors` begins with points that are known to be good (`priors.py`).
    `points` are evaluated as they stand, before anything is drawn; a grid may consist of them alone.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: str = "unnamed"
    description: str = ""
    coordinates: Literal["cost", "native"] = "cost"
    families: list[str] | dict[str, dict[str, Axis]]
    extra_propagation: Axis = Range(low=0.05, high=1.0)
    shape: Axis = Range(low=0.0, high=1.0)
    gamma_rst: Axis | None = None
    gamma_gnr: Axis | None = None
    rho: Axis | None = None
    rules: Annotated[list[str], Field(min_length=1)] = ["sam"]
    rule_options: dict[str, dict[str, Any]] = {}
    points: list[dict[str, Any]] = []
    priors: bool = True
    ends: bool = True

    @model_validator(mode="after")
    def _check(self) -> Self:
        known = schedules.MEAN_FAMILIES if self.coordinates == "cost" else schedules.FAMILIES
        if not self.families and not self.points:
            raise ValueError("families: a space needs at least one family or one of `points`, and both are empty")
        for family in self.families:
            _named("families", known.__getitem__, family)
        for rule in [*self.rules, *self.rule_options]:
            _named("rules", build, rule, self.rule_options.get(rule))
        if self.gamma_rst is not None and self.gamma_gnr is not None:
            raise ValueError("gamma_rst: give it or gamma_gnr, not both: one follows from the other")
        if self.coordinates == "cost" and isinstance(self.families, dict):
            raise ValueError("families: in the cost coordinates it is a list of names")
        if self.coordinates == "native" and (isinstance(self.families, list) or self.gamma_rst is not None):
            raise ValueError("families: in the native coordinates it maps names to parameters, and gamma is gamma_gnr")
        self._check_native()
        self._check_bounds()
        self._check_points()
        return self

    def _check_native(self) -> None:
        """Build every family of a native space at the ends of its parameters: a wrong name or value shows here."""
        for family, axes in self.families.items() if isinstance(self.families, dict) else ():
            for end in (0, 1):
                own = {name: axis_of.span(axis)[end] for name, axis in axes.items()}
                _named(f"families.{family}", schedules.from_dict, {"family": family, **own})

    def _check_points(self) -> None:
        for point in self.points:
            try:
                configuration(self.whole(point), total_steps=100, rho=0.0)
            except (KeyError, TypeError) as error:
                raise ValueError(f"points: each has a schedule or a family and c, {point} lacks {error}") from error

    def whole(self, point: Mapping[str, Any]) -> Coordinates:
        """Return a point that was given and not drawn, with what it leaves out: the first rule, gamma_gnr 1."""
        gamma = {} if "gamma_rst" in point else {"gamma_gnr": 1.0}
        return {**self._common(point.get("rule", self.rules[0]), None), **gamma, **point}

    def _check_bounds(self) -> None:
        for name, axis, high in (("extra_propagation", self.extra_propagation, 1.0), ("shape", self.shape, 1.0)):
            low_value, high_value = axis_of.span(axis)
            if not (low_value >= 0 and high_value <= high):
                raise ValueError(f"{name}: it must lie in [0, {high:g}], but it spans {low_value} … {high_value}")
        if self.gamma_rst is not None and axis_of.span(self.extra_propagation)[0] <= 0:
            raise ValueError("extra_propagation: gamma_gnr = gamma_rst / c needs c > 0: raise its lower end above 0")
        for name, positive in (("gamma_rst", self.gamma_rst), ("gamma_gnr", self.gamma_gnr), ("rho", self.rho)):
            if positive is not None and axis_of.span(positive)[0] < 0:
                raise ValueError(f"{name}: it must not be negative, but it starts at {axis_of.span(positive)[0]}")

    def draw(self, trial: Suggester) -> Coordinates:
        """Return one draw. A parameter exists only when the family that has it was drawn."""
        names = list(self.families)
        family = str(trial.suggest_categorical("family", names)) if len(names) > 1 else names[0]
        point = self._draw_cost(family, trial) if self.coordinates == "cost" else self._draw_native(family, trial)
        rule = str(trial.suggest_categorical("rule", self.rules)) if len(self.rules) > 1 else self.rules[0]
        return point | self._common(rule, None if self.rho is None else axis_of.draw(self.rho, "rho", trial))

    def _common(self, rule: str, rho: float | None) -> Coordinates:
        common: Coordinates = {"rule": rule}
        if self.rule_options.get(rule):
            common["rule_options"] = self.rule_options[rule]
        return common if rho is None else common | {"rho": rho}

    def _draw_cost(self, family: str, trial: Suggester) -> Coordinates:
        point: Coordinates = {"family": family, "c": axis_of.draw(self.extra_propagation, "c", trial)}
        if family != "constant":
            point["shape"] = axis_of.draw(self.shape, "shape", trial)
        name, axis = self._gamma()
        return point | {name: axis_of.draw(axis, name, trial)}

    def _draw_native(self, family: str, trial: Suggester) -> Coordinates:
        assert isinstance(self.families, dict)
        own = {n: axis_of.draw(axis, f"{family}.{n}", trial) for n, axis in self.families[family].items()}
        gamma = axis_of.draw(axis_of.one(self.gamma_gnr), "gamma_gnr", trial)
        return {"schedule": {"family": family, **own}, "gamma_gnr": gamma}

    def grid(self) -> Iterator[Coordinates]:
        """Yield every point of a space whose axes are all lists or numbers; ends and `points` are not among them."""
        rhos = [None] if self.rho is None else list(axis_of.values(self.rho, "rho"))
        for family, rule, rho in itertools.product(self.families, self.rules, rhos):
            for point in self._grid_cost(family) if self.coordinates == "cost" else self._grid_native(family):
                yield point | self._common(rule, rho)

    def _grid_cost(self, family: str) -> Iterator[Coordinates]:
        gamma_name, gamma_axis = self._gamma()
        shapes = [None] if family == "constant" else list(axis_of.values(self.shape, "shape"))
        costs, gammas = (
            axis_of.values(self.extra_propagation, "extra_propagation"),
            axis_of.values(gamma_axis, gamma_name),
        )
        for c, shape, gamma in itertools.product(costs, shapes, gammas):
            yield {"family": family, "c": c} | ({} if shape is None else {"shape": shape}) | {gamma_name: gamma}

    def _grid_native(self, family: str) -> Iterator[Coordinates]:
        assert isinstance(self.families, dict)
        axes = {n: axis_of.values(axis, f"{family}.{n}") for n, axis in self.families[family].items()}
        for values in itertools.product(*axes.values(), axis_of.values(axis_of.one(self.gamma_gnr), "gamma_gnr")):
            own = dict(zip(axes, values, strict=False))
            yield {"schedule": {"family": family, **own}, "gamma_gnr": values[-1]}

    def parameters(self, point: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the drawn parameters that would give `point`, or None where the space does not hold it."""
        own = self._own_parameters(point)
        if own is None or not self.allows(point) or ("rho" in point) != (self.rho is not None):
            return None
        axes, values = own
        rho = {} if self.rho is None else {"rho": point["rho"]}
        return {"family": values["family"], "rule": point["rule"], **rho} | {name: values[name] for name in axes}

    def allows(self, point: Mapping[str, Any]) -> bool:
        """Return whether the space holds this schedule, gamma and rule; a point without rho has the recipe's."""
        own = self._own_parameters(point)
        if own is None or point.get("rule") not in self.rules:
            return False
        axes, values = own
        if self.rho is not None and "rho" in point:
            axes, values = axes | {"rho": self.rho}, {**values, "rho": point["rho"]}
        return all(name in values and axis_of.holds(axis, values[name]) for name, axis in axes.items())

    def _own_parameters(self, point: Mapping[str, Any]) -> tuple[dict[str, Axis], dict[str, Any]] | None:
        """Return the axes of the point's family and its values on them, both by the name they are drawn under."""
        if isinstance(self.families, dict):
            schedule = point.get("schedule", {})
            family = schedule.get("family")
            if family not in self.families or set(schedule) != {"family", *self.families[family]}:
                return None
            own = {f"{family}.{name}": axis for name, axis in self.families[family].items()}
            values = {f"{family}.{name}": schedule[name] for name in self.families[family]}
            return own | {"gamma_gnr": axis_of.one(self.gamma_gnr)}, {**point, **values, "family": family}
        if point.get("family") not in self.families:
            return None
        shape: dict[str, Axis] = {} if point["family"] == "constant" else {"shape": self.shape}
        return {"c": self.extra_propagation, **shape} | dict([self._gamma()]), dict(point)

    def _gamma(self) -> tuple[str, Axis]:
        return (
            ("gamma_rst", self.gamma_rst) if self.gamma_rst is not None else ("gamma_gnr", axis_of.one(self.gamma_gnr))
        )


def _named(field: str, check: Callable[..., Any], *given: Any) -> None:
    """Make the check; an error of it names the field."""
    try:
        check(*given)
    except InputError as error:
        raise ValueError(f"{field}: {error}") from None


def configuration(point: Mapping[str, Any], *, total_steps: int, rho: float) -> dict[str, Any]:
    """Return what is trained for the coordinates `point` over `total_steps` steps, with its exact cost.

    >>> c = configuration({"family": "constant", "c": 0.5, "gamma_rst": 1.0, "rule": "sam"}, total_steps=10, rho=0.1)
    >>> c["schedule"], c["gamma_gnr"], c["extra_propagation"]
    ({'family': 'constant', 'p': 0.5}, 2.0, 0.5)
    """
    rule, options = point.get("rule", "sam"), dict(point.get("rule_options", {}))
    schedule = _schedule(point, total_steps)
    mean = schedule.extra_propagation(total_steps)
    gamma_gnr = point["gamma_rst"] / mean if "gamma_rst" in point else point.get("gamma_gnr", 1.0)
    return {
        "family": point.get("family") or point["schedule"]["family"],
        "schedule": schedule.to_dict(),
        "rule": rule,
        "rule_options": options,
        "rho": float(point.get("rho", rho)),
        "gamma_gnr": float(gamma_gnr),
        "gamma_rst": float(gamma_gnr * mean),
        "extra_propagation": expected_extra_propagation(schedule, total_steps, rule, options),
        "total_steps": total_steps,
        "coordinates": dict(point),
    }


def picture(point: Mapping[str, Any], *, total_steps: int, seed: int, width: int = 64) -> dict[str, list[float]]:
    """Return p(t) and the coins at `width` steps spread over the training, for whoever draws them."""
    schedule = _schedule(point, total_steps)
    steps = sorted({1 + (total_steps - 1) * i // max(width - 1, 1) for i in range(width)})
    chances = [schedule(t, total_steps) for t in steps]
    coins = [float(toss(seed, t, p)) for t, p in zip(steps, chances, strict=True)]
    return {"curve": [round(p, 4) for p in chances], "coins": coins}


def _schedule(point: Mapping[str, Any], total_steps: int) -> schedules.Schedule:
    if "schedule" in point:
        return schedules.from_dict(point["schedule"])
    return schedules.with_mean(point["family"], point["c"], total_steps, shape=point.get("shape", 0.0))
