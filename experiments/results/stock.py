"""A search of stock parts, for comparison: Ray's OptunaSearch under Ray's ASHA.

Optuna gets two metrics (error and compute) over the axes of the experiment's space, ASHA stops by error, and a stopped
trial is told to Optuna with the error it had: the default behaviour of these parts in combination.
"""

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

from rst_tune.training.workload import Workload
from rst_tune.tuning.backend.cluster import connected
from rst_tune.tuning.backend.runner import to_method
from rst_tune.tuning.experiment import Experiment
from rst_tune.tuning.space import Space, TaskScale, trial_config

__all__ = ["RESULT_NAME", "search"]

RESULT_NAME = "trials.json"
MAX_CONCURRENT_TRIALS = 2


def search(directory: Path, experiment: Experiment, budget: float) -> None:
    """Search until `budget` pairs are spent and write how every trial ended. A finished search is not run again."""
    if (directory / RESULT_NAME).exists():
        return
    directory.mkdir(parents=True, exist_ok=True)
    with connected(None, log=directory / "log.txt"):
        results = _tuner(directory, experiment, budget).fit()
        trials = [_last_report(result) for result in results if result.metrics and "error" in result.metrics]
    (directory / RESULT_NAME).write_text(json.dumps(trials, indent=1) + "\n")


def _tuner(directory: Path, experiment: Experiment, budget: float) -> Any:
    from optuna.samplers import TPESampler
    from ray import cloudpickle, tune
    from ray.tune.schedulers import ASHAScheduler
    from ray.tune.search.optuna import OptunaSearch

    # Workers cannot import this file: it is pickled with the function.
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    workload, space = experiment.workload(), experiment.space
    assert isinstance(space, Space)
    scale = experiment.scale(workload.steps_per_epoch)
    algorithm = OptunaSearch(
        space=partial(_sample, space),
        metric=["error", "compute"],
        mode=["min", "min"],
        sampler=TPESampler(seed=experiment.seed),
    )
    longest = round(experiment.longest_horizon * scale.epochs)
    chosen = tune.TuneConfig(
        search_alg=algorithm,
        scheduler=ASHAScheduler(metric="error", mode="min", max_t=longest),
        num_samples=-1,
        max_concurrent_trials=MAX_CONCURRENT_TRIALS,
        reuse_actors=True,  # a new process per trial takes longer to start than to train
    )
    run = tune.RunConfig(
        name="stock",
        storage_path=str(directory.resolve()),
        stop=_stopper(budget),
        verbose=0,
        failure_config=tune.FailureConfig(fail_fast=True),
    )
    function = tune.with_resources(_train, {"cpu": 1})
    trained = tune.with_parameters(function, workload=workload, scale=scale, seed=experiment.seed)
    return tune.Tuner(trained, tune_config=chosen, run_config=run)


def _sample(space: Space, trial: Any) -> dict[str, Any]:
    """Return the sampled parameters as a constant of the trial: Optuna's flat ones do not determine them."""
    return {"params": space.sample(trial)}


def _train(config: dict[str, Any], workload: Workload, scale: TaskScale, seed: int) -> None:
    import torch
    from ray import tune

    torch.set_num_threads(1)
    params = config["params"]
    chosen = trial_config(params, scale)
    run = workload.start(to_method(chosen), seed=seed, epochs=scale.epochs_of(params), device="cpu")
    while not run.finished:
        run.epoch()
        report = {"error": 100.0 if run.error is None else run.error, "compute": chosen.compute, "pairs": run.pairs}
        tune.report({**report, "params": params, "complete": run.finished})


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
