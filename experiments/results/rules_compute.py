"""Every ascent rule at the compute of one plain training, on three tasks, with its radius chosen on half of the seeds.

    python experiments/results/rules_compute.py --fashion data/fashion_mnist.npz   # trains; interrupted, it resumes

A rule of extra cost x trains for 1/(1 + x) of the recipe's epochs, so that all rows of a task spend equally many
forward-backward pairs. The radius with the lowest mean validation error on the even seeds is judged on the odd seeds,
on the test set. SGD is there at four lengths up to the same compute, its length chosen in the same way.
"""

import argparse
import json
import multiprocessing
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from studies import KEPT, read_lines, write_lines

from rst_tune.method import schedules
from rst_tune.method.cost import expected_extra_propagation
from rst_tune.training.data import Dataset, load_dataset
from rst_tune.training.loop import Run
from rst_tune.training.task import Method, Task

if TYPE_CHECKING:
    from page import Page

NAME = "rules_compute"
SEEDS = 8
RADII = (0.5, 1.0, 2.0, 4.0)
LENGTHS = (0.25, 0.5, 0.75, 1.0)
POOL = 2  # Fashion-MNIST is averaged to 14 x 14 pixels: a training then takes a second


@dataclass(frozen=True)
class Contender:
    """A way of training: a constant p, and what else the method takes. `radius` multiplies the radii that are tried."""

    name: str
    rule: str = "sam"
    p: float = 1.0
    gamma_gnr: float = 1.0
    policy: str = "coin"
    cap: float | None = None
    radius: float = 1.0


CONTENDERS = (
    Contender("SAM"),
    Contender("ASAM", "asam", radius=10.0),
    Contender("GSAM", "gsam"),
    Contender("LookSAM(5)", "looksam"),
    Contender("ESAM", "esam"),
    Contender("SSAM", "ssam"),
    Contender("F-SAM", "fsam"),
    Contender("VASSO", "vasso"),
    Contender("SAM-ON", "sam-on", radius=2.0),
    Contender("S2-SAM, one pass", "s2sam"),
    Contender("MSAM, one pass", "msam"),
    Contender("RST, p = 0.5", p=0.5),
    Contender("AE-SAM policy, p = 0.5", p=0.5, policy="gradient-norm"),
    Contender("G-RST, p = 0.5, gamma 2", p=0.5, gamma_gnr=2.0),
    Contender("G-RST, p = 0.1, gamma 10", p=0.1, gamma_gnr=10.0),
    Contender("G-RST, p = 0.1, gamma 10, cap 3", p=0.1, gamma_gnr=10.0, cap=3.0),
)

TASKS: dict[str, dict[str, Any]] = {
    "noisy digits": {
        "data": {"name": "digits", "validation": 397, "train_size": 1000, "label_noise": 0.2},
        "model": {"name": "cnn-tiny"},
        "recipe": {"base": "digits"},
    },
    "clean digits": {
        "data": {"name": "digits", "validation": 397, "train_size": 1000},
        "model": {"name": "cnn-tiny"},
        "recipe": {"base": "digits", "epochs": 12},
    },
    "Fashion-MNIST": {
        "data": {"name": "npz", "validation": 1500, "train_size": 1000},
        "model": {"name": "cnn-tiny"},
        "recipe": {"base": "digits", "epochs": 12},
    },
}


@dataclass(frozen=True)
class Job:
    """One training."""

    task: str
    contender: str
    radius: float
    horizon: float
    seed: int

    @property
    def key(self) -> tuple[str, str, float, float, int]:
        """What identifies it."""
        return self.task, self.contender, self.radius, round(self.horizon, 6), self.seed


def jobs(tasks: Sequence[str]) -> Iterator[Job]:
    """Yield all trainings, one seed after the other: an interrupted study has as many seeds of everything."""
    for seed in range(SEEDS):
        for task in tasks:
            for length in LENGTHS:
                yield Job(task, "SGD", 0.0, length, seed)
            for contender in CONTENDERS:
                horizon = 1 / (1 + cost(contender))
                yield from (Job(task, contender.name, radius, horizon, seed) for radius in RADII)


def cost(contender: Contender) -> float:
    """Return the expected extra pairs per step."""
    return expected_extra_propagation(schedules.constant(contender.p), 1000, contender.rule, None, 64)


def train(job: Job, task: Task, data: Dataset) -> dict[str, Any]:
    """Return the errors of one training; a diverged one counts as chance."""
    torch.set_num_threads(1)
    epochs = max(1, round(job.horizon * task.recipe.epochs))
    found = {c.name: c for c in CONTENDERS}.get(job.contender)
    contender = found or Contender("SGD", p=0.0)
    method = Method(
        schedule={"family": "constant", "p": contender.p}, gamma_gnr=contender.gamma_gnr, rule=contender.rule,
        policy=contender.policy, cap=contender.cap, rho=task.recipe.rho * contender.radius * job.radius or None,
    )  # fmt: skip
    run = Run(task, method, seed=job.seed, epochs=epochs, device="cpu", data=data)
    while not run.finished:
        run.epoch()
    complete = run.status == "complete"
    chance = 100 * (1 - 1 / data.classes)
    error = run.last_metrics["validation_error"] if complete else chance
    test = run.test()["test_error"] if complete else chance
    return {
        "task": job.task, "contender": job.contender, "radius": job.radius, "horizon": round(job.horizon, 6),
        "seed": job.seed, "error": error, "test": test, "status": run.status,
        "compute": run.pairs / (task.recipe.epochs * run.steps_per_epoch),
        "seconds": sum(run.history.get("seconds", [])),
    }  # fmt: skip


