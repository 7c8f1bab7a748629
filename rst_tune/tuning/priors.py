"""What is evaluated before anything is drawn: the two ends of every front, and what theory or the paper recommends.

Where gamma is free, two things bound it. On average G-RST regularizes by gamma_rst = c·gamma_gnr, and SAM has 1; but a
training bears only so much in the mean square, sqrt(c)·gamma_gnr, and breaks down at two to three times SAM's. So the
cheap points are constants with gamma_gnr = 2/sqrt(c). Ascents that come late meet a small learning rate and bear more:
the dearer points have them last, with gamma_gnr = sqrt(8/c). Costs and factors were chosen on the tables of
`experiments/benchmarks`. Where gamma_gnr is fixed, what the paper found best for RST is tried.
"""

from math import sqrt

from rst_tune.tuning.space import Coordinates, Space

__all__ = ["SAM", "SGD", "prior_points"]

SGD: Coordinates = {"schedule": {"family": "constant", "p": 0.0}, "gamma_gnr": 1.0, "rule": "sam"}
SAM: Coordinates = {"schedule": {"family": "constant", "p": 1.0}, "gamma_gnr": 1.0, "rule": "sam"}

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


def prior_points(space: Space) -> list[Coordinates]:
    """Return the ends, the space's own points, and those of the recommended points that the space allows."""
    points = ([SGD, SAM] if space.ends else []) + [space.whole(point) for point in space.points]
    if not space.priors or space.coordinates != "cost":
        return points
    given = (_allowed(space, _GRST), _allowed(space, _RST))
    return points + next(filter(None, given), [])


def _allowed(space: Space, recommended: tuple[_Point, ...]) -> list[Coordinates]:
    found = []
    for family, c, shape, gamma_rst in recommended:
        gamma = {"gamma_rst": gamma_rst} if space.gamma_rst is not None else {"gamma_gnr": gamma_rst / c}
        point: Coordinates = {"family": family, "c": c} | ({} if family == "constant" else {"shape": shape}) | gamma
        if space.allows(point := space.whole(point)):
            found.append(point)
    return found
