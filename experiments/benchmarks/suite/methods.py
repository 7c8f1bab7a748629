"""The methods that the suite compares. Each spends a budget, in plain trainings, and delivers a front."""

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from bank import Bank
from grid_space import GridSpace, compute_space, rounded

from rst_tune.analysis import pareto
from rst_tune.analysis.analysis import Analysis, analyze
from rst_tune.method import schedules
from rst_tune.records import SearchStarted, SearchState, Status, TrialConfig, config_id
from rst_tune.training.task import Task
from rst_tune.tuning.backend.protocol import TrialTask
from rst_tune.tuning.backend.simulator import InMemoryLog, SimulatedTraining, SimulatorBackend
from rst_tune.tuning.controller import SearchController
from rst_tune.tuning.experiment import Experiment
from rst_tune.tuning.halving import pareto_order
from rst_tune.tuning.points import SGD
from rst_tune.tuning.sampler import RandomSuggester
from rst_tune.tuning.space import Params
from rst_tune.tuning.study import SearchStudy

optuna.logging.set_verbosity(optuna.logging.ERROR)
warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)

SEEDS_PER_WORLD = 1_000_000
LENGTHS = (0.15, 0.25, 0.42, 0.7, 1.0, 2.0)


@dataclass(frozen=True)
class Delivered:
    """A front: its configurations, the errors that are claimed for them, and the budget it was delivered at."""

    configs: list[TrialConfig]
    errors: list[float]
    budget: float
    analysis: Analysis | None = None


def chance(bank: Bank) -> float:
    """Return the error of guessing."""
    return 100 * (1 - 1 / bank.task.classes)


# --- the search of rst_tune -----------------------------------------------------------------------------------


@dataclass
class World:
    """A task as a workload of the simulator."""

    bank: Bank

    def train(self, task: TrialTask) -> SimulatedTraining:
        """Return the course of a training; between the kept epochs the error stays."""
        curve = self.bank.curve(task.config, task.seed)
        errors, last = [], next(iter(curve.values()))
        for epoch in range(1, task.epochs + 1):
            last = curve.get(epoch, last)
            errors.append(last)
        per_epoch = self.bank.task.steps_per_epoch * (1 + task.config.extra_propagation)
        diverged = math.isnan(errors[-1])
        return SimulatedTraining(
            errors=[chance(self.bank) if math.isnan(e) else e for e in errors],
            pairs=[per_epoch * epoch for epoch in range(1, task.epochs + 1)],
            status=Status.DIVERGED if diverged else Status.COMPLETE,
        )

    def test(self, task: TrialTask) -> float:  # noqa: ARG002  one signature for all workloads
        """Return no test error: the suite judges by fresh seeds."""
        return math.nan


def experiment_of(bank: Bank, budget: float, world: int, space: GridSpace, **changes: Any) -> Experiment:
    """Return the experiment of a suite task."""
    task = bank.task
    recipe = {**Task().recipe.model_dump(), "epochs": task.epochs, "batch_size": task.batch_size, "rho": task.rho}
    content = {
        "name": task.name,
        "task": {**Task().model_dump(), "recipe": recipe},
        "space": space,
        "budget": {"trainings": budget},
        "seed": world * SEEDS_PER_WORLD,
        "tracking": {"enabled": False},
    }
    return Experiment.model_validate(content | changes)


def ours(bank: Bank, budget: float, world: int, *, space: Mapping[str, Any] | None = None, **changes: Any) -> Delivered:
    """Run the real controller on two simulated workers and deliver what its analysis delivers."""
    grid = compute_space(**(space or {}))
    experiment = experiment_of(bank, budget, world, grid, **changes)
    state, log = SearchState(Path()), InMemoryLog()
    header = SearchStarted(
        name=bank.task.name, steps_per_epoch=bank.task.steps_per_epoch, experiment=experiment.public(),
        data={"classes": bank.task.classes, "sizes": {"validation": bank.task.validation}},
    )  # fmt: skip
    state.apply(log.append(header))
    controller = SearchController(
        experiment, log=log, state=state, study=SearchStudy(experiment, None), steps_per_epoch=bank.task.steps_per_epoch
    )
    SimulatorBackend(World(bank), workers=2).run_trials(controller)
    analysis = analyze(controller.search())
    points = analysis.points
    return Delivered([p.config for p in points], [p.error_posterior for p in points], budget, analysis)


# --- other methods --------------------------------------------------------------------------------------------


