"""Search spaces: which schedules, gammas, radii and rules may be drawn.

A space is data. It has one of two coordinate systems. In `cost` a draw is (family, c, shape, gamma): the schedule
of that family is built so that its exact mean is c, the extra propagation. In `native` a draw has the paper's own
parameters. Whatever was drawn is a plain dict, the `coordinates`; `configuration` turns it into what is trained.
"""

import itertools
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Protocol, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from rst_tune.errors import InputError
from rst_tune.method import schedules
from rst_tune.method.ascent import RULES
from rst_tune.method.coin import toss
from rst_tune.method.optimizer import expected_extra_propagation

__all__ = ["Coordinates", "Range", "Space", "Suggester", "configuration", "picture", "prior_points"]

Coordinates = dict[str, Any]


class Suggester(Protocol):
    """What a space asks for its values: an Optuna trial, or anything of that shape."""

    def suggest_float(self, name: str, low: float, high: float, *, log: bool = False) -> float:
        """Return a number of the range."""
        ...

    def suggest_categorical(self, name: str, choices: list[Any]) -> Any:
        """Return one of the choices."""
        ...


class Range(BaseModel):
    """An interval, drawn uniformly or (`log`) uniformly in its logarithm."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    low: float
    high: float
    log: bool = False

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.low < self.high:
            raise ValueError(f"`low < high` must hold, but got low={self.low}, high={self.high}: swap them")
        if self.log and self.low <= 0:
            raise ValueError(f"a logarithmic range needs low > 0, but got low={self.low}: raise it or drop `log`")
        return self


Axis = float | Annotated[list[float], Field(min_length=1)] | Range


def _draw(axis: Axis, name: str, trial: Suggester) -> float:
    if isinstance(axis, Range):
        return trial.suggest_float(name, axis.low, axis.high, log=axis.log)
    if isinstance(axis, list):
        return float(trial.suggest_categorical(name, axis)) if len(axis) > 1 else float(axis[0])
    return float(axis)


def _values(axis: Axis, name: str) -> list[float]:
    if isinstance(axis, Range):
        raise InputError(f"a grid needs lists, but {name} is the range {axis.low} … {axis.high}: list its values")
    return [float(v) for v in axis] if isinstance(axis, list) else [float(axis)]


def _holds(axis: Axis, value: float) -> bool:
    if isinstance(axis, Range):
        return axis.low <= value <= axis.high
    return value in (axis if isinstance(axis, list) else [axis])


class Space(BaseModel):
    """A space as its YAML says it.

    `families` is a list of cost families, or (native) a mapping of the paper's families to their parameters. Give
    `gamma_rst` or `gamma_gnr`, not both; neither means gamma_gnr = 1, plain RST. `ends` adds the base optimizer
    and SAM as the two ends of the front; `priors` evaluates the points that the paper recommends first.
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
    priors: bool = True
    ends: bool = True

    @model_validator(mode="after")
    def _check(self) -> Self:
        known = schedules.MEAN_FAMILIES if self.coordinates == "cost" else schedules.FAMILIES
        if not self.families:
            raise ValueError("a space needs at least one family, but `families` is empty")
        for family in self.families:
            known[family]
        for rule in [*self.rules, *self.rule_options]:
            RULES[rule]
        if self.gamma_rst is not None and self.gamma_gnr is not None:
            raise ValueError("give gamma_rst or gamma_gnr, not both: one follows from the other")
        if self.coordinates == "cost" and isinstance(self.families, dict):
            raise ValueError("in the cost coordinates `families` is a list of names: c and shape say the rest")
        if self.coordinates == "native" and (isinstance(self.families, list) or self.gamma_rst is not None):
            raise ValueError("in the native coordinates `families` maps names to parameters, and gamma is gamma_gnr")
        self._check_bounds()
        return self

    def _check_bounds(self) -> None:
        for name, axis, high in (("extra_propagation", self.extra_propagation, 1.0), ("shape", self.shape, 1.0)):
            low_value, high_value = _span(axis)
            if not (low_value >= 0 and high_value <= high):
                raise ValueError(f"{name} must lie in [0, {high:g}], but it spans {low_value} … {high_value}")
        if self.gamma_rst is not None and _span(self.extra_propagation)[0] <= 0:
            raise ValueError("gamma_gnr = gamma_rst / c needs c > 0: raise the lower end of extra_propagation above 0")
        for name, positive in (("gamma_rst", self.gamma_rst), ("gamma_gnr", self.gamma_gnr), ("rho", self.rho)):
            if positive is not None and _span(positive)[0] < 0:
                raise ValueError(f"{name} must not be negative, but it starts at {_span(positive)[0]}")

    def draw(self, trial: Suggester) -> Coordinates:
        """Return one draw. A parameter exists only when the family that has it was drawn."""
        names = list(self.families)
        family = str(trial.suggest_categorical("family", names)) if len(names) > 1 else names[0]
        point = self._draw_cost(family, trial) if self.coordinates == "cost" else self._draw_native(family, trial)
        rule = str(trial.suggest_categorical("rule", self.rules)) if len(self.rules) > 1 else self.rules[0]
        return point | self._common(rule, None if self.rho is None else _draw(self.rho, "rho", trial))

    def _common(self, rule: str, rho: float | None) -> Coordinates:
        common: Coordinates = {"rule": rule}
        if self.rule_options.get(rule):
            common["rule_options"] = self.rule_options[rule]
        return common if rho is None else common | {"rho": rho}

    def _draw_cost(self, family: str, trial: Suggester) -> Coordinates:
        point: Coordinates = {"family": family, "c": _draw(self.extra_propagation, "c", trial)}
        if family != "constant":
            point["shape"] = _draw(self.shape, "shape", trial)
        if self.gamma_rst is not None:
            return point | {"gamma_rst": _draw(self.gamma_rst, "gamma_rst", trial)}
        return point | {"gamma_gnr": _draw(_one(self.gamma_gnr), "gamma_gnr", trial)}

    def _draw_native(self, family: str, trial: Suggester) -> Coordinates:
        assert isinstance(self.families, dict)
        own = {n: _draw(axis, f"{family}.{n}", trial) for n, axis in self.families[family].items()}
        gamma = _draw(_one(self.gamma_gnr), "gamma_gnr", trial)
        return {"schedule": {"family": family, **own}, "gamma_gnr": gamma}

    def grid(self) -> Iterator[Coordinates]:
        """Yield every point of a space whose axes are all lists or numbers; ends are not among them."""
        rhos = [None] if self.rho is None else list(_values(self.rho, "rho"))
        for family, rule, rho in itertools.product(self.families, self.rules, rhos):
            for point in self._grid_cost(family) if self.coordinates == "cost" else self._grid_native(family):
                yield point | self._common(rule, rho)

    def _grid_cost(self, family: str) -> Iterator[Coordinates]:
        gamma_name = "gamma_rst" if self.gamma_rst is not None else "gamma_gnr"
        gammas = _values(self.gamma_rst if self.gamma_rst is not None else _one(self.gamma_gnr), gamma_name)
        shapes = [None] if family == "constant" else list(_values(self.shape, "shape"))
        for c, shape, gamma in itertools.product(_values(self.extra_propagation, "c"), shapes, gammas):
            yield {"family": family, "c": c} | ({} if shape is None else {"shape": shape}) | {gamma_name: gamma}

    def _grid_native(self, family: str) -> Iterator[Coordinates]:
        assert isinstance(self.families, dict)
        axes = {n: _values(axis, f"{family}.{n}") for n, axis in self.families[family].items()}
        for values in itertools.product(*axes.values(), _values(_one(self.gamma_gnr), "gamma_gnr")):
            own = dict(zip(axes, values, strict=False))
            yield {"schedule": {"family": family, **own}, "gamma_gnr": values[-1]}

    def parameters(self, point: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the drawn parameters that would give `point`, or None where the space does not hold it."""
        if self.coordinates != "cost" or "family" not in point or "c" not in point:
            return None
        gamma_name = "gamma_rst" if self.gamma_rst is not None else "gamma_gnr"
        gamma = self.gamma_rst if self.gamma_rst is not None else _one(self.gamma_gnr)
        axes = [("c", self.extra_propagation), (gamma_name, gamma)]
        axes += [("shape", self.shape)] if point["family"] != "constant" else []
        inside = point["family"] in self.families and point["rule"] in self.rules
        if not inside or any(name not in point or not _holds(axis, point[name]) for name, axis in axes):
            return None
        return {name: point[name] for name in ("family", "rule", *(n for n, _ in axes))}


def _one(axis: Axis | None) -> Axis:
    return 1.0 if axis is None else axis


def _span(axis: Axis) -> tuple[float, float]:
    if isinstance(axis, Range):
        return axis.low, axis.high
    values = axis if isinstance(axis, list) else [axis]
    return min(values), max(values)


SGD: Coordinates = {"schedule": {"family": "constant", "p": 0.0}, "gamma_gnr": 1.0, "rule": "sam"}
SAM: Coordinates = {"schedule": {"family": "constant", "p": 1.0}, "gamma_gnr": 1.0, "rule": "sam"}

# What the paper recommends or finds best: constant 0.8, G-RST at half the cost, SAM late, a rising line.
_PRIORS: tuple[tuple[str, float, float, float], ...] = (
    ("constant", 0.8, 0.0, 0.8),
    ("constant", 0.5, 0.0, 1.0),
    ("step-up", 0.5, 1.0, 0.5),
    ("ramp-up", 0.5, 1.0, 0.5),
)


def prior_points(space: Space) -> list[Coordinates]:
    """Return what is evaluated before anything is drawn: the two ends, and the paper's points the space allows."""
    points = [SGD, SAM] if space.ends else []
    if not space.priors or space.coordinates != "cost":
        return points
    for family, c, shape, gamma_rst in _PRIORS:
        gamma = {"gamma_rst": gamma_rst} if space.gamma_rst is not None else {"gamma_gnr": gamma_rst / c}
        point: Coordinates = {"family": family, "c": c} | ({} if family == "constant" else {"shape": shape}) | gamma
        point |= space._common(space.rules[0], None)
        if space.parameters(point) is not None:
            points.append(point)
    return points


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
