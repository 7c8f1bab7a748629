"""Parts for a plain Ray Tune script: a search space of ordinary values, the RST of a sampled configuration, a trainable
of a training function, a scheduler that respects the whole front, the search's own sampler, the front of a ResultGrid.
"""

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from math import inf, isfinite
from pathlib import Path
from typing import Any

from torch import nn
from torch.optim import Optimizer

from rst_tune.errors import InputError
from rst_tune.method.optimizer import RST
from rst_tune.method.schedules import MEAN_FAMILIES, Schedule, with_mean

try:
    from ray import tune
    from ray.tune.schedulers import FIFOScheduler, TrialScheduler
    from ray.tune.search.optuna import OptunaSearch
except ImportError as error:
    raise ImportError("Ray Tune is not installed: pip install 'rst_tune[tune]'") from error

from rst_tune.analysis.pareto import nondominated
from rst_tune.integrations.optuna import RstSampler
from rst_tune.training.function import FunctionTask, FunctionWorkload
from rst_tune.training.task import Method
from rst_tune.tuning.experiment import Fidelity, Stopping
from rst_tune.tuning.halving import RungTable, make_stopper

__all__ = ["FrontSearch", "ParetoScheduler", "front_of", "rst_from_config", "search_space", "trainable"]

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
    own = {name: value for name, value in config.items() if name not in SCHEDULE}
    return RST(base, model, schedule=_schedule(config, total_steps), total_steps=total_steps, **own, **settings)


def _schedule(config: Mapping[str, Any], total_steps: int) -> Schedule:
    missing = [name for name in SCHEDULE if name not in config]
    if missing:
        raise InputError(f"a configuration needs {', '.join(SCHEDULE)}, but {missing} are missing: use search_space()")
    return with_mean(config["family"], config["extra_propagation"], total_steps, config["shape"])


def trainable(
    train: Callable[..., Any], *, epochs: int, metric: Any = "error", rho: float = 0.05, **settings: Any
) -> Callable[[dict[str, Any]], None]:
    """Return a Tune trainable of a training function, as `rst_tune.search` takes it.

    Its config holds ordinary values: those of `search_space`, or `schedule` instead of family, extra_propagation and
    shape; and `horizon` (the length as a share of `epochs`) and `seed`. Any other value, such as a learning rate, is
    passed to the function by name. It saves a Tune checkpoint after each epoch and
    continues from it, so `Tuner.restore`, other people's schedulers and searchers work. Each result has the metric
    (by its name, and as `error`, which is minimized), `compute`, `pairs` and `epochs`, the length of the training;
    `complete` is True in the last one.

    Args:
        train: the function, called with a `FunctionTrial`.
        epochs: the length of one plain training.
        metric: its name, or a `Metric`.
        rho: the radius of SAM, for configurations without one.
        settings: steps_per_epoch and options of the function.
    """
    task = FunctionTask.of(train, epochs=epochs, metric=metric, rho=rho, **settings)
    workload = task.workload()
    workload.check(["sam"])

    def run(config: dict[str, Any]) -> None:
        length = max(1, round(float(config.get("horizon", 1.0)) * epochs))
        method = _method(config, length * workload.steps_per_epoch)
        training = _with_options(workload, config).start(method, seed=int(config.get("seed", 0)), epochs=length)
        if (checkpoint := tune.get_checkpoint()) is not None:
            with checkpoint.as_directory() as folder:
                training.restore(Path(folder) / "run.pt")
        while not training.finished:
            last = training.epoch()
            compute = length / epochs * (1 + training.extra_propagation)
            error = training.error if training.status != "diverged" else inf
            result = {**last, "error": error, "compute": compute, "epochs": length, "pairs": training.pairs}
            _report(training, {**result, "complete": training.status == "complete"})
        training.close()

    return run


def _method(config: Mapping[str, Any], total_steps: int) -> Method:
    """Return the method of a configuration; what is neither its nor the schedule's belongs to somebody else."""
    own = {name: value for name, value in config.items() if name in Method.model_fields}
    if "schedule" not in own:
        own["schedule"] = _schedule(config, total_steps).to_dict()
    return Method.model_validate(own)


def _with_options(workload: FunctionWorkload, config: Mapping[str, Any]) -> FunctionWorkload:
    """Return the workload with the values that belong to the function."""
    known = {*Method.model_fields, *SCHEDULE, "horizon", "seed"}
    options = {**workload.task.options, **{name: value for name, value in config.items() if name not in known}}
    changes = {"options": options, "steps_per_epoch": workload.steps_per_epoch}
    return replace(workload, task=workload.task.model_copy(update=changes))


