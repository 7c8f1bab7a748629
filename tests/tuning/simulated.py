"""Searches without Ray and without training: a world that knows every error, and a driver of the conductor."""

import heapq
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rst_tune.analysis import pareto
from rst_tune.analysis.records import Replay, Search
from rst_tune.tuning.conductor import Conductor
from rst_tune.tuning.experiment import Experiment, load_experiment
from rst_tune.tuning.study import SearchStudy

STEPS = 10
REFERENCE = (12.0, 1.1)


class Killed(Exception):  # noqa: N818  it is no error, the driver was killed
    """The driver was killed."""


class MemoryRecord:
    """A record in memory, with a clock of its own. It can die before or after it has written so many events."""

    def __init__(self, events: list[dict[str, Any]] | None = None, *, lives: int | None = None, writes: bool = True):
        self.events = events if events is not None else []
        self._lives, self._writes = lives, writes

    def append(self, event: str, **fields: Any) -> dict[str, Any]:
        line = {"event": event, "time": float(len(self.events)), **fields}
        dying = self._lives == 0
        if self._lives is not None:
            self._lives -= 1
        if not dying or self._writes:
            self.events.append(line)
        if dying:
            raise Killed
        return line

    def close(self) -> None:
        pass


def uniform(*parts: Any) -> float:
    """Return a number in (0, 1) that depends on the parts alone."""
    seed = [hash_of(part) for part in parts]
    return float(np.random.default_rng(seed).random())


def hash_of(part: Any) -> int:
    return int.from_bytes(str(part).encode()[-8:], "big")


def noise(*parts: Any) -> float:
    return float(np.random.default_rng([hash_of(part) for part in parts]).normal())


@dataclass
class World:
    """A task. `final` is the true error of a configuration; `rung` what a run shows at a share of its length.

    The default resembles digits: an error that falls with the cost and is best at gamma_rst 1.
    """

    sd: float = 0.3
    rung: Callable[["World", dict[str, Any], int, float], float] | None = None
    fate: Callable[[dict[str, Any], int], str] = lambda config, seed: "complete"

    def final(self, config: dict[str, Any]) -> float:
        c, gamma = config["extra_propagation"], config["gamma_rst"]
        quirk = uniform(config["schedule"]) * 2.0
        return 4.0 + 4.0 * math.exp(-4.0 * c) + 3.0 * abs(gamma - 1.0) * min(1.0, 4 * c) + quirk

    def end(self, config: dict[str, Any], seed: int) -> float:
        return self.final(config) + self.sd * noise(config["schedule"], config["gamma_gnr"], seed)

    def error(self, config: dict[str, Any], seed: int, share: float) -> float:
        if share >= 1 or self.rung is None:
            return self.end(config, seed) + 20.0 * (1 - share)
        return self.rung(self, config, seed, share)


def telling(world: World, config: dict[str, Any], seed: int, share: float) -> float:
    """A rung that predicts well."""
    return 3.0 * world.end(config, seed) + 5.0 + 0.3 * noise(config["schedule"], seed, share)


def misleading(world: World, config: dict[str, Any], seed: int, share: float) -> float:
    """A rung that is anti-correlated with the end."""
    return max(60.0 - 5.0 * world.end(config, seed) + 2.0 * noise(config["schedule"], seed, share), 1.0)


def blind(world: World, config: dict[str, Any], seed: int, share: float) -> float:
    """A rung that says nothing of the end."""
    return 30.0 + 5.0 * noise(config["schedule"], seed, share)


def experiment(*settings: str, name: str = "digits") -> Experiment:
    return load_experiment(name, ["task.recipe.epochs=9", "sampler.startup=4", *settings])


def conductor_of(exp: Experiment, record: MemoryRecord, directory: Path | None = None) -> Conductor:
    replay = Replay(Path("."))
    for event in record.events:
        replay.apply(event)
    return Conductor(
        exp,
        record=record,
        replay=replay,
        study=SearchStudy(exp, directory),
        steps_per_epoch=STEPS,  # type: ignore[arg-type]
    )


@dataclass(order=True)
class _Worker:
    clock: float
    order: int
    plan: Any = field(compare=False)
    epoch: int = field(compare=False, default=0)


def drive(conductor: Conductor, world: World, *, workers: int = 1) -> Search:
    """Run the conductor's plans to the end; a worker's clock counts propagation pairs."""
    busy: list[_Worker] = []
    now, order = 0.0, 0
    while True:
        plan = conductor.next_plan() if len(busy) < workers else None
        if plan == "done":
            return conductor.search()
        if plan is not None:
            order += 1
            if plan.kind == "train":
                conductor.started(plan.key, node="simulated")
            heapq.heappush(busy, _step(_Worker(now, order, plan)))
            continue
        assert busy, "nothing runs and nothing may start"
        worker = heapq.heappop(busy)
        now = worker.clock
        if _advance(conductor, world, worker):
            heapq.heappush(busy, _step(worker))


def _step(worker: _Worker) -> _Worker:
    """Move a worker to its next rung or end."""
    plan = worker.plan
    epoch = min((r for r in plan.rungs if r > worker.epoch), default=plan.epochs)
    worker.clock += (epoch - worker.epoch) * STEPS * (1 + plan.config["extra_propagation"])
    worker.epoch = epoch
    return worker


def _advance(conductor: Conductor, world: World, worker: _Worker) -> bool:
    """Report where the worker is; return whether it goes on."""
    plan, config = worker.plan, dict(worker.plan.config)
    if plan.kind == "test":
        conductor.tested(plan.key, world.final(config) + 1.0)
        return False
    pairs = worker.epoch * STEPS * (1 + config["extra_propagation"])
    share = worker.epoch / plan.epochs * plan.epochs / conductor.experiment.task.recipe.epochs
    error = world.error(config, plan.seed, share)
    result = {"error": error, "pairs": pairs, "seconds": pairs / 10}
    if worker.epoch >= plan.epochs:
        fate = world.fate(config, plan.seed)
        conductor.ended(plan.key, fate, **(result if fate == "complete" else result | {"error": None}))
        return False
    decision = conductor.report(plan.key, worker.epoch, error)
    if decision is not None and decision.stop:
        conductor.ended(plan.key, "stopped", **result, reason=decision.reason)
        return False
    return True


def simulate(exp: Experiment, world: World, *, workers: int = 1) -> Search:
    return drive(conductor_of(exp, MemoryRecord()), world, workers=workers)


def true_hypervolume(search: Search, world: World, reference: tuple[float, float] = REFERENCE) -> float:
    """Return the hypervolume of the true errors of what was trained to its end."""
    done = [t for t in search.trials if t.finished and t.role == "search"]
    points = np.array([(world.final(dict(t.config)), t.extra_propagation) for t in done])
    return pareto.hypervolume(points, reference)


def pairs_of(trials: Iterable[Any]) -> float:
    return sum(t.pairs for t in trials)
