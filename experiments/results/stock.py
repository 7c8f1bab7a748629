"""The search that people put together from stock parts, to compare with: Ray's OptunaSearch under Ray's ASHA.

Two metrics go to Optuna (error and extra propagation), ASHA stops by error, and a trial that it stops is told to
Optuna with the error it had: that is what these parts do when they are plugged together.
"""

import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

from rst_tune.training.loop import Run
from rst_tune.training.task import Method, Task
from rst_tune.tuning.cluster import connected
from rst_tune.tuning.experiment import load_space
from rst_tune.tuning.space import Space, configuration

__all__ = ["RESULT_NAME", "search"]

RESULT_NAME = "trials.json"
CONCURRENT = 2


def search(directory: Path, *, budget: float, seed: int, epochs: int | None = None) -> None:
    """Search until `budget` pairs are spent and write how every trial ended. One that is written is not run again."""
    if (directory / RESULT_NAME).exists():
        return
    directory.mkdir(parents=True, exist_ok=True)
    with connected(None, log=directory / "log.txt"):
        results = _tuner(directory, budget, seed, epochs or Task().recipe.epochs).fit()
    trials = [_ending(result) for result in results if result.metrics and "error" in result.metrics]
    (directory / RESULT_NAME).write_text(json.dumps(trials, indent=1) + "\n")


def _tuner(directory: Path, budget: float, seed: int, epochs: int) -> Any:
    from optuna.samplers import TPESampler
    from ray import cloudpickle, tune
    from ray.tune.schedulers import ASHAScheduler
    from ray.tune.search.optuna import OptunaSearch

    # The workers need not find this file: it travels with the function.
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    algorithm = OptunaSearch(
        space=_draw,
        metric=["error", "cost"],
        mode=["min", "min"],
        sampler=TPESampler(seed=seed),
    )
    chosen = tune.TuneConfig(
        search_alg=algorithm,
        scheduler=ASHAScheduler(metric="error", mode="min", max_t=epochs),
        num_samples=-1,
        max_concurrent_trials=CONCURRENT,
    )
    run = tune.RunConfig(
        name="stock",
        storage_path=str(directory.resolve()),
        stop=_stopper(budget),
        verbose=0,
        failure_config=tune.FailureConfig(fail_fast=True),
    )
    trained = tune.with_parameters(tune.with_resources(_train, {"cpu": 1}), seed=seed, epochs=epochs)
    return tune.Tuner(trained, tune_config=chosen, run_config=run)


def _draw(trial: Any) -> dict[str, Any]:
    """Return the drawn point as a constant of the trial: the flat parameters alone do not say it."""
    return {"point": _space().draw(trial)}


@cache
def _space() -> Space:
    space = load_space("native")
    assert isinstance(space, Space)
    return space


def _train(config: dict[str, Any], seed: int, epochs: int) -> None:
    import torch
    from ray import tune

    torch.set_num_threads(1)
    task = Task()
    run = Run(task, Method(schedule={"family": "constant", "p": 0.0}), seed=seed, epochs=epochs, device="cpu")
    point = configuration(config["point"], total_steps=run.total_steps, rho=task.recipe.rho)
    run = Run(task, Method.from_config(point), seed=seed, epochs=epochs, device="cpu", data=run.data)
    while not run.finished:
        measured = run.epoch()
        error = measured.get("validation_error", 100.0)
        tune.report({"error": error, "cost": point["extra_propagation"], "pairs": run.pairs, "point": config["point"]})


def _ending(result: Any) -> dict[str, Any]:
    """Return a trial as its last report tells it."""
    metrics = result.metrics
    names = ("error", "cost", "pairs", "point")
    return {name: metrics[name] for name in names} | {"epochs": metrics["training_iteration"]}


def _stopper(budget: float) -> Any:
    """Return what ends everything once the pairs of all trials reach the budget."""
    from ray.tune import Stopper

    class Budget(Stopper):
        def __init__(self) -> None:
            self.spent: dict[str, float] = {}

        def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
            self.spent[trial_id] = float(result["pairs"])
            return False

        def stop_all(self) -> bool:
            return sum(self.spent.values()) >= budget

    return Budget()