@dataclass
class Trainings:
    """Trainings one after the other; every pair counts."""

    bank: Bank
    world: int
    spent: float = 0.0
    done: list[tuple[TrialConfig, float, float]] = field(default_factory=list)
    """(configuration, error, spent after it) of whole trainings."""

    def train(self, params: Params, *, until: int | None = None) -> tuple[TrialConfig, dict[int, float]]:
        """Train to an epoch, or to the end."""
        config = self.bank.config(params)
        seed = self.world * SEEDS_PER_WORLD + 10_000 + len(self.done)
        curve = {e: chance(self.bank) if math.isnan(v) else v for e, v in self.bank.curve(config, seed).items()}
        end = max(curve)
        self.spent += config.compute * (until or end) / end
        if until in (None, end):
            self.done.append((config, curve[end], self.spent))
        return config, curve

    def fronts(self, budgets: Sequence[float]) -> list[Delivered]:
        """Return the non-dominated trainings as measured, at each budget."""
        out = []
        for budget in budgets:
            rows = [(c, e) for c, e, spent in self.done if spent <= budget * (1 + 1e-9)]
            out.append(_front(rows, budget))
        return out


def _front(rows: Sequence[tuple[TrialConfig, float]], budget: float) -> Delivered:
    """Return the rows that are non-dominated as measured."""
    member = pareto.nondominated([(e, c.compute) for c, e in rows]) if rows else []
    kept = [row for row, good in zip(rows, member, strict=True) if good]
    return Delivered([c for c, _ in kept], [e for _, e in kept], budget)


def sampled(sampler: Callable[[int], optuna.samplers.BaseSampler]) -> Callable[..., list[Delivered]]:
    """Return the method of one of Optuna's samplers with the objectives (error, compute)."""

    def method(bank: Bank, budgets: Sequence[float], world: int) -> list[Delivered]:
        trainings, space = Trainings(bank, world), compute_space()
        study = optuna.create_study(directions=["minimize", "minimize"], sampler=sampler(world))
        while trainings.spent < max(budgets):
            trial = study.ask()
            config, curve = trainings.train(space.sample(trial))
            study.tell(trial, (curve[max(curve)], config.compute))
        return trainings.fronts(budgets)

    return method


def lengths_alone(bank: Bank, budgets: Sequence[float], world: int) -> list[Delivered]:
    """Train the base optimizer at six lengths, again and again: just train longer, or shorter.

    As with all methods, a length that a shorter one beats, by the means so far, is not delivered.
    """
    trainings, found = Trainings(bank, world), []
    points = [rounded({**SGD, "horizon": h}) for h in LENGTHS]
    while trainings.spent < max(budgets):
        trainings.train(points[len(trainings.done) % len(points)])
    for budget in budgets:
        errors: dict[str, list[float]] = {}
        for config, error, spent in trainings.done:
            if spent <= budget:
                errors.setdefault(config_id(config.params), []).append(error)
        rows = [(bank.config(bank.params(name)), float(np.mean(seen))) for name, seen in errors.items()]
        found.append(_front(rows, budget))
    return found


SAMPLERS: dict[str, Callable[[int], optuna.samplers.BaseSampler]] = {
    "random": lambda seed: optuna.samplers.RandomSampler(seed=seed),
    "MO-TPE": lambda seed: optuna.samplers.TPESampler(seed=seed),
    "NSGA-II": lambda seed: optuna.samplers.NSGAIISampler(seed=seed, population_size=12),
    "Optuna GP": lambda seed: optuna.samplers.GPSampler(seed=seed, n_startup_trials=10),
}


def stock(bank: Bank, budgets: Sequence[float], world: int) -> list[Delivered]:
    """Run Ray's usual stack: MO-TPE, ASHA on the error with Ray's defaults, partial results told as complete."""
    trainings, space, told = Trainings(bank, world), compute_space(), []
    study = optuna.create_study(directions=["minimize", "minimize"], sampler=optuna.samplers.TPESampler(seed=world))
    rungs: dict[int, list[float]] = {1: [], 4: [], 16: []}
    while trainings.spent < max(budgets):
        trial = study.ask()
        params = space.sample(trial)
        config = bank.config(params)
        curve = _plain_curve(bank, config, world * SEEDS_PER_WORLD + 10_000 + len(told))
        end = _asha_end(curve, rungs)
        trainings.spent += config.compute * end / max(curve)
        told.append((config, curve[end], trainings.spent))
        study.tell(trial, (curve[end], config.compute))
    trainings.done = told
    return trainings.fronts(budgets)


def _plain_curve(bank: Bank, config: TrialConfig, seed: int) -> dict[int, float]:
    return {e: chance(bank) if math.isnan(v) else v for e, v in bank.curve(config, seed).items()}


