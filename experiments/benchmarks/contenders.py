"""The search methods that `search.py` compares, each on a replayed table.

A method spends a budget of pairs and returns a search; a recommender turns its analysis into a front. Ours and the
samplers are the real controller and study on two simulated workers, whose time is counted in pairs. The other methods
train one configuration after the other and need no clock.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from replay import EPOCHS, STEPS_PER_EPOCH, Table, cumulative_pairs, locate

from rst_tune.analysis import pareto
from rst_tune.analysis.analysis import Analysis
from rst_tune.analysis.replicates import replicated_mask
from rst_tune.analysis.surrogate import fit_surrogate
from rst_tune.method import schedules
from rst_tune.records import Phase, Role, Search, SearchStarted, SearchState, Status, Trial, TrialConfig, config_id
from rst_tune.training.task import Task
from rst_tune.tuning import confirmation
from rst_tune.tuning.backend.protocol import TrialTask
from rst_tune.tuning.backend.simulator import InMemoryLog, SimulatedTraining, SimulatorBackend
from rst_tune.tuning.controller import SearchController
from rst_tune.tuning.experiment import Experiment
from rst_tune.tuning.halving import pareto_order
from rst_tune.tuning.proposals import OWN_SEEDS
from rst_tune.tuning.space import Params, Space, TaskScale, trial_config
from rst_tune.tuning.study import SearchStudy

NATIVE: dict[str, Any] = {
    "parametrization": "native",
    "families": {
        "constant": {"p": {"low": 0.05, "high": 1.0}},
        "piecewise": {"a": {"low": 0.0, "high": 1.0}, "b": {"low": 0.05, "high": 0.95}},
        "linear_group1": {"m": {"low": 0.05, "high": 0.95}},
        "linear_group2": {"b": {"low": 0.0, "high": 1.0}},
        **{name: {} for name in ("cos1", "cos2", "sin1", "sin2")},
    },
    "gamma_gnr": {"low": 0.5, "high": 6.0, "log": True},
}
# What the paper recommends or finds best: constant 0.8, G-RST at half the cost, SAM late, a rising line.
PAPER_POINTS: list[Params] = [
    {"family": "constant", "c": 0.8, "gamma_rst": 0.8},
    {"family": "constant", "c": 0.5, "gamma_rst": 1.0},
    {"family": "step-up", "c": 0.5, "shape": 1.0, "gamma_rst": 0.5},
    {"family": "ramp-up", "c": 0.5, "shape": 1.0, "gamma_rst": 0.5},
]
TENTHS = [i / 10 for i in range(1, 10)]
RAY_RUNGS, RAY_REDUCTION_FACTOR = (1, 4, 16), 4
SCALE = TaskScale(epochs=EPOCHS, steps_per_epoch=STEPS_PER_EPOCH, rho=Task().recipe.rho)


def cost_space(table: Table, *, log: bool, wide: bool = True) -> dict[str, Any]:
    """Return the space of G-RST over the families of the table; the cost is sampled uniformly or (`log`) in its log.

    It has one length and one radius, because the table has.

    `wide` is the shipped range of gamma_rst; else it is a band around what the paper recommends.
    """
    return {
        "parametrization": "cost",
        "families": list(table.families),
        "extra_propagation": {"low": float(table.costs[0]), "high": 1.0, "log": log},
        "gamma_rst": {"low": 0.35, "high": 3.0, "log": True} if wide else {"low": 0.4, "high": 1.5},
    }


@dataclass(frozen=True)
class World:
    """One repeat of the replayed task, as a workload of the simulator. With `shared_seed` every search seed is 0."""

    table: Table
    number: int
    shared_seed: bool = False

    def curve(self, config: TrialConfig, seed: int) -> np.ndarray:
        """Return the validation errors of a training."""
        seed = 0 if self.shared_seed and seed >= OWN_SEEDS else seed
        return self.table.run(locate(config, self.table), seed=seed, world=self.number)

    def train(self, task: TrialTask) -> SimulatedTraining:
        """Return the course of a training."""
        errors, pairs = self.curve(task.config, task.seed), cumulative_pairs(task.config)
        return SimulatedTraining(errors=errors.tolist(), pairs=pairs.tolist())

    def test(self, task: TrialTask) -> float:
        """Return the true error; no method uses it."""
        return self.table.true_error(locate(task.config, self.table))


# --- the controller, simulated --------------------------------------------------------------------------------


def make_experiment(space: Mapping[str, Any], budget: float, world: World, **changes: Any) -> Experiment:
    """Return the embedded experiment with this space and budget, the world's seed, and changes to its parts."""
    content = {
        "name": "benchmark",
        "task": Task().model_dump(),
        "space": space,
        "budget": {"pairs": budget},
        "seed": world.number,
        "reference_point": {"error": world.table.reference[0]},
        "tracking": {"enabled": False},
    }
    return Experiment.model_validate(content | changes)


