"""What is evaluated before anything is drawn: the two ends of every front, and what theory or the paper recommends.

Where gamma is free, G-RST at gamma_gnr = 1/p has the mean regularization of SAM at any cost: three such points cover
the front. Where gamma_gnr is fixed there is no such line, and what the paper found best for RST is tried.
"""

from rst_tune.tuning.space import Coordinates, Space

__all__ = ["SAM", "SGD", "prior_points"]

SGD: Coordinates = {"schedule": {"family": "constant", "p": 0.0}, "gamma_gnr": 1.0, "rule": "sam"}
SAM: Coordinates = {"schedule": {"family": "constant", "p": 1.0}, "gamma_gnr": 1.0, "rule": "sam"}

# (family, c, shape, gamma_rst)
_Point = tuple[str, float, float, float]
_GRST: tuple[_Point, ...] = tuple(("constant", c, 0.0, 1.0) for c in (0.5, 0.25, 0.1))
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
