"""A user's own space: any Python, one function. What it returns is trained; every name it suggests is searched."""

from typing import Any


def space(trial: Any) -> dict[str, Any]:
    """Late SAM only: a step up or a ramp up, dear schedules with less gamma."""
    family = trial.suggest_categorical("family", ["step-up", "ramp-up"])
    c = trial.suggest_float("c", 0.1, 0.9)
    gamma_rst = trial.suggest_float("gamma_rst", 0.4, 1.5 - 0.5 * c)
    return {"family": family, "c": c, "shape": 1.0, "gamma_rst": gamma_rst, "rule": "sam"}