def _report(training: Any, result: dict[str, Any]) -> None:
    if training.status == "diverged":
        tune.report(result)
        return
    with tempfile.TemporaryDirectory() as folder:
        training.save(Path(folder) / "run.pt")
        tune.report(result, checkpoint=tune.Checkpoint.from_directory(folder))


class ParetoScheduler(FIFOScheduler):  # type: ignore[misc]  # Ray is untyped
    """Asynchronous successive halving that keeps the best share of a rung in the order of Pareto dominance.

    ASHA keeps the trials of the lowest error, so the cheap end of a front is lost. Here trials are ranked by error and
    cost, and both ends survive. Trials are compared with those of the same length (`epochs` of a result) only.

    Args:
        max_t: the length of a trial whose results have no `epochs`.
        error: the metric to be minimized.
        cost: the cost of the whole training, known from its first result on.
        time_attr: what counts the epochs of a trial.
        reduction_factor: rungs stand at 1/reduction_factor^k of the length, and 1/reduction_factor goes on.
        rungs: how many.
        stopping: `pareto-asha` or `asha`.
    """

    def __init__(
        self,
        max_t: int = 100,
        *,
        error: str = "error",
        cost: str = "compute",
        time_attr: str = "training_iteration",
        reduction_factor: int = 3,
        rungs: int = 2,
        stopping: str = "pareto-asha",
    ) -> None:
        super().__init__()
        settings = Stopping.model_validate({"name": stopping})
        self._fidelity = Fidelity(reduction_factor=reduction_factor, rungs=rungs)
        self._stopper = make_stopper(settings, reduction_factor)
        self._table = RungTable()
        self._names = (error, cost, time_attr)
        self._max_t, self._passed = max_t, dict[str, int]()

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        """Decide at the last rung that the trial has passed since its result before."""
        error, cost, time_attr = (result.get(name) for name in self._names)
        if error is None or cost is None or time_attr is None:
            missing = [name for name in self._names if result.get(name) is None]
            raise InputError(f"each result needs {', '.join(self._names)}, but {missing} are missing: report them")
        length = int(result.get("epochs", self._max_t))
        passed = [e for e in self._fidelity.epochs(length) if self._passed.get(trial.trial_id, 0) < e <= time_attr]
        self._passed[trial.trial_id] = int(time_attr)
        if not passed or time_attr >= length:
            return str(TrialScheduler.CONTINUE)
        if not isfinite(error):
            return str(TrialScheduler.STOP)
        rung = (passed[-1], length)
        self._table.add(trial.trial_id, rung, float(error), float(cost))
        stop = self._stopper.decide(self._table, trial.trial_id, rung).stop
        return str(TrialScheduler.STOP if stop else TrialScheduler.CONTINUE)

    def on_trial_complete(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> None:
        """Learn from a trial that was trained to its end."""
        error, cost, time_attr = (result.get(name) for name in self._names)
        whole = time_attr is not None and time_attr >= int(result.get("epochs", self._max_t))
        if whole and error is not None and cost is not None and isfinite(error):
            self._table.finish(trial.trial_id, float(error), float(cost))


class FrontSearch(OptunaSearch):  # type: ignore[misc]  # Ray is untyped
    """Tune's OptunaSearch with the sampler of the search, for `trainable`: it extends the front of (error, compute).

    Its configurations hold schedule, rule, rho, gamma_gnr and horizon as ordinary values. A trial that a scheduler
    stopped is not taken for a complete one. The arguments are those of `rst_tune.integrations.optuna.RstSampler`.
    """

    def __init__(
        self, space: Any = "compute", *, epochs: int, rho: float = 0.05, seed: int = 0, n_startup_trials: int = 8
    ) -> None:
        self._rst = own = RstSampler(space, epochs=epochs, rho=rho, seed=seed, n_startup_trials=n_startup_trials)
        super().__init__(space=own.sample_all, sampler=own, metric=["error", "compute"], mode=["min", "min"])

    def suggest(self, trial_id: str) -> dict[str, Any] | None:
        """Return the next configuration."""
        suggested = super().suggest(trial_id)
        if suggested is None:
            return None
        config = self._rst.config_of(self._rst.params_of(suggested))
        return {name: getattr(config, name) for name in (*Method.model_fields, "horizon")}

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Take in a trial that was trained to its end."""
        whole = result is not None and bool(result.get("complete"))
        super().on_trial_complete(trial_id, result if whole else None, error)


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
    front = [i for i, kept in zip(points, nondominated(list(points.values())), strict=True) if kept]
    return [results[i] for i in sorted(front, key=lambda i: points[i][::-1])]
