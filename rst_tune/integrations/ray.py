"""Ray Tune: a search space of plain values, the RST of a sampled configuration, and the front of a ResultGrid."""

from collections.abc import Mapping
from math import isfinite
from typing import Any

from torch import nn
from torch.optim import Optimizer

from rst_tune.errors import InputError
from rst_tune.method.optimizer import RST
from rst_tune.method.schedules import MEAN_FAMILIES, with_mean

try:
    from ray import tune
except ImportError as error:
    raise ImportError("Ray Tune is not installed: pip install 'rst_tune[tune]'") from error

__all__ = ["front_of", "rst_from_config", "search_space"]

SCHEDULE = ("family", "extra_propagation", "shape")


def search_space(**replaced: Any) -> dict[str, Any]:
    """Return the `param_space` of a Tuner: schedule, gamma_gnr and rho as ordinary `tune` domains.

    Args:
        replaced: values or domains instead of the default ones, or in addition, such as rho=0.1 or
            rule=tune.choice(["sam", "asam"]); every argument of RST may be among them.
    """
    return {
        "family": tune.choice(MEAN_FAMILIES.names()),
        "extra_propagation": tune.loguniform(0.05, 1.0),
        "shape": tune.uniform(0.0, 1.0),
        "gamma_gnr": tune.loguniform(0.5, 4.0),
        "rho": tune.loguniform(0.01, 0.5),
    } | replaced


def rst_from_config(
    config: Mapping[str, Any], base: Optimizer, model: nn.Module, total_steps: int, **settings: Any
) -> RST:
    """Return the RST of a configuration that was sampled from `search_space`.

    Args:
        config: the values of `search_space`. Remove the keys of your own before.
        base: the base optimizer.
        model: the module.
        total_steps: T.
        settings: other arguments of RST.
    """
    missing = [name for name in SCHEDULE if name not in config]
    if missing:
        raise InputError(f"a configuration needs {', '.join(SCHEDULE)}, but {missing} are missing: use search_space()")
    schedule = with_mean(config["family"], config["extra_propagation"], total_steps, config["shape"])
    own = {name: value for name, value in config.items() if name not in SCHEDULE}
    return RST(base, model, schedule=schedule, total_steps=total_steps, **own, **settings)


def front_of(results: Any, error: str = "error", cost: str = "pairs") -> list[Any]:
    """Return the results of a ResultGrid that no other one dominates, in order of rising cost.

    A result whose trial failed, or that lacks a finite value of a metric, is not among them. The last report of each
    trial counts, with the cost until then: leave out trials that a scheduler stopped early if the cost is that of a
    whole training.

    Args:
        results: what `Tuner.fit` returned.
        error: the metric to be minimized.
        cost: the reported cost, minimized too.
    """
    points = {
        i: (float(result.metrics[error]), float(result.metrics[cost]))
        for i, result in enumerate(results)
        if result.error is None and {error, cost} <= set(result.metrics or {})
    }
    points = {i: point for i, point in points.items() if all(map(isfinite, point))}
    front = [i for i, point in points.items() if not any(_dominates(other, point) for other in points.values())]
    return [results[i] for i in sorted(front, key=lambda i: points[i][::-1])]


def _dominates(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return one[0] <= other[0] and one[1] <= other[1] and one != other
