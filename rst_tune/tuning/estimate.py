"""What a search costs, estimated before anything is spent."""

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch

from rst_tune.errors import InputError
from rst_tune.method import schedules
from rst_tune.training.data import Dataset, load_dataset
from rst_tune.training.loop import Run
from rst_tune.training.task import Method
from rst_tune.tuning.axes import Axis, Range
from rst_tune.tuning.experiment import Experiment
from rst_tune.tuning.space import Space

__all__ = ["Estimate", "estimate", "measure_pair", "paper_grid_pairs"]

PAPER_SEEDS = 5
_TENTHS = [i / 10 for i in range(1, 10)]


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """The cost of a search. Hours are None where the time per pair is not known.

    `trials_unstopped` is how many configurations fit if nothing is stopped, `trials_stopped` if nearly everything is
    stopped at the first rung: the search ends between the two.
    """

    name: str
    search_id: str
    steps_per_epoch: int
    epochs: int
    rungs: list[int]
    pairs_budget: float
    pairs_search: float
    pairs_confirm: float
    pairs_per_trial: float
    trials_unstopped: int
    trials_stopped: int
    seconds_per_pair: float | None
    slots: int
    device_hours: float | None
    wall_hours: float | None
    paper_grid_pairs: float
    paper_grid_device_hours: float | None

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return asdict(self)


def paper_grid_pairs(steps: int) -> float:
    """Return the pairs of the paper's own study: every group, SGD and SAM, five seeds, `steps` each.

    >>> round(paper_grid_pairs(1000))
    450013
    """
    groups: list[schedules.Schedule] = [schedules.constant(p) for p in _TENTHS]
    groups += [schedules.piecewise(a, b) for a in (0.0, 1.0) for b in _TENTHS]
    groups += [schedules.piecewise(a, 0.5) for a in _TENTHS]
    groups += [schedules.linear_group1(m) for m in _TENTHS]
    groups += [schedules.linear_group2(b) for b in _TENTHS]
    groups += [schedules.cos1(), schedules.cos2(), schedules.sin1(), schedules.sin2()]
    groups += [schedules.constant(0.0), schedules.constant(1.0)]
    return PAPER_SEEDS * sum(steps * (1 + s.extra_propagation(steps)) for s in groups)


def measure_pair(experiment: Experiment, data: Dataset, seconds: float = 2.0) -> float:
    """Return the seconds of one propagation pair on this machine, optimizer step and data included."""
    torch.set_num_threads(experiment.resources.threads)
    device = None if experiment.resources.gpus_per_worker else "cpu"
    run = Run(experiment.task, Method(schedule={"family": "constant", "p": 1.0}), seed=0, data=data, device=device)
    wait: Callable[[], None] = torch.cuda.synchronize if run.device.type == "cuda" else lambda: None
    run.steps(1)
    wait()
    begun, done = time.perf_counter(), run.pairs
    while time.perf_counter() - begun < seconds and run.steps(1):
        wait()
    return (time.perf_counter() - begun) / max(run.pairs - done, 1.0)


def _mean_compute(space: Space | str) -> float:
    """Return the mean compute of a sample, horizon · (1 + extra propagation)."""
    if not isinstance(space, Space):
        return 1.5
    return _mean(space.horizon) * (1 + _mean(space.extra_propagation))


def _mean(axis: Axis) -> float:
    if isinstance(axis, Range):
        wide = axis.high - axis.low
        return wide / math.log(axis.high / axis.low) if axis.log else axis.low + wide / 2
    values = axis if isinstance(axis, list) else [axis]
    return sum(values) / len(values)


def estimate(experiment: Experiment, *, slots: int = 1, measure: bool = True) -> Estimate:
    """Return what `experiment` costs with `slots` trials at a time; `measure` times a few steps here."""
    if not measure and experiment.budget.device_hours is not None:
        raise InputError(
            "a budget in device-hours is turned into trials by the measured time per pair, but nothing is measured: "
            "leave out --no-measure, or give budget.pairs"
        )
    data = load_dataset(experiment.task.data)
    experiment.check_model(data)
    steps_per_epoch = len(data.train) // experiment.task.recipe.batch_size
    epochs = experiment.task.recipe.epochs
    seconds = measure_pair(experiment, data) if measure else None
    per_trial = epochs * steps_per_epoch * _mean_compute(experiment.space) * experiment.seeds
    devices = experiment.resources.devices
    budget = _budget_pairs(experiment, epochs * steps_per_epoch, per_trial, seconds)
    share = experiment.confirm.budget_fraction if experiment.confirm.enabled else 0.0
    searching = budget if experiment.budget.trials is not None else budget * (1 - share)
    rungs = experiment.fidelity.epochs(epochs)
    cheapest = per_trial * (rungs[0] / epochs if rungs and experiment.stopping.name != "none" else 1.0)
    grid = paper_grid_pairs(epochs * steps_per_epoch)
    hours = None if seconds is None else budget * seconds * devices / 3600
    return Estimate(
        name=experiment.name,
        search_id=experiment.search_id,
        steps_per_epoch=steps_per_epoch,
        epochs=epochs,
        rungs=rungs,
        pairs_budget=budget,
        pairs_search=searching,
        pairs_confirm=budget - searching,
        pairs_per_trial=per_trial,
        trials_unstopped=int(searching // per_trial),
        trials_stopped=int(searching // cheapest),
        seconds_per_pair=seconds,
        slots=slots,
        device_hours=hours,
        wall_hours=None if hours is None else hours / devices / max(slots, 1),
        paper_grid_pairs=grid,
        paper_grid_device_hours=None if seconds is None else grid * seconds * devices / 3600,
    )


def _budget_pairs(experiment: Experiment, recipe: int, per_trial: float, seconds: float | None) -> float:
    budget, confirm = experiment.budget, experiment.confirm
    if budget.pairs is not None:
        return budget.pairs
    if budget.trainings is not None:
        return budget.trainings * recipe
    if budget.trials is not None:
        confirming = confirm.candidates * confirm.max_seeds if confirm.enabled else 0
        return per_trial * (budget.trials + confirming / experiment.seeds)
    assert budget.device_hours is not None
    assert seconds is not None
    return budget.device_hours * 3600 / seconds / experiment.resources.devices
