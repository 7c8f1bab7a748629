"""What a search costs, estimated before anything is spent."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np
import torch

from rst_tune.errors import InputError
from rst_tune.method import schedules
from rst_tune.records import Cost, RuleTimes
from rst_tune.training.task import Method
from rst_tune.training.workload import ClassifierWorkload, StepTime, Workload
from rst_tune.tuning import yaml_files
from rst_tune.tuning.axes import Range
from rst_tune.tuning.backend.resources import Resources
from rst_tune.tuning.experiment import Confirm, Experiment
from rst_tune.tuning.points import SAM, SGD, baselines
from rst_tune.tuning.proposals import given_points
from rst_tune.tuning.sampler import RandomSuggester
from rst_tune.tuning.space import Params, Space, trial_config

PAPER_SEEDS = 5
LEAST_TIMED = 10
SAMPLES = 300  # of a space, for the mean cost of a configuration
# Plain trainings that a search spends on sampled configurations, where its answer is to be settled: at a budget of 40,
# at which the fronts of the suite (experiments/benchmarks/suite) have 0.95 of the best known hypervolume, replicates
# and baselines take 18.
SEARCH_TRAININGS = 22
_TENTHS = [i / 10 for i in range(1, 10)]


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """The cost of a search. Hours are None where the time per pair is not known.

    `trials_unstopped` is how many configurations fit if nothing is stopped, `trials_stopped` if nearly everything is
    stopped at the first rung: the search ends between the two. `pairs_search` includes `pairs_baselines`, what the
    base optimizer at its lengths and SAM take. `plain_trainings` is the budget in trainings of the base optimizer at
    the recipe's length. `trainings_decided` is what a front of `front_points` replicated points takes in the same unit,
    with `front_seeds` seeds each and for the baselines; None where the search replicates nothing. Where `cost` is
    seconds, pairs count with their time: they are plain steps. `axes` are what the search varies: name,
    and values as a list or as low, high, log. `prior` says which earlier searches inform this one; None: none.
    """

    name: str
    search_id: str
    prior: str | None
    cost: Cost
    steps_per_epoch: int
    epochs: int
    rungs: list[int]
    axes: list[dict[str, Any]]
    plain_trainings: float
    pairs_budget: float
    pairs_search: float
    pairs_baselines: float
    pairs_confirm: float
    trainings_decided: float | None
    front_points: int
    front_seeds: int
    pairs_per_trial: float
    trials_unstopped: int
    trials_stopped: int
    seconds_per_pair: float | None
    slots: int
    device_hours: float | None
    wall_hours: float | None
    paper_grid_pairs: float
    paper_grid_device_hours: float | None


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


def measure_pair(experiment: Experiment, workload: Workload) -> float:
    """Return the seconds of one propagation pair on this machine, optimizer step and data included."""
    steps = _timed_steps(workload, "sam", 1.0, experiment.resources, 2.0)
    return sum(step.seconds for step in steps) / sum(step.pairs for step in steps)


def timing(experiment: Experiment) -> Callable[[Workload], RuleTimes]:
    """Return the function that measures the times of the experiment's rules; it is called where trials are run."""
    space = experiment.space
    rules = experiment.rules if isinstance(space, Space) else [p.get("rule", "sam") for p, _ in _samples(space)]
    return partial(measure_times, rules=sorted({"sam", *rules}), resources=experiment.resources)


def measure_times(workload: Workload, *, rules: Iterable[str], resources: Resources, seconds: float = 2.0) -> RuleTimes:
    """Return the times of a plain step, of an extra pair and of each rule's own work, on this machine.

    One training per rule, at its default options, has plain and sharpness-aware steps in random order, so that a load
    that changes slows down both. What SAM's ascent adds to a step is the time of a pair; what another rule's ascent
    adds beyond its pairs is that rule's work.
    """
    steps = {rule: _timed_steps(workload, rule, 0.5, resources, seconds) for rule in rules}
    ascents = {rule: [s for s in found if s.ascent] for rule, found in steps.items()}
    # Means, although single steps may be interrupted: a lower quantile would favour the shorter kind of step.
    plain = {rule: fmean(s.seconds for s in found if not s.ascent) for rule, found in steps.items()}
    added = {rule: fmean(s.seconds for s in found) / plain[rule] - 1.0 for rule, found in ascents.items()}
    pairs = {rule: fmean(s.pairs for s in found) - 1.0 for rule, found in ascents.items()}
    work = {rule: added[rule] - added["sam"] * pairs[rule] for rule in steps if rule != "sam"}
    return RuleTimes(step=plain["sam"], second=added["sam"], work=work)


