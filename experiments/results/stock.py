"""A search of stock parts, for comparison: Ray's OptunaSearch under Ray's ASHA.

Optuna gets two metrics (error and compute) over the axes of the embedded experiment, ASHA stops by error, and a stopped
trial is told to Optuna with the error it had: the default behaviour of these parts in combination.
"""

import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

from rst_tune.training.data import load_dataset
from rst_tune.training.loop import Run
from rst_tune.training.task import Task
from rst_tune.tuning.backend.cluster import connected
from rst_tune.tuning.backend.runner import to_method
from rst_tune.tuning.experiment import Experiment, load_experiment
from rst_tune.tuning.space import Space, TaskScale, trial_config

__all__ = ["RESULT_NAME", "search"]

RESULT_NAME = "trials.json"
MAX_CONCURRENT_TRIALS = 2


def search(directory: Path, *, budget: float, seed: int) -> None:
    """Search until `budget` pairs are spent and write how every trial ended. A finished search is not run again."""
    if (directory / RESULT_NAME).exists():
        return
    directory.mkdir(parents=True, exist_ok=True)
    with connected(None, log=directory / "log.txt"):
        results = _tuner(directory, budget, seed).fit()
    trials = [_last_report(result) for result in results if result.metrics and "error" in result.metrics]
    (directory / RESULT_NAME).write_text(json.dumps(trials, indent=1) + "\n")


def _tuner(directory: Path, budget: float, seed: int) -> Any:
    from optuna.samplers import TPESampler
    from ray import cloudpickle, tune
    from ray.tune.schedulers import ASHAScheduler
    from ray.tune.search.optuna import OptunaSearch

    # Workers cannot import this file: it is pickled with the function.
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    algorithm = OptunaSearch(
        space=_sample,
        metric=["error", "compute"],
        mode=["min", "min"],
        sampler=TPESampler(seed=seed),
    )
    chosen = tune.TuneConfig(
        search_alg=algorithm,
        scheduler=ASHAScheduler(metric="error", mode="min", max_t=_longest()),
        num_samples=-1,
        max_concurrent_trials=MAX_CONCURRENT_TRIALS,
    )
    run = tune.RunConfig(
        name="stock",
        storage_path=str(directory.resolve()),
        stop=_stopper(budget),
        verbose=0,
        failure_config=tune.FailureConfig(fail_fast=True),
    )
    trained = tune.with_parameters(tune.with_resources(_train, {"cpu": 1}), seed=seed)
    return tune.Tuner(trained, tune_config=chosen, run_config=run)


def _sample(trial: Any) -> dict[str, Any]:
    """Return the sampled parameters as a constant of the trial: Optuna's flat ones do not determine them."""
    space = _experiment().space
    assert isinstance(space, Space)
    return {"params": space.sample(trial)}


@cache
def _experiment() -> Experiment:
    return load_experiment("digits")


def _longest() -> int:
    """Return the epochs of the longest training of the space."""
    return round(_experiment().longest_horizon * Task().recipe.epochs)


def _train(config: dict[str, Any], seed: int) -> None:
    import torch
    from ray import tune

    torch.set_num_threads(1)
    task = Task()
    data, recipe, params = load_dataset(task.data), task.recipe, config["params"]
    steps = len(data.train) // recipe.batch_size
    scale = TaskScale(epochs=recipe.epochs, steps_per_epoch=steps, rho=recipe.rho, batch_size=recipe.batch_size)
    chosen = trial_config(params, scale)
    run = Run(task, to_method(chosen), seed=seed, epochs=scale.epochs_of(params), device="cpu", data=data)
    while not run.finished:
        error = run.epoch().get("validation_error", 100.0)
        report = {"error": error, "compute": chosen.compute, "pairs": run.pairs, "params": params}
        tune.report({**report, "complete": run.finished})


def _last_report(result: Any) -> dict[str, Any]:
    """Return the last report of a trial."""
    metrics = result.metrics
    names = ("error", "compute", "pairs", "params", "complete")
    return {name: metrics[name] for name in names} | {"epochs": metrics["training_iteration"]}


def _stopper(budget: float) -> Any:
    """Return a stopper that ends the search once the pairs of all trials reach the budget."""
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
