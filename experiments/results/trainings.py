"""Plain trainings, and their record: one JSON line per training, appended, never trained twice.

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
from rst_tune.training.data import Split
from rst_tune.training.function import FunctionTask, FunctionWorkload
from rst_tune.training.loop import Run
from rst_tune.training.task import Method, Task
from rst_tune.training.workload import ClassifierWorkload, Training

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
AnyTask = Task | FunctionTask
AnyWorkload = ClassifierWorkload | FunctionWorkload


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


def load_task(name: str) -> AnyTask:
    """Return the task of an experiment; `data.py` writes what it reads."""
    return api.load_experiment(TASKS[name][0], search=False).task


def load_workload(task: AnyTask) -> AnyWorkload:
    """Return what trains a task: the built-in classifier, or the task's own function, which is beside this file."""
    if isinstance(task, FunctionTask):
        return task.workload((str(Path(__file__).parent),))
    return ClassifierWorkload.load(task)


def train(workload: AnyWorkload, method: Method, epochs: int, seed: int) -> dict[str, Any]:
    """Return errors and cost of one training; `heldout` is the error on validation and test data together."""
    torch.set_num_threads(1)
    begun = time.process_time()
    run, validation, test = (
        _by_function(workload, method, epochs, seed)
        if isinstance(workload, FunctionWorkload)
        else _by_classifier(workload, method, epochs, seed)
    )
    rows, held_out = _sizes(workload), {"validation": validation, "test": test}
    together = sum(error * rows[name] for name, error in held_out.items()) / sum(rows[name] for name in held_out)
    return {
        "compute": round(run.pairs / (workload.task.epochs * workload.steps_per_epoch), 4),
        "validation": round(validation, 4), "test": round(test, 4), "heldout": round(together, 4),
        "diverged": run.status == "diverged", "seconds": round(time.process_time() - begun, 3),
    }  # fmt: skip


def _by_classifier(workload: ClassifierWorkload, method: Method, epochs: int, seed: int) -> tuple[Run, float, float]:
    """Return a run with its two errors; a diverged one has the error of chance.

    Only the end is measured: while it trains, the run sees a few validation images, which changes nothing but its time.
    """
    data = workload.data
    few = replace(data, validation=Split(data.validation.images[:FEW], data.validation.labels[:FEW]))
    run = replace(workload, data=few).start(method, seed=seed, epochs=epochs, device="cpu")
    _finish(run)
    if run.status == "diverged":
        return run, *_chance(data.classes)
    errors = []
    for split in (data.validation, data.test):
        run.data = replace(data, test=split)
        errors.append(run.test()["test_error"])
    return run, *errors


def _by_function(workload: FunctionWorkload, method: Method, epochs: int, seed: int) -> tuple[Training, float, float]:
    """Return a run with what the function reports last and what it returns."""
    run = workload.start(method, seed=seed, epochs=epochs, device="cpu")
    _finish(run)
    if run.status == "diverged" or run.error is None:
        return run, *_chance(workload.task.options["classes"])
    return run, run.error, run.test()["test_error"]


def _finish(run: Training) -> None:
    while not run.finished:
        run.epoch()


def _chance(classes: int) -> tuple[float, float]:
    return (100 * (1 - 1 / classes),) * 2


def _sizes(workload: AnyWorkload) -> dict[str, int]:
    if isinstance(workload, FunctionWorkload):
        return workload.task.options
    return {"validation": len(workload.data.validation), "test": len(workload.data.test)}


class Record:
    """All trainings of one task: the kept ones and, with a `work` directory, those that were trained since.

    Training stops at the time `until`.
    """

    def __init__(self, name: str, kept: Path = KEPT, work: Path | None = None, until: float | None = None) -> None:
        self.name, self.title = name, TASKS[name][1]
        self.kept, self.until = kept / f"{name}.jsonl.gz", until
        self.new = work / "trainings" / f"{name}.jsonl" if work else None
        self.task = load_task(name)
        self._workload: AnyWorkload | None = None
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
        if self._workload is None:
            self._workload = load_workload(self.task)
        measured = train(self._workload, config.method, config.epochs, seed)
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