def _timed_steps(workload: Workload, rule: str, p: float, resources: Resources, seconds: float) -> list[StepTime]:
    """Return single steps of one worker, which has its share of a batch and communicates with no other.

    The first ascent is left out, with what comes before it: it builds what later ones use again.
    """
    torch.set_num_threads(resources.threads)
    if isinstance(workload, ClassifierWorkload):
        workload = workload.share(resources.workers)
    method = Method(schedule={"family": "constant", "p": p}, rule=rule)
    found = workload.timed_steps(method, None if resources.gpus_per_worker else "cpu", seconds)
    found = found[[step.ascent for step in found].index(True) + 1 :] if any(s.ascent for s in found) else []
    if len(found) < LEAST_TIMED:
        raise InputError(
            f"the time of at least {LEAST_TIMED} steps of rule {rule!r} is needed, but the training ended after "
            f"{len(found)}: correct it, or search with cost: compute and plan with --no-measure"
        )
    return found


class _Cost:
    """Pairs of the configurations of a search: the given ones exactly, the sampled ones on average."""

    def __init__(self, experiment: Experiment, steps_per_epoch: int) -> None:
        space, epochs = experiment.space, experiment.task.epochs
        scale = experiment.scale(steps_per_epoch, exact=False)

        def pairs(points: Iterable[Params]) -> list[float]:
            configs = [trial_config(params, scale) for params in points]
            computes = [c.compute / c.pair_weight * experiment.budget.weight(c) for c in configs]
            return [epochs * steps_per_epoch * compute * experiment.seeds for compute in computes]

        self.baselines = sum(pairs(baselines(space)))
        self.given = pairs(given_points(space, grid=experiment.sampler.name == "grid"))
        sampled = pairs(p for p, _ in _samples(space)) if experiment.sampler.name != "grid" else self.given
        self.mean, self._median, self._seeds = fmean(sampled), median(sampled), experiment.seeds
        self.points, self._compared = experiment.confirm.candidates, sum(pairs([SGD, SAM]))
        self.replicates = self.replicated(experiment.confirm.min_seeds) if experiment.confirm.enabled else 0.0

    def replicated(self, seeds: int) -> float:
        """Return what replicates of the points and baselines of the answer take; of the latter the first counts."""
        return (seeds * self.points * self._median + (seeds - 1) * self._compared) / self._seeds

    def of(self, configurations: int) -> float:
        """Return the pairs of this many configurations, the given ones first."""
        return sum(self.given[:configurations]) + self.mean * max(0, configurations - len(self.given))

    def configurations(self, pairs: float) -> int:
        """Return how many configurations these pairs are enough for."""
        affordable = sum(spent <= pairs for spent in accumulate(self.given))
        rest = pairs - sum(self.given)
        return affordable + (int(rest // self.mean) if rest > 0 else 0)


def _samples(space: Space | str) -> Iterator[tuple[Params, Params]]:
    """Yield random samples of the space, and the values that were suggested for each."""
    sample = space.sample if isinstance(space, Space) else yaml_files.load_function(Path(space), "space")
    rng = np.random.default_rng(0)
    for _ in range(SAMPLES):
        suggester = RandomSuggester(rng)
        yield sample(suggester), suggester.params


def _axes(space: Space | str) -> list[dict[str, Any]]:
    """Return what a search varies as plain data; what a Python space varies shows in its samples."""
    if isinstance(space, Space):
        ends = {"low", "high", "log"}
        return [
            {"name": name, "values": axis.model_dump(include=ends) if isinstance(axis, Range) else axis}
            for name, axis in space.varied().items()
        ]
    seen: dict[str, list[Any]] = {}
    for _, suggested in _samples(space):
        for name, value in suggested.items():
            seen.setdefault(name, []).append(value)
    return [{"name": name, "values": _summary(values)} for name, values in seen.items()]


def _summary(values: list[Any]) -> Any:
    if all(isinstance(value, float) for value in values):
        return {"low": round(min(values), 3), "high": round(max(values), 3), "log": False}
    return sorted(set(values), key=str)


def estimate(experiment: Experiment, *, slots: int = 1, measure: bool = True) -> Estimate:
    """Return what `experiment` costs with `slots` trials at a time; `measure` times a few steps here."""
    if not measure and experiment.budget.device_hours is not None:
        raise InputError(
            "a budget in device-hours is turned into trials by the measured time per pair, but nothing is measured: "
            "leave out --no-measure, or give budget.pairs"
        )
    workload = experiment.workload()
    workload.check(experiment.rules, experiment.resources.workers)
    steps_per_epoch, epochs = workload.steps_per_epoch, experiment.task.epochs
    seconds = measure_pair(experiment, workload) if measure else None
    cost_kind: Cost = "compute"
    if measure and experiment.cost == "seconds":
        times = timing(experiment)(workload)
        experiment = experiment.timed(times)
        if experiment.budget.pairs is None:
            cost_kind, seconds = "seconds", times.step
    cost, devices = _Cost(experiment, steps_per_epoch), experiment.resources.devices
    searching, confirming = _budget_pairs(experiment, epochs * steps_per_epoch, cost, seconds)
    budget = searching + confirming
    rungs = experiment.fidelity.epochs(epochs)
    judged = rungs[0] / epochs if rungs and experiment.stopping.name != "none" else 1.0
    grid, min_seeds = paper_grid_pairs(epochs * steps_per_epoch), experiment.confirm.min_seeds
    # A decided front has the usual number of seeds per point, also where this search has one.
    front_seeds = min_seeds if min_seeds > 1 else Confirm().min_seeds
    decided = (cost.replicated(front_seeds) + cost.baselines) / (epochs * steps_per_epoch) + SEARCH_TRAININGS
    hours = None if seconds is None else budget * seconds * devices / 3600
    trials = experiment.budget.trials
    return Estimate(
        name=experiment.name,
        search_id=experiment.search_id,
        prior=None if experiment.prior is None else experiment.prior.describe(),
        cost=cost_kind,
        steps_per_epoch=steps_per_epoch,
        epochs=epochs,
        rungs=rungs,
        axes=_axes(experiment.space),
        plain_trainings=budget / (epochs * steps_per_epoch),
        pairs_budget=budget,
        pairs_search=searching,
        pairs_baselines=cost.baselines,
        pairs_confirm=confirming,
        trainings_decided=decided if experiment.confirm.enabled else None,
        front_points=cost.points,
        front_seeds=front_seeds,
        pairs_per_trial=cost.mean,
        trials_unstopped=trials or cost.configurations(searching),
        trials_stopped=trials or cost.configurations(searching / judged),
        seconds_per_pair=seconds,
        slots=slots,
        device_hours=hours,
        wall_hours=None if hours is None else hours / devices / max(slots, 1),
        paper_grid_pairs=grid,
        paper_grid_device_hours=None if seconds is None else grid * seconds * devices / 3600,
    )


def _budget_pairs(experiment: Experiment, recipe: int, cost: _Cost, seconds: float | None) -> tuple[float, float]:
    """Return the pairs of searching and of confirming."""
    budget = experiment.budget
    if budget.trials is not None:
        return cost.of(budget.trials), cost.replicates
    unit = budget.pairs_per_unit(recipe // experiment.task.epochs, experiment.task.epochs)
    if unit is None:  # an hour of a device
        assert seconds is not None
        unit = 3600 / seconds / experiment.resources.devices
    total = budget.amount * unit
    confirming = min(cost.replicates, total)
    return total - confirming, confirming