def _asha_end(curve: Mapping[int, float], rungs: dict[int, list[float]]) -> int:
    """Return the epoch at which Ray's ASHA (reduction factor 4) ends a trial; its errors are added to the rungs."""
    end = max(curve)
    for rung, seen in rungs.items():
        if rung >= end:
            break
        limit = np.percentile(seen, 25) if seen else np.inf
        seen.append(curve[rung])
        if curve[rung] > limit:
            return rung
    return end


def top_k(bank: Bank, budgets: Sequence[float], world: int) -> list[Delivered]:
    """Sample at random, train one epoch each with a third of the budget, then train the best to their end."""
    out = []
    for budget in budgets:
        trainings, space, first = Trainings(bank, world), compute_space(), []
        rng = np.random.default_rng([world, 3])
        while trainings.spent < budget / 3:
            params = space.sample(RandomSuggester(rng))
            config = bank.config(params)
            first.append((params, _plain_curve(bank, config, world * SEEDS_PER_WORLD + 10_000 + len(first))[1]))
            trainings.spent += config.compute / bank.scale.epochs_of(params)
        order = pareto_order(np.array([(e, bank.config(p).compute) for p, e in first]))
        for i in order:
            if trainings.spent >= budget:
                break
            trainings.train(first[i][0])
        out += trainings.fronts([budget * 1.2])
        out[-1] = replace(out[-1], budget=budget)
    return out


def paper_grid(bank: Bank, budgets: Sequence[float], world: int) -> list[Delivered]:
    """Train the paper's groups of schedules at the recipe's length and radius, one seed of each in random order."""
    tenths = [i / 10 for i in range(1, 10)]
    groups: list[schedules.Schedule] = [schedules.constant(p) for p in (0.0, *tenths, 1.0)]
    groups += [schedules.piecewise(a, b) for a in (0.0, 1.0) for b in tenths]
    groups += [schedules.linear_group1(m) for m in tenths]
    trainings, rng = Trainings(bank, world), np.random.default_rng(world)
    while trainings.spent < max(budgets):
        for i in rng.permutation(len(groups)):
            if trainings.spent < max(budgets):
                trainings.train({"schedule": groups[i].to_dict(), "gamma_gnr": 1.0, "rule": "sam"})
    return trainings.fronts(budgets)


def botorch(bank: Bank, budgets: Sequence[float], world: int) -> list[Delivered]:
    """Run qLogNEHVI of BoTorch: a Gaussian process of the error with inferred noise, the compute known exactly.

    Each candidate is the best of 256 random samples of the space: it has conditional and categorical axes.
    """
    import torch
    from botorch.acquisition.multi_objective.logei import qLogNoisyExpectedHypervolumeImprovement
    from botorch.fit import fit_gpytorch_mll
    from botorch.models import ModelList, SingleTaskGP
    from botorch.models.deterministic import GenericDeterministicModel
    from botorch.models.transforms import Standardize
    from gpytorch.mlls import ExactMarginalLogLikelihood

    trainings, space = Trainings(bank, world), compute_space()
    rng = np.random.default_rng([world, 5])

    def encoded(configs: Sequence[TrialConfig]) -> Any:
        families, rules = list(space.families), list(space.rules)
        rows = [
            [
                math.log2(c.horizon), math.log(c.rho), c.gamma_gnr and math.log(c.gamma_gnr), c.extra_propagation,
                float(c.params.get("shape", 0.0)),
                *(float(c.family == f) for f in families), *(float(c.rule == r) for r in rules), math.log2(c.compute),
            ]
            for c in configs
        ]  # fmt: skip
        return torch.tensor(rows, dtype=torch.double)

    while trainings.spent < max(budgets):
        params = [space.sample(RandomSuggester(rng)) for _ in range(256 if len(trainings.done) >= 10 else 1)]
        if len(params) > 1:
            x = encoded([c for c, _, _ in trainings.done])
            low, high = x.min(0).values, x.max(0).values
            span = (high - low).clamp_min(1e-6)
            y = -torch.tensor([[e] for _, e, _ in trainings.done], dtype=torch.double)
            model = SingleTaskGP((x - low) / span, y, outcome_transform=Standardize(1))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
            cost = GenericDeterministicModel(lambda z, low=low, span=span: -(z * span + low)[..., -1:])
            top = float(y[:1].min())
            acquisition = qLogNoisyExpectedHypervolumeImprovement(
                ModelList(model, cost), ref_point=[1.1 * top, -2.2],
                X_baseline=(x - low) / span, prune_baseline=True,
            )  # fmt: skip
            z = (encoded([bank.config(p) for p in params]) - low) / span
            with torch.no_grad():
                params = [params[int(acquisition(z[:, None, :]).argmax())]]
        trainings.train(params[0])
    return trainings.fronts(budgets)
