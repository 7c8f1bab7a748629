"""What is evaluated before anything is drawn: the two ends of every front, and what the paper recommends."""

from rst_tune.tuning.space import Coordinates, Space

__all__ = ["SAM", "SGD", "prior_points"]

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
    """Return the ends, the space's own points, and those of the paper's points that the space allows."""
    points = ([SGD, SAM] if space.ends else []) + [space.whole(point) for point in space.points]
    if not space.priors or space.coordinates != "cost":
        return points
    for family, c, shape, gamma_rst in _PRIORS:
        gamma = {"gamma_rst": gamma_rst} if space.gamma_rst is not None else {"gamma_gnr": gamma_rst / c}
        point: Coordinates = {"family": family, "c": c} | ({} if family == "constant" else {"shape": shape}) | gamma
        if space.allows(point := space.whole(point)):
            points.append(point)
    return points
