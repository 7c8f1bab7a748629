"""The paper's scheduling functions: constant, piecewise, linear, trigonometric. u = t/T throughout."""

from dataclasses import dataclass
from math import cos, pi, sin

from rst_tune.errors import InputError
from rst_tune.method.schedules.base import ROUNDING, Schedule, checked_probability, family, number, share, steps_in

PAPER = "Zhao, Zhang and Hu, Randomized Sharpness-Aware Training, 2022"


@family("constant", "p(t) = p", PAPER)
@dataclass(frozen=True)
class Constant(Schedule):
    """p(t) = a_c, the constant family of the paper; the mean is a_c.

    >>> Constant(0.5)(1, 10), str(Constant(0.5))
    (0.5, 'constant:p=0.5')
    """

    p: float

    def __post_init__(self) -> None:
        _check_probability(self, "p")

    def at(self, t: int, T: int) -> float:  # noqa: ARG002
        """Return p."""
        return self.p


@family("piecewise", "p(t) = a while t <= b·T, then 1 − a", PAPER)
@dataclass(frozen=True)
class Piecewise(Schedule):
    """p(t) = a for t <= b·T, else 1 − a; closed form of the mean 1 + 2ab − b − a.

    >>> [Piecewise(a=0.2, b=0.5)(t, 4) for t in (2, 3)]
    [0.2, 0.8]
    """

    a: float
    b: float

    def __post_init__(self) -> None:
        _check_probability(self, "a")
        self._check(share, "b")

    def at(self, t: int, T: int) -> float:
        """Return a in the first stage, 1 − a in the second."""
        return self.a if t <= steps_in(self.b, T) else 1.0 - self.a


@family("linear", "the straight line through (u0, p0) and (u1, p1), u = t/T", PAPER)
@dataclass(frozen=True)
class Linear(Schedule):
    """The line through (u0·T, p0) and (u1·T, p1); closed form of the mean p(T/2).

    >>> Linear(p0=0.0, p1=1.0)(5, 10)
    0.5
    """

    p0: float
    p1: float
    u0: float = 0.0
    u1: float = 1.0

    def __post_init__(self) -> None:
        self._check(number, "p0", "p1", "u0", "u1")
        if self.u0 == self.u1:
            raise InputError(f"u0 != u1 must hold, but both are {self.u0!r}: two points at one time fix no line")
        # A line is extreme at its ends, so a line that is right at t -> 0 and at t = T is right for every T.
        for where, value in (("t -> 0", self._at_share(0.0)), ("t = T", self._at_share(1.0))):
            if not -ROUNDING <= value <= 1.0 + ROUNDING:
                raise InputError(
                    f"0 <= p(t) <= 1 must hold for every t, but p({where}) = {value!r} in {self}: "
                    "move its two points, nothing is clamped"
                )

    def _at_share(self, u: float) -> float:
        return self.p0 + (self.p1 - self.p0) * (u - self.u0) / (self.u1 - self.u0)

    def at(self, t: int, T: int) -> float:
        """Return the height of the line at t/T."""
        return self._at_share(t / T)


@family("linear_group1", "rising line through (T/2, m) and (0, 0) or (T, 1)", PAPER)
@dataclass(frozen=True)
class LinearGroup1(Schedule):
    """p = 2mu when m <= 1/2, else m + (1 − m)(2u − 1): the paper's first linear group; closed form m.

    >>> LinearGroup1(0.25)(10, 10), LinearGroup1(0.75)(10, 10)
    (0.5, 1.0)
    """

    m: float

    def __post_init__(self) -> None:
        self._check(share, "m")

    def at(self, t: int, T: int) -> float:
        """Return the height of the line at t/T."""
        u = t / T
        return 2.0 * self.m * u if self.m <= 0.5 else self.m + (1.0 - self.m) * (2.0 * u - 1.0)


@family("linear_group2", "line through (0, b) and (T/2, 1/2)", PAPER)
@dataclass(frozen=True)
class LinearGroup2(Schedule):
    """p = b + (1 − 2b)u: the paper's second linear group; closed form 1/2.

    >>> LinearGroup2(0.2)(5, 5)
    0.8
    """

    b: float

    def __post_init__(self) -> None:
        self._check(share, "b")

    def at(self, t: int, T: int) -> float:
        """Return the height of the line at t/T."""
        return self.b + (1.0 - 2.0 * self.b) * t / T


@family("cos1", "1/2 + 1/2·cos(πu): falls from 1 to 0", PAPER)
class Cos1(Schedule):
    """p = 1/2 + 1/2·cos(πt/T); closed form 1/2."""

    def at(self, t: int, T: int) -> float:
        """Return 1/2 + 1/2·cos(πt/T)."""
        return 0.5 + 0.5 * cos(pi * t / T)


@family("cos2", "1 − cos1: rises from 0 to 1", PAPER)
class Cos2(Schedule):
    """p = 1/2 − 1/2·cos(πt/T); closed form 1/2."""

    def at(self, t: int, T: int) -> float:
        """Return 1/2 − 1/2·cos(πt/T)."""
        return 0.5 - 0.5 * cos(pi * t / T)


@family("sin1", "sin(πu): highest in the middle", PAPER)
class Sin1(Schedule):
    """p = sin(πt/T); closed form 2/π."""

    def at(self, t: int, T: int) -> float:
        """Return sin(πt/T)."""
        return sin(pi * t / T)


@family("sin2", "1 − sin1: lowest in the middle", PAPER)
class Sin2(Schedule):
    """p = 1 − sin(πt/T); closed form 1 − 2/π (the paper's table prints 2/π)."""

    def at(self, t: int, T: int) -> float:
        """Return 1 − sin(πt/T)."""
        return 1.0 - sin(pi * t / T)


def _check_probability(schedule: Schedule, name: str) -> None:
    value = number(name, getattr(schedule, name))
    checked_probability(value, t=1, what=f"{schedule.family}:{name}={value!r}")
    object.__setattr__(schedule, name, value)
