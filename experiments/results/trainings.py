"""Plain trainings by `training.Run`, and their record: one JSON line per training, appended, never trained twice.

New lines go to `output/results/trainings/<task>.jsonl`; `keep` merges them into the compressed record of the task.
"""

import json
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
from studies import KEPT, read_lines, write_lines

from rst_tune import api
from rst_tune.method import schedules
from rst_tune.training.data import Dataset, Split, load_dataset
from rst_tune.training.loop import Run
from rst_tune.training.task import Method, Task

__all__ = ["SGD", "TASKS", "Config", "OutOfTimeError", "Record", "load_task", "records"]

# The experiment of each task, and its name on the page.
TASKS = {
    "noisy_digits": ("digits", "noisy digits"),
    "fashion_mnist": ("results/fashion_mnist", "Fashion-MNIST"),
    "clean_digits": ("results/clean_digits", "clean digits"),
    "tabular": ("results/tabular", "tabular"),
    "cifar10": ("results/cifar10", "CIFAR-10"),
}
DATA = Path("data/results")
SGD = "constant:p=0"
FEW = 16


class OutOfTimeError(Exception):
    """The given minutes are over; what was trained is recorded."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """What is trained, without the seed: p(t) as text, the rule, its radius, and the length in epochs."""

    epochs: int
    rho: float
    schedule: str = "constant:p=1"
    rule: str = "sam"
    gamma: float = 1.0
    policy: str = "coin"
    cap: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the values that are not the default ones."""
        default = {field.name: field.default for field in fields(self)}
        return {name: value for name, value in asdict(self).items() if value != default[name]}

    @property
    def method(self) -> Method:
        """The method as the product takes it."""
        schedule = schedules.parse(self.schedule).to_dict()
        return Method(
            schedule=schedule, gamma_gnr=self.gamma, rule=self.rule, policy=self.policy, cap=self.cap, rho=self.rho
        )


def load_task(name: str) -> Task:
    """Return the task of an experiment; `data.py` writes what it reads."""
    return api.load_experiment(TASKS[name][0], search=False).task


def train(task: Task, data: Dataset, config: Config, seed: int) -> dict[str, Any]:
    """Return errors and cost of one training. A diverged one has the error of chance.

    `heldout` is the error on validation and test images together. Only the end is measured: while it trains, the run
    sees a few validation images, which changes nothing but its time.
    """
    torch.set_num_threads(1)
    begun = time.process_time()
    few = replace(data, validation=Split(data.validation.images[:FEW], data.validation.labels[:FEW]))
    run = Run(task, config.method, seed=seed, epochs=config.epochs, device="cpu", data=few)
    while not run.finished:
        run.epoch()
    diverged = run.status == "diverged"
    chance = 100 * (1 - 1 / data.classes)
    validation, test = (chance if diverged else _error(run, data, split) for split in (data.validation, data.test))
    images = len(data.validation), len(data.test)
    return {
        "compute": round(run.pairs / (task.recipe.epochs * run.steps_per_epoch), 4),
        "validation": round(validation, 4), "test": round(test, 4),
        "heldout": round((validation * images[0] + test * images[1]) / sum(images), 4),
        "diverged": diverged, "seconds": round(time.process_time() - begun, 3),
    }  # fmt: skip


def _error(run: Run, data: Dataset, split: Split) -> float:
    run.data = replace(data, test=split)
    return run.test()["test_error"]


class Record:
    """All trainings of one task: the kept ones and, with a `work` directory, those that were trained since.

    Training stops at the time `until`.
    """

    def __init__(self, name: str, kept: Path = KEPT, work: Path | None = None, until: float | None = None) -> None:
        self.name, self.title = name, TASKS[name][1]
        self.kept, self.until = kept / f"{name}.jsonl.gz", until
        self.new = work / "trainings" / f"{name}.jsonl" if work else None
        self.task = load_task(name)
        self._data: Dataset | None = None
        self.rows: dict[tuple[Config, int], dict[str, Any]] = {}
        lines = read_lines(self.kept) if self.kept.exists() else []
        lines += self.new.read_bytes().splitlines() if self.new and self.new.exists() else []
        for line in lines:
            self._add(line)

    def _add(self, line: bytes) -> None:
        try:
            row = json.loads(line)
        except ValueError:  # the last line of a killed process
            return
        self.rows[Config(**row["config"]), row["seed"]] = row

    def train(self, wanted: Iterable[tuple[Config, int]]) -> int:
        """Train what is not there yet, one seed after the other, and return how many were trained."""
        todo = sorted({pair for pair in wanted if pair not in self.rows}, key=lambda pair: pair[1])
        for config, seed in todo:
            self._train(config, seed)
        return len(todo)

    def _train(self, config: Config, seed: int) -> None:
        if self.until is not None and time.time() > self.until:
            raise OutOfTimeError
        if self._data is None:
            self._data = load_dataset(self.task.data)
        measured = train(self.task, self._data, config, seed)
        row = {"task": self.name, "config": config.to_dict(), "seed": seed, **measured}
        if self.new:
            self.new.parent.mkdir(parents=True, exist_ok=True)
            with self.new.open("a") as file:
                file.write(json.dumps(row) + "\n")
        self.rows[config, seed] = row

    def keep(self) -> None:
        """Write the compressed record."""
        rows = sorted(self.rows.values(), key=lambda row: (row["seed"], json.dumps(row["config"])))
        write_lines(self.kept, rows)

    def has(self, config: Config, seeds: Iterable[int]) -> bool:
        """Return whether all these trainings are there."""
        return all((config, seed) in self.rows for seed in seeds)

    def values(self, config: Config, seeds: Iterable[int], what: str = "test") -> list[float]:
        """Return one measured value per seed."""
        return [self.rows[config, seed][what] for seed in seeds]

    @property
    def seconds(self) -> float:
        """Processor time of all trainings."""
        return sum(row["seconds"] for row in self.rows.values())


def records(names: Iterable[str] = TASKS, **arguments: Any) -> dict[str, Record]:
    """Return the records of the tasks."""
    return {name: Record(name, **arguments) for name in names}