_loaded: dict[str, tuple[Task, Dataset]] = {}


def _work(job: Job, fields: dict[str, Any]) -> dict[str, Any]:
    if job.task not in _loaded:
        task = Task.model_validate(fields)
        _loaded[job.task] = (task, load_dataset(task.data))
    return train(job, *_loaded[job.task])


def pooled(path: Path, folder: Path) -> Path:
    """Write the images averaged over squares, as a file that a task can read."""
    with np.load(path) as file:
        parts = {name: file[name] for name in file.files}
    for name in ("x_train", "x_test"):
        n, height, width, channels = parts[name].shape
        squares = parts[name].reshape(n, height // POOL, POOL, width // POOL, POOL, channels)
        parts[name] = squares.mean((2, 4)).round().astype(np.uint8)
    kept = {name: part[:20000] for name, part in parts.items()}
    np.savez(folder / "pooled.npz", **kept)
    return folder / "pooled.npz"


def run_all(out: Path, fashion: Path | None, processes: int) -> None:
    """Train what is missing in `out`, and keep the record when all is there."""
    out.parent.mkdir(parents=True, exist_ok=True)
    rows = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    done = {(r["task"], r["contender"], r["radius"], r["horizon"], r["seed"]) for r in rows}
    with tempfile.TemporaryDirectory() as folder:
        tasks = {name: dict(fields) for name, fields in TASKS.items()}
        if fashion is None:
            del tasks["Fashion-MNIST"]
        else:
            root = str(pooled(fashion, Path(folder)))
            tasks["Fashion-MNIST"] = {
                **TASKS["Fashion-MNIST"],
                "data": {**TASKS["Fashion-MNIST"]["data"], "root": root},
            }
        todo = [job for job in jobs(list(tasks)) if job.key not in done]
        with multiprocessing.get_context("spawn").Pool(processes) as pool, out.open("a") as file:
            pending = [pool.apply_async(_work, (job, tasks[job.task])) for job in todo]
            for number, result in enumerate(pending, start=1):
                file.write(json.dumps(result.get()) + "\n")
                file.flush()
                if number % 50 == 0:
                    print(f"{number} of {len(todo)} trainings", flush=True)


def keep(out: Path, records: Path = KEPT) -> Path:
    """Keep the rows of the seeds that every contender has."""
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    return write_lines(records / f"{NAME}.jsonl.gz", rows)


# --- the page -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Judged:
    """A contender with the choice of the even seeds, judged on the odd ones."""

    name: str
    choice: str
    compute: float
    errors: tuple[float, ...]
    seconds: float

    @property
    def text(self) -> str:
        """Mean and standard error of the test error."""
        return f"{fmean(self.errors):.2f} ± {stdev(self.errors) / len(self.errors) ** 0.5:.2f}"


def judge(rows: Sequence[dict[str, Any]]) -> list[Judged]:
    """Return every contender of one task, the best first."""
    names = dict.fromkeys(row["contender"] for row in rows)
    return sorted((_judged(name, [r for r in rows if r["contender"] == name]) for name in names), key=_mean)


def _mean(judged: Judged) -> float:
    return fmean(judged.errors)


def _judged(name: str, rows: Sequence[dict[str, Any]]) -> Judged:
    settings = dict.fromkeys((row["radius"], row["horizon"]) for row in rows)
    groups = {setting: [r for r in rows if (r["radius"], r["horizon"]) == setting] for setting in settings}
    best = min(groups, key=lambda s: fmean(r["error"] for r in groups[s] if r["seed"] % 2 == 0))
    judged = [r for r in groups[best] if r["seed"] % 2 == 1]
    choice = f"{best[1]:g} × the epochs" if name == "SGD" else f"{best[0]:g} × the radius"
    return Judged(
        name, choice, fmean(r["compute"] for r in judged), tuple(r["test"] for r in judged),
        fmean(r["seconds"] for r in judged),
    )  # fmt: skip


def write(page: "Page", records: Path = KEPT) -> None:
    """Write the section of the result page."""
    path = records / f"{NAME}.jsonl.gz"
    command = "python experiments/results/rules_compute.py --fashion data/fashion_mnist.npz"
    if not path.exists():
        page.say(f"This study has not been trained yet: `{command}`.")
        return
    rows = [json.loads(line) for line in read_lines(path)]
    page.say(
        "Each rule with the compute of one plain training: a rule with a second pass per step trains for half of the "
        "epochs. Its radius (SGD: its length) is the one of four with the lowest validation error on the even seeds; "
        "the table has the test error on the odd seeds. What loses is in it, too."
    )
    for task in dict.fromkeys(row["task"] for row in rows):
        own = [row for row in rows if row["task"] == task]
        seeds = len({row["seed"] for row in own})
        judged = judge(own)
        page.say(f"**{task}**, {seeds} seeds, half of them to choose:")
        body = [[j.name, j.choice, f"{j.compute:.2f} ×", j.text] for j in judged]
        page.table(["training", "chosen", "compute", "test error %"], body)
    page.say(f"*`{command}` · {len(rows):,} trainings*")


def main() -> None:
    """Train and keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fashion", type=Path, help="Fashion-MNIST as .npz; without it that task is left out")
    parser.add_argument("--out", type=Path, default=Path("output/results/rules_compute.jsonl"))
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args()
    run_all(given.out, given.fashion, given.processes)
    print(keep(given.out))


if __name__ == "__main__":
    main()
