"""Configurations that are evaluated before any is sampled: the baselines, and points that theory or the paper suggest.

Where gamma is free, two quantities bound it. On average G-RST regularizes by gamma_rst = c·gamma_gnr, and SAM has 1;
but a training tolerates only so much in the mean square, sqrt(c)·gamma_gnr, and breaks down at two to three times
SAM's. So the cheap points are constants with gamma_gnr = 2/sqrt(c). Late ascents meet a small learning rate and
tolerate more: the dearer points have them last, with gamma_gnr = sqrt(8/c). Costs and factors were chosen on the tables
of `experiments/benchmarks`. Where gamma_gnr is fixed, what the paper found best for RST is evaluated.
"""

from math import sqrt

from rst_tune.tuning import axes as axis_of
from rst_tune.tuning.space import Params, Space

__all__ = ["SAM", "SGD", "baselines", "points_to_evaluate"]

SGD: Params = {"schedule": {"family": "constant", "p": 0.0}, "gamma_gnr": 1.0, "rule": "sam"}
SAM: Params = {"schedule": {"family": "constant", "p": 1.0}, "gamma_gnr": 1.0, "rule": "sam"}

# (family, c, shape, gamma_rst)
_Point = tuple[str, float, float, float]
_GRST: tuple[_Point, ...] = (
    *(("constant", c, 0.0, 2 * sqrt(c)) for c in (0.25, 0.1, 0.05, 0.15)),
    *(("step-up", c, 1.0, sqrt(8 * c)) for c in (0.5, 0.7, 0.35)),
)
# Constant 0.8, SAM late, a rising line.
_RST: tuple[_Point, ...] = (
    ("constant", 0.8, 0.0, 0.8),
    ("step-up", 0.5, 1.0, 0.5),
    ("ramp-up", 0.5, 1.0, 0.5),
)


def baselines(space: Space) -> list[Params]:
    """Return the base optimizer at the recipe's, the shortest and the longest length, and SAM at the recipe's length.

    The lengths answer the first question of everybody who pays for compute: is it worth more than training longer?
    """
    if not space.baselines:
        return []
    low, high = axis_of.bounds(space.horizon)
    others = [] if low == high else [{**SGD, "horizon": length} for length in (low, high) if length != 1.0]
    return [SGD, SAM, *others]


def points_to_evaluate(space: Space) -> list[Params]:
    """Return the baselines, the space's own points, and those of the suggested points that the space contains."""
    points = baselines(space) + [space.fill_defaults(p) for p in space.points_to_evaluate]
    if not space.warm_start or space.parametrization != "cost":
        return points
    return points + (_contained(space, _GRST) or _contained(space, _RST))


def _contained(space: Space, suggested: tuple[_Point, ...]) -> list[Params]:
    found = []
    for family, c, shape, gamma_rst in suggested:
        gamma = {"gamma_rst": gamma_rst} if space.gamma_rst is not None else {"gamma_gnr": gamma_rst / c}
        params: Params = {"family": family, "c": c} | ({} if family == "constant" else {"shape": shape}) | gamma
        if space.contains(params := space.fill_defaults(params)):
            found.append(params)
    return found
