"""Numbers that describe a schedule whatever its family: how much it regularizes, how much it strains, how late it is.

With u = t/T and the cosine learning rate lr(u) = (1 + cos πu)/2 of the recipes, ‹·› the mean over a training:

- weight   = ‹p·√lr› / ‹√lr›: the share of the regularization of p = 1;
- peak     = ‹p·lr²› / ‹lr²›: the share of its mean square, which decides whether a training with a large gamma breaks
  down; ascents at a small learning rate strain it little;
- lateness = 2‹p·u›/‹p› − 1: where the ascents lie, −1 at the start, 1 at the end, 0 in the middle or nowhere.

All are ratios of means that are linear in p, so for the families with a mean they are linear in the shape.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import cos, fsum, pi, sqrt

from rst_tune.method.schedules.base import Schedule
from rst_tune.method.schedules.means import MeanPreserving

STEPS = 64
_U = [(t - 0.5) / STEPS for t in range(1, STEPS + 1)]
_LR = [0.5 * (1 + cos(pi * u)) for u in _U]
_ROOT = [sqrt(lr) for lr in _LR]
_SQUARE = [lr * lr for lr in _LR]
# Extremes of a family are kept for costs on this grid: a functional changes by less than 1 % between two of them.
_GRID = 200


@dataclass(frozen=True)
class Functionals:
    """See the module. `mean` is ‹p›."""

    mean: float
    weight: float
    peak: float
    lateness: float


def functionals(schedule: Schedule) -> Functionals:
    """Return the functionals of a schedule.

    >>> from rst_tune.method import schedules
    >>> functionals(schedules.constant(0.5))
    Functionals(mean=0.5, weight=0.5, peak=0.5, lateness=0.0)
    """
    if isinstance(schedule, MeanPreserving):
        extreme = _moments_of_extreme(type(schedule), round(schedule.c * _GRID) / _GRID)
        flat = (schedule.c, schedule.c, schedule.c, 0.5 * schedule.c)
        scale = schedule.c / extreme[0] if extreme[0] else 0.0
        moments = [f + schedule.shape * (e * scale - f) for f, e in zip(flat, extreme, strict=True)]
    else:
        moments = list(_moments(schedule))
    mean, weight, peak, centre = moments
    late = 2 * centre / mean - 1 if mean > 0 else 0.0
    return Functionals(mean, weight, peak, late)


@lru_cache(maxsize=4096)
def _moments_of_extreme(family: type[MeanPreserving], c: float) -> tuple[float, float, float, float]:
    return _moments(family(c=c, shape=1.0))


def _moments(schedule: Schedule) -> tuple[float, float, float, float]:
    p = schedule.values(STEPS)
    return (
        fsum(p) / STEPS,
        _average(p, _ROOT),
        _average(p, _SQUARE),
        fsum(a * b for a, b in zip(p, _U, strict=True)) / STEPS,
    )


def _average(p: tuple[float, ...], weights: list[float]) -> float:
    return fsum(a * b for a, b in zip(p, weights, strict=True)) / fsum(weights)