def simulate(experiment: Experiment, world: World, workers: int = 2) -> Search:
    """Run the real controller to its end on simulated workers."""
    controller = SearchController(
        experiment,
        log=InMemoryLog(),
        state=SearchState(Path()),
        study=SearchStudy(experiment, None),
        steps_per_epoch=STEPS_PER_EPOCH,
    )
    SimulatorBackend(world, workers=workers).run_trials(controller)
    return controller.search()


def sampler_alone(sampler: str, space: Mapping[str, Any], budget: float, world: World) -> Search:
    """Sample and train everything once to its end: no warm start, no stopping, no confirmation."""
    experiment = make_experiment(
        {**space, "warm_start": False, "baselines": False},
        budget,
        world,
        sampler={"name": sampler},
        fidelity={"kind": "full"},
        stopping={"name": "none"},
        confirm={"enabled": False},
    )
    return simulate(experiment, world)


@contextmanager
def candidates_by_posterior_error() -> Iterator[None]:
    """Choose the configurations to replicate by the surrogate's posterior errors instead of the measured ones."""
    by_measured = confirmation.candidates

    def by_posterior(trials: Sequence[Trial], limit: int, baselines: Iterable[str] = ()) -> list[str]:
        finished = [trial for trial in trials if trial.role is Role.SEARCH and trial.finished]
        errors = fit_surrogate(finished).errors([trial.config for trial in finished])
        smoothed = [replace(trial, error=float(error)) for trial, error in zip(finished, errors, strict=True)]
        return by_measured(smoothed, limit, list(baselines))

    confirmation.candidates = by_posterior
    try:
        yield
    finally:
        confirmation.candidates = by_measured


# --- other methods --------------------------------------------------------------------------------------------


@dataclass
class Trainings:
    """Trainings of one world, one after the other. Every pair is charged to `spent`."""

    world: World
    spent: float = 0.0
    trials: list[Trial] = field(default_factory=list)

    def train(self, params: Params, *, seed: int = 0, until: int = EPOCHS, since: int = 0) -> Trial:
        """Train from epoch `since` to `until` of the full horizon."""
        config = _config(params)
        errors, pairs = self.world.curve(config, seed), cumulative_pairs(config)
        charged = float(pairs[until - 1] - (pairs[since - 1] if since else 0.0))
        self.spent += charged
        identity = config_id(params)
        trial = Trial(
            key=f"{identity}-{seed}", number=len(self.trials), role=Role.SEARCH, config_id=identity, config=config,
            seed=seed, epochs=EPOCHS, full_horizon=True, sampled_at=self.spent, ended_at=self.spent,
            status=Status.COMPLETE if until == EPOCHS else Status.STOPPED, pairs=charged,
            error=float(errors[until - 1]),
        )  # fmt: skip
        self.trials.append(trial)
        return trial

    def search(self) -> Search:
        """Return the trainings so far as a search."""
        return Search(
            directory=Path(),
            header=SearchStarted(),
            trials=tuple(self.trials),
            reference=(self.world.table.reference[0], pareto.reference_compute(1.0)),
            phase=Phase.DONE,
        )


def _config(params: Params) -> TrialConfig:
    return trial_config(params, SCALE)


def paper_grid() -> list[Params]:
    """Return the paper's own study: every group and the two baselines, gamma_gnr = 1."""
    groups: list[schedules.Schedule] = [schedules.constant(p) for p in (0.0, *TENTHS, 1.0)]
    groups += [schedules.piecewise(a, b) for a in (0.0, 1.0) for b in TENTHS]
    groups += [schedules.piecewise(a, 0.5) for a in TENTHS]
    groups += [schedules.linear_group1(m) for m in TENTHS]
    groups += [schedules.linear_group2(b) for b in TENTHS]
    groups += [schedules.cos1(), schedules.cos2(), schedules.sin1(), schedules.sin2()]
    return [{"schedule": schedule.to_dict(), "gamma_gnr": 1.0, "rule": "sam"} for schedule in groups]


