"""Cost as a coordinate: for each family the schedule whose exact mean over t = 1 … T is c, for every T.

All of them are p(t) = c + shape·(extreme(t) − c). `extreme` is the member of the family with mean c and the largest
distance from the constant c inside [0, 1]; shape in [0, 1] is the fraction of that distance.
"""

from abc import abstractmethod
from dataclasses import dataclass
from math import cos, pi, sin
from typing import ClassVar

from rst_tune.method.schedules.base import FAMILIES, Schedule, share
from rst_tune.method.schedules.families import Constant
from rst_tune.registry import Registry

MEAN_FAMILIES: Registry[type[Schedule]] = Registry("family with a mean")


@dataclass(frozen=True)
class MeanPreserving(Schedule):
    """p(t) = c + shape·(extreme(t) − c): the exact mean is c at any T, and the closed form is c too."""

    c: float
    shape: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "c", share("c", self.c))
        object.__setattr__(self, "shape", share("shape", self.shape))

    @abstractmethod
    def extreme(self, t: int, T: int) -> float:
        """Return p(t) of the extreme member with mean c."""

    def at(self, t: int, T: int) -> float:
        """Return c + shape·(extreme(t) − c)."""
        return self.c + self.shape * (self.extreme(t, T) - self.c)

    def closed_form(self) -> float:
        """Return c."""
        return self.c


@dataclass(frozen=True)
class StepUp(MeanPreserving):
    """0, then 1 for the last c·T steps. The step in which c·T ends has its fraction, so the mean is exact.

    >>> StepUp(c=0.375).values(4)
    (0.0, 0.0, 0.5, 1.0)
    """

    family: ClassVar[str] = "step-up"

    def extreme(self, t: int, T: int) -> float:
        """Return the part of the interval (t − 1, t] that lies in the last c·T."""
        return min(max(t - T + self.c * T, 0.0), 1.0)


@dataclass(frozen=True)
class StepDown(MeanPreserving):
    """1 for the first c·T steps, then 0.

    >>> StepDown(c=0.375).values(4)
    (1.0, 0.5, 0.0, 0.0)
    """

    family: ClassVar[str] = "step-down"

    def extreme(self, t: int, T: int) -> float:
        """Return the part of the interval (t − 1, t] that lies in the first c·T."""
        return min(max(self.c * T - t + 1, 0.0), 1.0)


@dataclass(frozen=True)
class RampUp(MeanPreserving):
    """The steepest rising line with mean c: c + min(c, 1 − c)·(2t − T − 1)/(T − 1)."""

    family: ClassVar[str] = "ramp-up"

    def extreme(self, t: int, T: int) -> float:
        """Return the height of the steepest line."""
        return self.c + _ramp(self.c, t, T)


@dataclass(frozen=True)
class RampDown(MeanPreserving):
    """The steepest falling line with mean c."""

    family: ClassVar[str] = "ramp-down"

    def extreme(self, t: int, T: int) -> float:
        """Return the height of the steepest line."""
        return self.c - _ramp(self.c, t, T)


@dataclass(frozen=True)
class CosineUp(MeanPreserving):
    """Half a cosine that rises around c: c − A·cos(π(2t − 1)/2T) with the largest A."""

    family: ClassVar[str] = "cosine-up"

    def extreme(self, t: int, T: int) -> float:
        """Return the height of the largest cosine."""
        return self.c - _cosine(self.c, t, T)


@dataclass(frozen=True)
class CosineDown(MeanPreserving):
    """Half a cosine that falls around c: c + A·cos(π(2t − 1)/2T) with the largest A."""

    family: ClassVar[str] = "cosine-down"

    def extreme(self, t: int, T: int) -> float:
        """Return the height of the largest cosine."""
        return self.c + _cosine(self.c, t, T)


@dataclass(frozen=True)
class SineBump(MeanPreserving):
    """Half a sine around c, highest in the middle: c + A·(s(t) − mean s), s(t) = sin(π(2t − 1)/2T), largest A."""

    family: ClassVar[str] = "sine-bump"

    def extreme(self, t: int, T: int) -> float:
        """Return the height of the largest bump."""
        return self.c + _sine(1.0 - self.c, self.c, t, T)


@dataclass(frozen=True)
class SineDip(MeanPreserving):
    """Half a sine around c, lowest in the middle: c − A·(s(t) − mean s) with the largest A."""

    family: ClassVar[str] = "sine-dip"

    def extreme(self, t: int, T: int) -> float:
        """Return the height of the deepest dip."""
        return self.c - _sine(self.c, 1.0 - self.c, t, T)


def _ramp(c: float, t: int, T: int) -> float:
    return min(c, 1.0 - c) * (2 * t - T - 1) / (T - 1) if T > 1 else 0.0


def _cosine(c: float, t: int, T: int) -> float:
    # The midpoints (2t − 1)/2T are symmetric around 1/2, so the cosines add up to zero exactly.
    return min(c, 1.0 - c) * cos(pi * (2 * t - 1) / (2 * T)) / cos(pi / (2 * T)) if T > 1 else 0.0


def _sine(room_above: float, room_below: float, t: int, T: int) -> float:
    """Return A·(s(t) − mean s) with the largest A that stays within the given room above and below."""
    mean = 1.0 / (T * sin(pi / (2 * T)))
    above = sin(pi * (2 * ((T + 1) // 2) - 1) / (2 * T)) - mean
    below = mean - sin(pi / (2 * T))
    if T <= 2:  # the midpoints of one or two steps have equal height: there is no bump
        return 0.0
    return min(room_above / above, room_below / below) * (sin(pi * (2 * t - 1) / (2 * T)) - mean)


DESCRIPTIONS: dict[type[MeanPreserving], str] = {
    StepUp: "low, then high: ascents at the end",
    StepDown: "high, then low: ascents at the start",
    RampUp: "a line that rises through c",
    RampDown: "a line that falls through c",
    CosineUp: "half a cosine that rises through c",
    CosineDown: "half a cosine that falls through c",
    SineBump: "half a sine, most ascents in the middle",
    SineDip: "half a sine, fewest ascents in the middle",
}

MEAN_FAMILIES.add("constant", Constant, "p(t) = c")
for _family, _description in DESCRIPTIONS.items():
    FAMILIES.add(_family.family, _family, f"{_description}; exact mean c")
    MEAN_FAMILIES.add(_family.family, _family, _description)


def with_mean(family: str, c: float, T: int, shape: float = 1.0) -> Schedule:  # noqa: ARG001
    """Return the schedule of `family` whose exact mean over t = 1 … T is c.

    Args:
        family: a name in `MEAN_FAMILIES`.
        c: the wanted extra propagation, in [0, 1].
        T: the total number of steps. The mean is exact for every T, so the schedule does not depend on it.
        shape: the distance from the constant c, from 0 (the constant) to 1 (the extreme of the family).

    >>> s = with_mean("step-up", 0.3, 10)
    >>> s.extra_propagation(10), s(1, 10), s(10, 10)
    (0.3, 0.0, 1.0)
    """
    kind = MEAN_FAMILIES[family]
    c, shape = share("c", c), share("shape", shape)
    return kind(c=c, shape=shape) if issubclass(kind, MeanPreserving) else Constant(c)
