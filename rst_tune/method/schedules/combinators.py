"""Combinators: a warm-up without ascents, and linear interpolation between knots."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from rst_tune.errors import InputError
from rst_tune.method.schedules.base import Schedule, family, share, steps_in


@family("warmup", "p = 0 for the first share w of training, then another schedule on the remaining steps")
@dataclass(frozen=True)
class Warmup(Schedule):
    """p(t) = 0 for t <= w·T, else then(t − W, T − W) with W = ⌊w·T⌋; closed form (1 − w) times that of `then`.

    Sharpness-aware steps in the first iterations can harm Vision Transformers; the warm-up has none.

    >>> from rst_tune.method import schedules
    >>> schedules.warmup(0.5, schedules.constant(0.8)).values(4)
    (0.0, 0.0, 0.8, 0.8)
    """

    w: float
    then: Schedule

    def __post_init__(self) -> None:
        self._check(share, "w")
        if self.w == 1.0:
            raise InputError("w < 1 must hold, but got w = 1.0: no step would remain for the schedule that follows")
        if not isinstance(self.then, Schedule):
            raise InputError(f"`then` must be a schedule, but got {self.then!r}: for example schedules.constant(0.5)")

    def at(self, t: int, T: int) -> float:
        """Return 0 in the warm-up, then p of the schedule that follows."""
        W = steps_in(self.w, T)
        return 0.0 if t <= W else self.then.at(t - W, T - W)


@family("interpolate", "straight lines between knots (u, p); flat before the first and after the last")
@dataclass(frozen=True)
class Interpolate(Schedule):
    """The polygon through the knots (u_i, p_i), u = t/T, flat outside them; closed form its integral over u.

    >>> Interpolate(((0, 0), (0.5, 1), (1, 0)))(5, 10)
    1.0
    """

    points: tuple[tuple[float, float], ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "points", _knots(self.points))

    def at(self, t: int, T: int) -> float:
        """Return the interpolated p at t/T."""
        u = t / T
        for (u0, p0), (u1, p1) in pairwise(self.points):
            if u0 <= u <= u1:
                return p0 + (p1 - p0) * (u - u0) / (u1 - u0)
        return self.points[0][1] if u < self.points[0][0] else self.points[-1][1]


def _knots(points: Iterable[Iterable[float]]) -> tuple[tuple[float, float], ...]:
    knots = [tuple(point) for point in points]
    if not knots or any(len(knot) != 2 for knot in knots):
        raise InputError(f"points must be pairs (u, p), one or more, but got {knots!r}: for example [(0, 0), (1, 1)]")
    checked = [(share("u", u), share(f"p of knot {i + 1}", p)) for i, (u, p) in enumerate(knots)]
    if any(u0 >= u1 for (u0, _), (u1, _) in pairwise(checked)):
        raise InputError(f"the u of the points must increase, but got {[u for u, _ in checked]}: sort them")
    return tuple(checked)
