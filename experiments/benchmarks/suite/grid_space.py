"""The space of the suite: the shipped `compute` space, its samples rounded to a grid: methods share trainings."""

from functools import cache
from typing import Any

import numpy as np

from rst_tune.tuning import yaml_files
from rst_tune.tuning.axes import Suggester
from rst_tune.tuning.space import Params, Space

STEP = np.sqrt(2.0)
_ROUNDED = {"c": (0.05, 1.0), "gamma_rst": (0.35, 3.0), "rho": (0.3, 4.0), "horizon": (0.15, 2.0)}


def rounded(params: Params) -> Params:
    """Return the parameters on the grid: factors of √2, and three shapes.

    >>> rounded({"family": "constant", "c": 0.3, "rho": 1.1})
    {'family': 'constant', 'c': 0.2828, 'rho': 1.2}
    """
    out: dict[str, Any] = dict(params)
    for name, (low, high) in _ROUNDED.items():
        if name in out and not (name == "horizon" and out[name] == 1.0):
            steps = round(np.log(out[name] / low) / np.log(STEP))
            out[name] = round(float(min(max(low * STEP**steps, low), high)), 4)
    if "shape" in out:
        out["shape"] = round(2 * out["shape"]) / 2
        if out["shape"] == 0.0:  # the constant, whatever the family
            out["family"] = "constant"
            del out["shape"]
    return out


class GridSpace(Space):
    """A space whose samples lie on the grid."""

    def sample(self, trial: Suggester) -> Params:
        """Return one sample."""
        return rounded(super().sample(trial))


def compute_space(**changes: Any) -> GridSpace:
    """Return the shipped space `compute`, on the grid."""
    return GridSpace.model_validate({**_content(), "name": "compute", **changes})


@cache
def _content() -> dict[str, Any]:
    return yaml_files.read_yaml(yaml_files.shipped("search_spaces")["compute"])
