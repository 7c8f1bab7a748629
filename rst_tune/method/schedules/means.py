"""Cost as a coordinate: for each family the schedule whose exact mean over t = 1 … T is c, for every T.

All of them are p(t) = c + shape·(extreme(t) − c). `extreme` is the member of the family with mean c and the largest
distance from the constant c inside [0, 1]; shape in [0, 1] is the fraction of that distance.
"""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from math import cos, pi, sin
from typing import TypeVar

from rst_tune.method.schedules.base import Schedule, family, share
from rst_tune.method.schedules.families import Constant
from rst_tune.registry import Registry

MEAN_FAMILIES: Registry[type[Schedule]] = Registry("family with a mean")
MEAN_FAMILIES.add("constant", Constant, "p(t) = c")


@dataclass(frozen=True)
class MeanPreserving(Schedule):
    """p(t) = c + shape·(extreme(t) − c): the exact mean is c at any T."""

    c: float
    shape: float = 1.0

    def __post_init__(self) -> None:
        self._check(share, "c", "shape")

    @abstractmethod
    def _extreme(self, t: int, T: int) -> float:
        """Return p(t) of the extreme member with mean c."""

    def at(self, t: int, T: int) -> float:
        """Return c + shape·(extreme(t) − c)."""
        return self.c + self.shape * (self._extreme(t, T) - self.c)


M = TypeVar("M", bound=MeanPreserving)


def _with_mean(name: str, description: str) -> Callable[[type[M]], type[M]]:
    def decorate(kind: type[M]) -> type[M]:
        MEAN_FAMILIES.add(name, kind, description)
        return family(name, f"{description}; exact mean c")(kind)

    return decorate


@_with_mean("step-up", "low, then high: ascents at the end")
class StepUp(MeanPreserving):
    """0, then 1 for the last c·T steps. The step in which c·T ends has its fraction, so the mean is exact.

    >>> StepUp(c=0.375).values(4)
    (0.0, 0.0, 0.5, 1.0)
    """

    def _extreme(self, t: int, T: int) -> float:
        """Return the part of the interval (t − 1, t] that lies in the last c·T."""
        return min(max(t - T + self.c * T, 0.0), 1.0)


@_with_mean("step-down", "high, then low: ascents at the start")
class StepDown(MeanPreserving):
    """1 for the first c·T steps, then 0.

    >>> StepDown(c=0.375).values(4)
    (1.0, 0.5, 0.0, 0.0)
    """

    def _extreme(self, t: int, T: int) -> float:
        """Return the part of the interval (t − 1, t] that lies in the first c·T."""
        return min(max(self.c * T - t + 1, 0.0), 1.0)


@_with_mean("ramp-up", "a line that rises through c")
class RampUp(MeanPreserving):
    """The steepest rising line with mean c: c + min(c, 1 − c)·(2t − T − 1)/(T − 1)."""

    def _extreme(self, t: int, T: int) -> float:
        return self.c + _ramp(self.c, t, T)


@_with_mean("ramp-down", "a line that falls through c")
class RampDown(MeanPreserving):
    """The steepest falling line with mean c."""

    def _extreme(self, t: int, T: int) -> float:
        return self.c - _ramp(self.c, t, T)


@_with_mean("cosine-up", "half a cosine that rises through c")
class CosineUp(MeanPreserving):
    """Half a cosine that rises around c: c − A·cos(π(2t − 1)/2T) with the largest A."""

    def _extreme(self, t: int, T: int) -> float:
        return self.c - _cosine(self.c, t, T)


@_with_mean("cosine-down", "half a cosine that falls through c")
class CosineDown(MeanPreserving):
    """Half a cosine that falls around c: c + A·cos(π(2t − 1)/2T) with the largest A."""

    def _extreme(self, t: int, T: int) -> float:
        return self.c + _cosine(self.c, t, T)


@_with_mean("sine-bump", "half a sine, most ascents in the middle")
class SineBump(MeanPreserving):
    """Half a sine around c, highest in the middle: c + A·(s(t) − mean s), s(t) = sin(π(2t − 1)/2T), largest A."""

    def _extreme(self, t: int, T: int) -> float:
        return self.c + _sine(1.0 - self.c, self.c, t, T)


@_with_mean("sine-dip", "half a sine, fewest ascents in the middle")
class SineDip(MeanPreserving):
    """Half a sine around c, lowest in the middle: c − A·(s(t) − mean s) with the largest A."""

    def _extreme(self, t: int, T: int) -> float:
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
