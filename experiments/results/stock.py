"""A search of stock parts, for comparison: Ray's OptunaSearch under Ray's ASHA.

Optuna gets two metrics (error and extra propagation), ASHA stops by error, and a stopped trial is told to Optuna with
the error it had: the default behaviour of these parts in combination.
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
from rst_tune.tuning.experiment import load_space
from rst_tune.tuning.space import Space, trial_config

__all__ = ["RESULT_NAME", "search"]

RESULT_NAME = "trials.json"
MAX_CONCURRENT_TRIALS = 2


def search(directory: Path, *, budget: float, seed: int, epochs: int | None = None) -> None:
    """Search until `budget` pairs are spent and write how every trial ended. A finished search is not run again."""
    if (directory / RESULT_NAME).exists():
        return
    directory.mkdir(parents=True, exist_ok=True)
    with connected(None, log=directory / "log.txt"):
        results = _tuner(directory, budget, seed, epochs or Task().recipe.epochs).fit()
    trials = [_last_report(result) for result in results if result.metrics and "error" in result.metrics]
    (directory / RESULT_NAME).write_text(json.dumps(trials, indent=1) + "\n")


def _tuner(directory: Path, budget: float, seed: int, epochs: int) -> Any:
    from optuna.samplers import TPESampler
    from ray import cloudpickle, tune
    from ray.tune.schedulers import ASHAScheduler
    from ray.tune.search.optuna import OptunaSearch

    # Workers cannot import this file: it is pickled with the function.
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    algorithm = OptunaSearch(
        space=_sample,
        metric=["error", "cost"],
        mode=["min", "min"],
        sampler=TPESampler(seed=seed),
    )
    chosen = tune.TuneConfig(
        search_alg=algorithm,
        scheduler=ASHAScheduler(metric="error", mode="min", max_t=epochs),
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
    trained = tune.with_parameters(tune.with_resources(_train, {"cpu": 1}), seed=seed, epochs=epochs)
    return tune.Tuner(trained, tune_config=chosen, run_config=run)


def _sample(trial: Any) -> dict[str, Any]:
    """Return the sampled parameters as a constant of the trial: Optuna's flat ones do not determine them."""
    return {"params": _space().sample(trial)}


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
    data, recipe, params = load_dataset(task.data), task.recipe, config["params"]
    chosen = trial_config(params, total_steps=epochs * (len(data.train) // recipe.batch_size), rho=recipe.rho)
    run = Run(task, to_method(chosen), seed=seed, epochs=epochs, device="cpu", data=data)
    while not run.finished:
        error = run.epoch().get("validation_error", 100.0)
        tune.report({"error": error, "cost": chosen.extra_propagation, "pairs": run.pairs, "params": params})


def _last_report(result: Any) -> dict[str, Any]:
    """Return the last report of a trial."""
    metrics = result.metrics
    names = ("error", "cost", "pairs", "params")
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
