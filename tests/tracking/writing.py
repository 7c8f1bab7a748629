"""Writes records of searches as a real search would, small or large, always the same ones."""

import json
import math
import random
from pathlib import Path
from typing import Any

from rst_tune.analysis.records import RECORD_NAME, config_id, trial_key

METRICS = ("train_loss", "validation_error", "validation_loss", "realized_extra_propagation", "pairs", "seconds")
START = 1_790_000_000.0

HEADER: dict[str, Any] = {
    "event": "search",
    "time": START,
    "search_id": "0123456789abcdef",
    "name": "digits-quick",
    "experiment": {
        "task": {"data": {"name": "digits", "validation": 0.2, "split_seed": 0}, "model": {"name": "cnn-tiny"}},
        "space": {"families": ["constant", "step-up"]},
        "budget": {"trials": 8},
    },
    "versions": {"torch": "2.15.0", "mlflow": "3.17.2"},
    "devices": ["cpu"],
    "commit": "a" * 40,
    "data": {"name": "digits", "digest": "b" * 64, "sizes": {"train": 1150, "validation": 287, "test": 360}},
}


class Writer:
    """Makes the events of a search, one trial after the other."""

    def __init__(self, epochs: int = 5) -> None:
        self.epochs = epochs
        self.time = START
        self.number = 0
        self.lines: list[dict[str, Any]] = [HEADER]

    def add(self, event: str, later: float = 1.0, **fields: Any) -> None:
        self.time += later
        self.lines.append({"event": event, "time": self.time, **fields})

    def draw(self, cost: float, seed: int = 0, role: str = "search", epochs: int | None = None) -> str:
        epochs = epochs or self.epochs
        config = {
            "family": "constant",
            "schedule": {"family": "constant", "p": cost},
            "rule": "sam",
            "rule_options": {},
            "rho": 0.05,
            "gamma_gnr": 1.5,
            "gamma_rst": 1.5 * cost,
            "extra_propagation": cost,
            "coordinates": {"family": "constant", "c": cost},
            "curve": [cost] * 100,
        }
        identity = config_id(config["coordinates"])
        key = trial_key(identity, epochs, seed)
        full = epochs == self.epochs
        names = {"key": key, "number": self.number, "role": role, "config_id": identity, "config": config}
        self.add("trial", **names, seed=seed, epochs=epochs, full=full)
        self.number += 1
        return key

    def start(self, key: str) -> None:
        self.add("start", key=key, node="node-1", worker="123", ray_trial=f"ray_{key[:6]}")

    def end(self, key: str, error: float, status: str = "complete", epochs: int | None = None, **fields: Any) -> None:
        count = self.epochs if epochs is None else epochs
        history = {name: self._column(name, error, count) for name in METRICS}
        pairs = history["pairs"][-1] if count else 0.0
        self.add("end", 10.0, key=key, status=status, error=error, pairs=pairs, seconds=9.5, history=history, **fields)

    def _column(self, name: str, error: float, count: int) -> list[float]:
        if name == "pairs":
            return [36.0 * 1.5 * (n + 1) for n in range(count)]
        noise = random.Random(f"{name}{error}")
        return [error + math.exp(-n) + noise.random() * 1e-3 for n in range(count)]

    def save(self, directory: Path, upto: int | None = None) -> Path:
        directory.mkdir(parents=True, exist_ok=True)
        text = "".join(json.dumps(line) + "\n" for line in self.lines[:upto])
        (directory / RECORD_NAME).write_text(text)
        return directory


def small_search() -> Writer:
    """Return a search with one of everything: stopped, failed, diverged, resumed, confirmed, tested."""
    w = Writer()
    base, cheap, stopped, failed = w.draw(0.0), w.draw(0.25), w.draw(0.5), w.draw(0.75)
    w.start(base)
    w.end(base, 5.0)
    w.add("reference", error=6.0, extra_propagation=1.1)
    for key in (cheap, stopped, failed):
        w.start(key)
        w.add("rung", key=key, epoch=2, error=4.5, decision="go")
    w.end(cheap, 4.0)
    w.end(stopped, 7.0, "stopped", 2, reason="rung 2: dominated")
    w.end(failed, math.nan, "diverged", 3, reason="loss is nan at https://ann:hunter2@host/x")
    w.start(failed)
    w.end(failed, 3.0)
    w.draw(0.9)  # drawn, never started
    w.add("phase", name="confirm")
    for cost, error in ((0.0, 5.1), (0.25, 4.1), (0.75, 3.2)):
        for seed in (1, 2):
            key = w.draw(cost, seed, "confirm")
            w.start(key)
            w.end(key, error + 0.05 * seed)
    w.add("phase", name="test")
    w.add("test", key=base, error=5.5)
    w.add("phase", name="done")
    return w


def large_search(trials: int, epochs: int) -> Writer:
    """Return a search of many finished trials."""
    w = Writer(epochs)
    w.add("reference", error=60.0, extra_propagation=1.1)
    for number in range(trials):
        key = w.draw((number % 997) / 1000, seed=number)
        w.start(key)
        w.end(key, 5.0 + (number * 7919 % 1000) / 100)
    w.add("phase", name="done")
    return w