def grid(budget: float, world: World, seeds: int = 5) -> Search:
    """Train the paper's grid: one seed of everything in random order, then the next seed, up to five."""
    points, trainings = paper_grid(), Trainings(world)
    rng = np.random.default_rng(world.number)
    for seed in range(seeds):
        for i in rng.permutation(len(points)):
            if trainings.spent >= budget:
                return trainings.search()
            trainings.train(points[i], seed=seed)
    return trainings.search()


def _ask(
    space: Mapping[str, Any], sampler: optuna.samplers.BaseSampler
) -> Iterator[tuple[optuna.Study, optuna.Trial, Params]]:
    study = optuna.create_study(directions=["minimize", "minimize"], sampler=sampler)
    validated = Space.model_validate(space)
    while True:
        trial = study.ask()
        yield study, trial, validated.sample(trial)


def stock(budget: float, world: World) -> Search:
    """MO-TPE on the paper's parameters, ASHA on error with Ray's defaults, partial results told as complete.

    The trials run one after the other, which is the best case for the sampler. What it calls complete is marked so.
    """
    trainings = Trainings(world)
    rungs: dict[int, list[float]] = {rung: [] for rung in RAY_RUNGS}
    for study, asked, params in _ask(NATIVE, optuna.samplers.TPESampler(seed=world.number)):
        trial = trainings.train(params, until=_asha_end(world.curve(_config(params), 0), rungs))
        trainings.trials[-1] = replace(trial, status=Status.COMPLETE)
        study.tell(asked, (trial.error, trial.compute))
        if trainings.spent >= budget:
            break
    return trainings.search()


def _asha_end(errors: np.ndarray, rungs: dict[int, list[float]]) -> int:
    """Return the epoch at which Ray's ASHA ends a trial with these errors; they are added to the rungs it reaches."""
    for rung, seen in rungs.items():
        error = float(errors[rung - 1])
        limit = np.percentile(seen, 100 / RAY_REDUCTION_FACTOR) if seen else np.inf
        seen.append(error)
        if error > limit:
            return rung
    return EPOCHS


def top_k(budget: float, world: World, share: float = 1 / 3) -> Search:
    """Sample at random, train one epoch each with a share of the budget, then train the best to their end."""
    trainings = Trainings(world)
    first: list[tuple[Trial, Params]] = []
    space = cost_space(world.table, log=True)
    for _, _, params in _ask(space, optuna.samplers.RandomSampler(seed=world.number)):
        first.append((trainings.train(params, until=1), params))
        if trainings.spent >= share * budget:
            break
    order = pareto_order(np.array([(t.error, t.compute) for t, _ in first], dtype=float))
    for i in order:
        if trainings.spent >= budget:
            break
        trainings.train(first[i][1], since=1)
    return trainings.search()


# --- fronts ---------------------------------------------------------------------------------------------------


Front = list[tuple[TrialConfig, float]]


def true_points(configs: Iterable[TrialConfig], table: Table) -> list[tuple[float, float]]:
    """Return the true mean error and the extra propagation of each configuration."""
    return [(table.true_error(locate(c, table)), c.extra_propagation) for c in configs]


def measured_front(analysis: Analysis) -> Front:
    """Return the front of the mean errors; once there are replicates, of the replicated configurations."""
    mask = replicated_mask(analysis.summaries, analysis.search)
    rows = [row for row, allowed in zip(analysis.summaries, mask, strict=True) if allowed]
    members = pareto.nondominated([(row.error_mean, row.compute) for row in rows])
    return [(row.config, row.error_mean) for row, member in zip(rows, members, strict=True) if member]


def posterior_front(analysis: Analysis) -> Front:
    """Return the front of the posterior errors: the one that a search delivers."""
    return [(point.config, point.error_posterior) for point in analysis.points]


def truncate(search: Search, budget: float) -> Search:
    """Return a search as it stood when `budget` pairs were spent, in the order in which its trials ended."""
    spent, kept = 0.0, []
    for trial in sorted((t for t in search.trials if t.ended_at is not None), key=lambda t: t.ended_at or 0.0):
        if spent >= budget:
            break
        spent += trial.pairs
        kept.append(trial)
    return replace(search, trials=tuple(kept))
