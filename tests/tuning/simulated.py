"""Searches without Ray and without training: worlds that answer with errors, driven by the simulator backend."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from rst_tune.analysis import pareto
from rst_tune.records import Event, Role, Search, SearchState, Status, Trial, TrialConfig
from rst_tune.tuning.backend.protocol import TrialTask
from rst_tune.tuning.backend.simulator import InMemoryLog, SimulatedTraining, SimulatorBackend
from rst_tune.tuning.controller import SearchController
from rst_tune.tuning.experiment import Experiment, load_experiment
from rst_tune.tuning.study import SearchStudy

STEPS = 10
SECONDS_PER_PAIR = 0.1
REFERENCE = (12.0, 2.2)

E = TypeVar("E", bound=Event)
Rung = Callable[["World", TrialConfig, int, float], float]


class Killed(Exception):  # noqa: N818  it is no error, the driver was killed
    """The driver was killed."""


class DyingLog(InMemoryLog):
    """A log whose driver is killed at the event after `lives` others: after writing it, or before."""

    def __init__(self, events: list[Event], *, lives: int | None, writes: bool = True) -> None:
        super().__init__(events)
        self._lives, self._writes = lives, writes

    def append(self, event: E) -> E:
        dying = self._lives == 0
        if self._lives is not None:
            self._lives -= 1
        if not dying or self._writes:
            event = super().append(event)
        if dying:
            raise Killed
        return event


def uniform(*parts: Any) -> float:
    """Return a number in (0, 1) that depends on the parts alone."""
    return float(np.random.default_rng([hash_of(part) for part in parts]).random())


def noise(*parts: Any) -> float:
    """Return a standard normal number that depends on the parts alone."""
    return float(np.random.default_rng([hash_of(part) for part in parts]).normal())


def hash_of(part: Any) -> int:
    return int.from_bytes(str(part).encode()[-8:], "big")


@dataclass
class World:
    """A workload. `final` is the true error of a configuration; `rung` what a run shows at a share of its length.

    The default resembles digits: an error that falls with the cost, is best at gamma_rst 1 (at the recipe's radius),
    and changes by `per_octave` when the training is twice as long.
    """

    sd: float = 0.3
    per_octave: float = -0.5
    rho: float = 0.2
    rung: Rung | None = None
    fate: Callable[[TrialConfig, int], Status] = lambda config, seed: Status.COMPLETE

    def final(self, config: TrialConfig) -> float:
        c, gamma = config.extra_propagation, config.gamma_rst * config.rho / self.rho
        quirk = uniform(config.schedule) * 2.0
        length = self.per_octave * math.log2(config.horizon)
        return 4.0 + 4.0 * math.exp(-4.0 * c) + 3.0 * abs(gamma - 1.0) * min(1.0, 4 * c) + quirk + length

    def end(self, config: TrialConfig, seed: int) -> float:
        return self.final(config) + self.sd * noise(config.schedule, config.gamma_gnr, seed)

    def error(self, config: TrialConfig, seed: int, share: float) -> float:
        if share >= 1 or self.rung is None:
            return self.end(config, seed) + 20.0 * (1 - share)
        return self.rung(self, config, seed, share)

    def train(self, task: TrialTask) -> SimulatedTraining:
        """Return the course of a training; of the epochs before the end only those at rungs are computed."""
        epochs = range(1, task.epochs + 1)
        shown = {*task.rungs, task.epochs}
        return SimulatedTraining(
            errors=[self.error(task.config, task.seed, e / task.epochs) if e in shown else math.nan for e in epochs],
            pairs=[e * STEPS * (1 + task.config.extra_propagation) for e in epochs],
            status=self.fate(task.config, task.seed),
        )

    def test(self, task: TrialTask) -> float:
        return self.final(task.config) + 1.0


def telling(world: World, config: TrialConfig, seed: int, share: float) -> float:
    """A rung that predicts well."""
    return 3.0 * world.end(config, seed) + 5.0 + 0.3 * noise(config.schedule, seed, share)


def misleading(world: World, config: TrialConfig, seed: int, share: float) -> float:
    """A rung that is anti-correlated with the end."""
    return max(60.0 - 5.0 * world.end(config, seed) + 2.0 * noise(config.schedule, seed, share), 1.0)


def blind(world: World, config: TrialConfig, seed: int, share: float) -> float:
    """A rung that says nothing of the end."""
    return 30.0 + 5.0 * noise(config.schedule, seed, share)


def experiment(*settings: str, name: str = "digits", space: str = "grst") -> Experiment:
    """Return an experiment of nine epochs, at one length unless another space is given."""
    return load_experiment(name, ["task.recipe.epochs=9", "sampler.n_startup_trials=4", f"space={space}", *settings])


def controller_of(exp: Experiment, log: InMemoryLog, directory: Path | None = None) -> SearchController:
    """Return a controller that resumes from the events of the log."""
    state = SearchState(Path("."))
    for event in log.events:
        state.apply(event)
    return SearchController(exp, log=log, state=state, study=SearchStudy(exp, directory), steps_per_epoch=STEPS)


def drive(controller: SearchController, world: World, *, workers: int = 1) -> Search:
    """Run the controller's tasks to the end in simulated time."""
    SimulatorBackend(world, workers=workers, seconds_per_pair=SECONDS_PER_PAIR).run_trials(controller)
    return controller.search()


def simulate(exp: Experiment, world: World, *, workers: int = 1) -> Search:
    return drive(controller_of(exp, InMemoryLog()), world, workers=workers)


def true_hypervolume(search: Search, world: World, reference: tuple[float, float] = REFERENCE) -> float:
    """Return the hypervolume of the true errors of what was trained to its end."""
    done = [t for t in search.trials if t.finished and t.role is Role.SEARCH]
    points = np.array([(world.final(t.config), t.compute) for t in done])
    return pareto.hypervolume(points, reference)


def pairs_of(trials: Iterable[Trial]) -> float:
    return sum(t.pairs for t in trials)
