"""Writes event logs as a real search would, small or large, always the same ones."""

import json
import math
import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from rst_tune.records import (
    LOG_NAME,
    EpochsReported,
    Event,
    Phase,
    PhaseEntered,
    ReferenceSet,
    Role,
    RungReached,
    SchedulePreview,
    SearchStarted,
    Status,
    TestRead,
    TrialConfig,
    TrialEnded,
    TrialSampled,
    TrialStarted,
    config_id,
    trial_key,
)

METRICS = ("train_loss", "validation_error", "validation_loss", "realized_extra_propagation", "pairs", "seconds")
START = 1_790_000_000.0
E = TypeVar("E", bound=Event)

HEADER = SearchStarted(
    time=START,
    search_id="0123456789abcdef",
    name="digits-quick",
    experiment={
        "task": {
            "data": {"name": "digits", "validation": 0.2, "split_seed": 0, "root": None},
            "model": {"name": "cnn-tiny", "options": {"width": 8}},
            "recipe": {"epochs": 5, "lr": 0.1},
        },
        "space": {"families": ["constant", "step-up"]},
        "budget": {"trials": 8},
    },
    versions={"torch": "2.15.0", "mlflow": "3.17.2"},
    devices={"CPU": 2.0},
    commit="a" * 40,
    data={"name": "digits", "digest": "b" * 64, "sizes": {"train": 1150, "validation": 287, "test": 360}},
)


class Writer:
    """Makes the events of a search, one trial after the other."""

    def __init__(self, epochs: int = 5) -> None:
        self.epochs = epochs
        self.time = START
        self.number = 0
        self.events: list[Event] = [HEADER]

    def add(self, event: Event, later: float = 1.0) -> None:
        self.time += later
        self.events.append(replace(event, time=self.time))

    def sample(self, cost: float, seed: int = 0, role: Role = Role.SEARCH, epochs: int | None = None) -> str:
        epochs = epochs or self.epochs
        config = TrialConfig(
            family="constant",
            schedule={"family": "constant", "p": cost},
            extra_propagation=cost,
            gamma_gnr=1.5,
            gamma_rst=1.5 * cost,
            rho=0.05,
            effect=1.5 * cost,
            strain=1.5 * cost**0.5,
            params={"family": "constant", "c": cost},
        )
        identity = config_id(config.params)
        key = trial_key(identity, epochs, seed)
        self.add(
            TrialSampled(
                key=key,
                number=self.number,
                role=role,
                config_id=identity,
                config=config,
                seed=seed,
                epochs=epochs,
                full_horizon=epochs == self.epochs,
                preview=SchedulePreview(curve=(cost,) * 100),
            )
        )
        self.number += 1
        return key

    def start(self, key: str) -> None:
        self.add(TrialStarted(key=key, node="node-1", worker="123", ray_trial=f"ray_{key[:6]}"))

    def report(self, key: str, error: float, first: int = 1, last: int | None = None, **more: list[Any]) -> None:
        """Report the epochs from `first` to `last` in two events, as far as there are two."""
        last = self.epochs if last is None else last
        middle = (first + last) // 2
        for begin, end in ((first, middle), (middle + 1, last)):
            if begin <= end:
                columns = {name: column(name, error, end)[begin - 1 :] for name in METRICS}
                self.add(EpochsReported(key=key, first_epoch=begin, metrics={**columns, **more}), 2.0)

    def end(
        self,
        key: str,
        error: float,
        status: Status = Status.COMPLETE,
        epochs: int | None = None,
        first: int = 1,
        reason: str = "",
        **more: list[Any],
    ) -> None:
        """Report the epochs from `first` on, then the end."""
        epochs = self.epochs if epochs is None else epochs
        self.report(key, error, first, epochs, **more)
        pairs = column("pairs", error, epochs)
        final = {"validation_error": error, "gap": 0.5}  # the first is known per epoch already
        ended = TrialEnded(key=key, status=status, reason=reason, error=error, seconds=9.5, metrics=final)
        self.add(replace(ended, pairs=pairs[-1] if pairs else 0.0))

    def save(self, directory: Path, upto: int | None = None) -> Path:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / LOG_NAME).write_text("".join(lines_of(self.events[:upto])))
        return directory


def column(name: str, error: float, count: int) -> list[float]:
    if name == "pairs":
        return [36.0 * 1.5 * (n + 1) for n in range(count)]
    noise = random.Random(f"{name}{error}")
    return [error + math.exp(-n) + noise.random() * 1e-3 for n in range(count)]


def lines_of(events: list[Event]) -> list[str]:
    return [json.dumps(event.to_dict()) + "\n" for event in events]


def histories(events: list[Event]) -> Mapping[str, dict[str, list[float]]]:
    """Return trial key, metric, and the values of the epochs as they were reported first."""
    found: dict[str, dict[str, list[float]]] = {}
    for event in events:
        if isinstance(event, EpochsReported):
            history = found.setdefault(event.key, {})
            for name, values in event.metrics.items():
                known = history.setdefault(name, [])
                known.extend(values[len(known) - event.first_epoch + 1 :])
    return found


def small_search() -> Writer:
    """Return a search with one of everything: stopped, diverged, out of memory, lost and resumed, confirmed, tested."""
    w = Writer()
    base, cheap, stopped, lost = w.sample(0.0), w.sample(0.25), w.sample(0.5), w.sample(0.75)
    w.start(base)
    w.end(base, 5.0)
    w.add(ReferenceSet(error=6.0, compute=2.1))
    for key in (cheap, stopped, lost):
        w.start(key)
        w.add(RungReached(key=key, epoch=2, error=4.5))
    w.end(cheap, 4.0)
    w.end(stopped, 7.0, Status.STOPPED, 2, reason="rung 2: dominated")
    w.end(lost, 3.0, Status.LOST, 3, reason="node died at https://ann:hunter2@host/x")
    w.start(lost)
    w.end(lost, 3.0, first=3)  # the third epoch is reported again
    for cost, status in ((0.6, Status.DIVERGED), (0.8, Status.OUT_OF_MEMORY)):
        key = w.sample(cost)
        w.start(key)
        w.end(key, math.nan, status, 1)
    w.sample(0.9)  # never started
    w.add(PhaseEntered(phase=Phase.CONFIRM))
    for cost, error in ((0.0, 5.1), (0.25, 4.1), (0.75, 3.2)):
        for seed in (1, 2):
            key = w.sample(cost, seed, Role.CONFIRM)
            w.start(key)
            w.end(key, error + 0.05 * seed)
    w.add(PhaseEntered(phase=Phase.TEST))
    w.add(TestRead(key=base, error=5.5))
    w.add(PhaseEntered(phase=Phase.DONE))
    return w


def large_search(trials: int, epochs: int) -> Writer:
    """Return a search of many finished trials."""
    w = Writer(epochs)
    w.add(ReferenceSet(error=60.0, compute=2.1))
    for number in range(trials):
        key = w.sample((number % 997) / 1000, seed=number)
        w.start(key)
        w.end(key, 5.0 + (number * 7919 % 1000) / 100)
    w.add(PhaseEntered(phase=Phase.DONE))
    return w
