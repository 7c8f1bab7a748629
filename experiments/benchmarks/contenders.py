"""The search methods that `search.py` compares, each over the replayed table.

A contender spends a budget of pairs and returns a record of trials; a recommender makes a front of it. Ours and all
samplers are the real conductor and study with simulated training on two simulated workers, whose clock is pairs.
"""

import heapq
import itertools
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from replay import EPOCHS, STEPS_PER_EPOCH, Table, pairs_until, place_of

from rst_tune.analysis import noise, pareto, posterior
from rst_tune.analysis.records import Event, Replay, Search, Trial, config_id
from rst_tune.method import schedules
from rst_tune.training.task import Task
from rst_tune.tuning import confirm
from rst_tune.tuning.conductor import Conductor, Plan
from rst_tune.tuning.draws import OWN_SEEDS
from rst_tune.tuning.experiment import Experiment
from rst_tune.tuning.rungs import pareto_order
from rst_tune.tuning.space import Space, configuration
from rst_tune.tuning.study import SearchStudy

NATIVE: dict[str, Any] = {
    "coordinates": "native",
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
PAPER_POINTS: list[dict[str, Any]] = [
    {"family": "constant", "c": 0.8, "gamma_rst": 0.8},
    {"family": "constant", "c": 0.5, "gamma_rst": 1.0},
    {"family": "step-up", "c": 0.5, "shape": 1.0, "gamma_rst": 0.5},
    {"family": "ramp-up", "c": 0.5, "shape": 1.0, "gamma_rst": 0.5},
]
TENTHS = [i / 10 for i in range(1, 10)]
RAY_RUNGS, RAY_REDUCTION = (1, 4, 16), 4


def cost_space(table: Table, *, log: bool, wide: bool = True) -> dict[str, Any]:
    """Return the space of G-RST over the families that the table has; the cost uniform or (`log`) in its logarithm.

    `wide` is the shipped range of gamma_rst; else it is a band around what the paper recommends.
    """
    return {
        "coordinates": "cost",
        "families": list(table.families),
        "extra_propagation": {"low": float(table.costs[0]), "high": 1.0, "log": log},
        "gamma_rst": {"low": 0.35, "high": 3.0, "log": True} if wide else {"low": 0.4, "high": 1.5},
    }


class Memory:
    """A record that is not written."""

    def append(self, event: str, **fields: Any) -> Event:
        """Return the event."""
        return {"event": event, "time": time.time(), **fields}


@dataclass
class World:
    """One repeat of the simulated task: every pair is charged."""

    table: Table
    number: int
    shared: bool = False  # every configuration of the search with the same seed
    spent: float = 0.0
    trials: list[Trial] = field(default_factory=list)

    def curve(self, config: Mapping[str, Any], seed: int, epochs: int = EPOCHS) -> np.ndarray:
        """Return the errors of a training."""
        seed = 0 if self.shared and seed >= OWN_SEEDS else seed
        return self.table.run(place_of(config, self.table), seed=seed, epochs=epochs, world=self.number)

    def train(self, point: Mapping[str, Any], *, seed: int = 0, until: int = EPOCHS, since: int = 0) -> Trial:
        """Train a point from epoch `since` to `until` of the full horizon, charge it, keep it if it is whole."""
        config = configuration(point, total_steps=EPOCHS * STEPS_PER_EPOCH, rho=0.2)
        errors, cost = self.curve(config, seed), pairs_until(config, EPOCHS)
        self.spent += float(cost[until - 1] - (cost[since - 1] if since else 0.0))
        identity = config_id(point)
        trial = Trial(
            key=f"{identity}-{seed}", number=len(self.trials), role="search", config_id=identity, config=config,
            seed=seed, epochs=EPOCHS, full=True, drawn=self.spent, ended=self.spent, pairs=float(cost[until - 1]),
            status="complete" if until == EPOCHS else "stopped", error=float(errors[until - 1]),
        )  # fmt: skip
        self.trials.append(trial)
        return trial

    def search(self) -> Search:
        """Return what was done so far."""
        return Search(
            directory=Path(), header={}, trials=tuple(self.trials), reference=self.table.reference, phase="done"
        )


# --- the conductor, simulated ---------------------------------------------------------------------------------


def experiment_of(space: Mapping[str, Any], budget: float, world: World, **changes: Any) -> Experiment:
    """Return the embedded experiment with this space and budget, the world's seed, and changes to its parts."""
    content = {"name": "benchmark", "task": Task().model_dump(), "space": space, "budget": {"pairs": budget}}
    content |= {"seed": world.number, "reference": {"error": world.table.reference[0]}, "tracking": {"enabled": False}}
    return Experiment.model_validate(content | changes)


def conduct(experiment: Experiment, world: World, workers: int = 2) -> Search:
    """Run the real conductor to its end on simulated workers."""
    replay = Replay(Path())
    conductor = Conductor(
        experiment,
        record=Memory(),  # type: ignore[arg-type]
        replay=replay,
        study=SearchStudy(experiment, None),
        steps_per_epoch=STEPS_PER_EPOCH,
    )
    busy: list[tuple[float, int, Plan, int]] = []
    order, now = itertools.count(), 0.0
    while True:
        while len(busy) < workers and isinstance(plan := conductor.next_plan(), Plan):
            if plan.kind == "test":
                conductor.tested(plan.key, None)
                continue
            heapq.heappush(busy, (now + _slice(plan, 0)[1], next(order), plan, _slice(plan, 0)[0]))
        if not busy:
            return replay.search()
        now, _, plan, epoch = heapq.heappop(busy)
        if not _end_slice(conductor, world, plan, epoch):
            upto, pairs = _slice(plan, epoch)
            heapq.heappush(busy, (now + pairs, next(order), plan, upto))


def _slice(plan: Plan, epoch: int) -> tuple[int, float]:
    """Return the epoch at which the plan is next looked at, and the pairs until then."""
    upto = min((rung for rung in plan.rungs if rung > epoch), default=plan.epochs)
    cost = pairs_until(plan.config, plan.epochs)
    return upto, float(cost[upto - 1] - (cost[epoch - 1] if epoch else 0.0))


def _end_slice(conductor: Conductor, world: World, plan: Plan, epoch: int) -> bool:
    """Report what the worker saw and tell whether the plan is over."""
    curve = world.curve(plan.config, plan.seed, plan.epochs)
    result = {"error": float(curve[epoch - 1]), "pairs": float(pairs_until(plan.config, plan.epochs)[epoch - 1])}
    if epoch == plan.epochs:
        conductor.ended(plan.key, "complete", **result)
        return True
    decision = conductor.report(plan.key, epoch, result["error"])
    if decision is not None and decision.stop:
        conductor.ended(plan.key, "stopped", **result)
        return True
    return False


def sampled(sampler: str, space: Mapping[str, Any], budget: float, world: World) -> Search:
    """Draw with a sampler and train everything once to its end: no priors, no stopping, no confirmation."""
    plain = {"priors": False, "ends": False}
    experiment = experiment_of(
        {**space, **plain},
        budget,
        world,
        sampler={"name": sampler},
        fidelity={"kind": "full"},
        stopping={"name": "none"},
        confirm={"enabled": False},
    )
    return conduct(experiment, world)


def _as_expected(groups: Mapping[str, Sequence[Trial]]) -> np.ndarray:
    trials = [trial for group in groups.values() for trial in group]
    return posterior.fit_trials(trials).errors([group[0].config for group in groups.values()])


@contextmanager
def candidates_by_expected_errors() -> Iterator[None]:
    """Choose whom to confirm by what the belief expects of each, instead of by the errors as measured."""
    chosen, confirm.measured = confirm.measured, _as_expected
    try:
        yield
    finally:
        confirm.measured = chosen


# --- what others do -------------------------------------------------------------------------------------------


def paper_grid() -> list[dict[str, Any]]:
    """Return the paper's own study: every group and the two ends, gamma_gnr = 1."""
    groups: list[schedules.Schedule] = [schedules.constant(p) for p in (0.0, *TENTHS, 1.0)]
    groups += [schedules.piecewise(a, b) for a in (0.0, 1.0) for b in TENTHS]
    groups += [schedules.piecewise(a, 0.5) for a in TENTHS]
    groups += [schedules.linear_group1(m) for m in TENTHS]
    groups += [schedules.linear_group2(b) for b in TENTHS]
    groups += [schedules.cos1(), schedules.cos2(), schedules.sin1(), schedules.sin2()]
    return [{"schedule": schedule.to_dict(), "gamma_gnr": 1.0, "rule": "sam"} for schedule in groups]


def grid(budget: float, world: World, seeds: int = 5) -> Search:
    """Train the paper's grid, one seed of everything in random order, then the next seed, up to five."""
    points = paper_grid()
    rng = np.random.default_rng(world.number)
    for seed in range(seeds):
        for i in rng.permutation(len(points)):
            if world.spent >= budget:
                return world.search()
            world.train(points[i], seed=seed)
    return world.search()


def _draws(space: Mapping[str, Any], sampler: optuna.samplers.BaseSampler) -> Iterator[tuple[optuna.Study, Any, Any]]:
    study = optuna.create_study(directions=["minimize", "minimize"], sampler=sampler)
    validated = Space.model_validate(space)
    while True:
        trial = study.ask()
        yield study, trial, validated.draw(trial)  # type: ignore[arg-type]


def stock(budget: float, world: World) -> Search:
    """Ray-style: MO-TPE on the paper's parameters, ASHA on error with Ray's defaults, partial told as complete.

    The trials run one after the other, which is the best case for the sampler. What it calls complete is marked so.
    """
    rungs: dict[int, list[float]] = {rung: [] for rung in RAY_RUNGS}
    for study, asked, point in _draws(NATIVE, optuna.samplers.TPESampler(seed=world.number)):
        trial = world.train(point, until=_asha_end(world, point, rungs))
        world.trials[-1] = replace(trial, status="complete")
        study.tell(asked, (trial.error, trial.extra_propagation))
        if world.spent >= budget:
            break
    return world.search()


def _asha_end(world: World, point: Mapping[str, Any], rungs: dict[int, list[float]]) -> int:
    """Return the epoch at which Ray's ASHA would end this trial, and let its rungs remember it."""
    errors = world.curve(configuration(point, total_steps=EPOCHS * STEPS_PER_EPOCH, rho=0.2), 0)
    for rung, seen in rungs.items():
        error = float(errors[rung - 1])
        cut = np.percentile(seen, 100 / RAY_REDUCTION) if seen else np.inf
        seen.append(error)
        if error > cut:
            return rung
    return EPOCHS


def top_k(budget: float, world: World, share: float = 1 / 3) -> Search:
    """Draw at random in the cost coordinates, train one epoch each with a share of the budget, finish the best."""
    space = cost_space(world.table, log=True)
    first: list[tuple[Trial, dict[str, Any]]] = []
    for _, _, point in _draws(space, optuna.samplers.RandomSampler(seed=world.number)):
        first.append((world.train(point, until=1), point))
        if world.spent >= share * budget:
            break
    order = pareto_order(np.array([(t.error, t.extra_propagation) for t, _ in first], dtype=float))
    for i in order:
        if world.spent >= budget:
            break
        world.train(first[i][1], since=1)
    return world.search()


# --- fronts ---------------------------------------------------------------------------------------------------


Claims = list[tuple[Mapping[str, Any], float]]


def truth_of(configs: Iterable[Mapping[str, Any]], table: Table) -> list[tuple[float, float]]:
    """Return the true mean error and the cost of each configuration."""
    return [(table.truth(place_of(c, table)), float(c["extra_propagation"])) for c in configs]


def front_as_measured(search: Search) -> Claims:
    """Return the front of the mean errors; once there are replicates, of the replicated ones."""
    rows = noise.summarise(search)
    able = [row for row, ok in zip(rows, noise.eligible(rows, search), strict=True) if ok]
    members = pareto.front([(row.error_mean, row.extra_propagation) for row in able])
    return [(row.config, row.error_mean) for row, member in zip(able, members, strict=True) if member]


def front_as_expected(search: Search) -> Claims:
    """Return the front of the expected errors: what we deliver."""
    return [(row.config, row.error_expected) for row in noise.summarise(search) if row.on_front]


def cut(search: Search, budget: float) -> Search:
    """Return a search as it stood when `budget` pairs were spent, in the order in which its trials ended."""
    spent, kept = 0.0, []
    for trial in sorted((t for t in search.trials if t.ended is not None), key=lambda t: t.ended or 0.0):
        if spent >= budget:
            break
        spent += trial.pairs
        kept.append(trial)
    return replace(search, trials=tuple(kept))
