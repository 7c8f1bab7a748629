"""The base class of schedules: a frozen value that maps t = 1 … T to a probability in a checked range."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import lru_cache
from math import fsum, isfinite
from typing import Any, ClassVar, TypeVar

from rst_tune.errors import InputError
from rst_tune.registry import Registry

FAMILIES: Registry[type["Schedule"]] = Registry("schedule family")

# A formula such as p0 + (p1 - p0)·u may exceed 0 or 1 by a few units in the last place, which is rounding only.
ROUNDING = 1e-12


@dataclass(frozen=True)
class Schedule(ABC):
    """The scheduling function p(t) of RST (Algorithm 1): X_t is 1 with probability p(t), t = 1 … T.

    A subclass declares its parameters as fields and implements `at`.
    """

    family: ClassVar[str]

    @abstractmethod
    def at(self, t: int, T: int) -> float:
        """Return p(t) by the formula, without any check."""

    def __call__(self, t: int, T: int) -> float:
        """Return p(t). Raises for t outside 1 … T and for p outside [0, 1]."""
        if not 1 <= t <= T:
            raise InputError(f"1 <= t <= T must hold, but got t = {t}, T = {T}: steps are counted from 1")
        return checked_probability(self.at(t, T), t=t, T=T, what=self)

    def values(self, T: int) -> tuple[float, ...]:
        """Return p(1), …, p(T). Raises at the first p outside [0, 1]."""
        return _values(self, T)

    def extra_propagation(self, T: int) -> float:
        """Return the exact mean of p over t = 1 … T: the expected extra forward-backward pairs per step."""
        return fsum(self.values(T)) / T

    def to_dict(self) -> dict[str, Any]:
        """Return the schedule as plain data, which `from_dict` reads back."""
        parameters = {field.name: _plain(getattr(self, field.name)) for field in fields(self)}
        return {"family": self.family, **parameters}

    def __str__(self) -> str:
        written = ",".join(f"{field.name}={_text(getattr(self, field.name))}" for field in fields(self))
        return f"{self.family}:{written}" if written else self.family

    def _check(self, check: Callable[[str, Any], float], *names: str) -> None:
        for name in names:
            object.__setattr__(self, name, check(name, getattr(self, name)))


S = TypeVar("S", bound=Schedule)


def family(name: str, description: str, citation: str = "") -> Callable[[type[S]], type[S]]:
    """Return a decorator that names a class of schedules and registers it."""

    def decorate(kind: type[S]) -> type[S]:
        kind.family = name
        FAMILIES.add(name, kind, description, citation)
        return kind

    return decorate


def checked_probability(value: float, *, t: int, what: object, T: int | None = None) -> float:
    """Return `value` as a probability, or raise with the t and the value."""
    if 0.0 <= value <= 1.0:
        return value
    if -ROUNDING <= value <= 1.0 + ROUNDING:
        return 0.0 if value < 0.5 else 1.0
    horizon = "" if T is None else f" (T = {T})"
    raise InputError(
        f"0 <= p(t) <= 1 must hold for every t, but p(t = {t}) = {value!r}{horizon} in {what}: "
        "change its parameters, nothing is clamped"
    )


def number(name: str, value: float) -> float:
    """Return `value` as a finite float, or raise with its name."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        raise InputError(f"{name} must be a finite number, but got {value!r}")
    return float(value)


def share(name: str, value: float) -> float:
    """Return `value` as a float in [0, 1], or raise with its name."""
    number(name, value)
    if not 0.0 <= value <= 1.0:
        raise InputError(f"0 <= {name} <= 1 must hold, but got {name} = {value!r}: it is a share")
    return float(value)


def steps_in(part: float, T: int) -> int:
    """Return the number of whole steps in the first share `part` of T, computed from the decimal notation of `part`.

    >>> steps_in(0.29, 100), int(0.29 * 100)
    (29, 28)
    """
    return int(Fraction(repr(float(part))) * T)


@lru_cache(maxsize=8)
def _values(schedule: Schedule, T: int) -> tuple[float, ...]:
    if isinstance(T, bool) or not isinstance(T, int) or T < 1:
        raise InputError(f"T must be a whole number of steps, at least 1, but got T = {T!r}")
    return tuple(schedule(t, T) for t in range(1, T + 1))


def _plain(value: Any) -> Any:
    if isinstance(value, Schedule):
        return value.to_dict()
    return [list(knot) for knot in value] if isinstance(value, tuple) else value


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return "/".join(f"{u!r}@{p!r}" for u, p in value)
    return str(value) if isinstance(value, Schedule) else repr(value)
