"""Configurations that are evaluated before any is sampled: the baselines, and the space's own points."""

from rst_tune.tuning import axes as axis_of
from rst_tune.tuning.space import Params, Space

SGD: Params = {"schedule": {"family": "constant", "p": 0.0}, "gamma_gnr": 1.0, "rule": "sam"}
SAM: Params = {"schedule": {"family": "constant", "p": 1.0}, "gamma_gnr": 1.0, "rule": "sam"}


def baselines(space: Space | str) -> list[Params]:
    """Return the base optimizer at the recipe's length and four others, and SAM at the recipe's length.

    The lengths answer the first question of everybody who pays for compute: is it worth more than training longer? They
    are the shortest, the longest, and two between the shortest and the recipe's, where the best one often lies. They
    are cheap and hold most of the hypervolume: 0.89 of the best known on the suite (docs/results.md). What lengths a
    Python space has is not known.
    """
    if isinstance(space, str):
        return [SGD, SAM]
    if not space.baselines:
        return []
    low, high = axis_of.bounds(space.horizon)
    lengths = [] if low == high else [low, round(low ** (2 / 3), 3), round(low ** (1 / 3), 3), high]
    return [SGD, SAM, *({**SGD, "horizon": length} for length in lengths if low <= length <= high and length != 1.0)]


def points_to_evaluate(space: Space) -> list[Params]:
    """Return the baselines and the space's own points."""
    return baselines(space) + [space.fill_defaults(p) for p in space.points_to_evaluate]
