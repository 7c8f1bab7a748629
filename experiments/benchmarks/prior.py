"""What the prior of the surrogate is compared with: random trainings over the whole `compute` space, on five tasks.

    python experiments/benchmarks/prior.py                       # the fits, from the kept trainings
    python experiments/benchmarks/prior.py --train NAME          # trains a task again (about 150 trainings)

For each task the prior mean of `rst_tune.analysis.surrogate` is fitted by least squares: how much the length, the
effect and the strain of a training change the logarithm of its error. Printed with the mean and the spread of these
coefficients over the tasks, to compare with `MEAN_PRIOR` and `MEAN_SD` of the surrogate, which are set by hand. Then,
with each task left out of the prior, the surrogate is fitted to some of the task's trainings and predicts the others:
root mean square error of the logarithm, and the share of errors inside their 90 % interval.
"""

import argparse
import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rst_tune.analysis import surrogate as model
from rst_tune.records import Role, Status, Trial, config_id
from rst_tune.tuning.space import TaskScale, trial_config

KEPT = Path(__file__).with_name("prior.jsonl.gz")
FAMILIES = (
    "constant", "step-up", "step-down", "ramp-up", "ramp-down", "cosine-up", "cosine-down", "sine-bump", "sine-dip"
)  # fmt: skip
TASKS: dict[str, dict[str, Any]] = {
    "noisy digits, CNN": {
        "data": {"name": "digits", "validation": 397, "train_size": 1000, "label_noise": 0.2},
        "model": {"name": "cnn-tiny"},
        "recipe": {"base": "digits"},
    },
    "noisier digits, MLP": {
        "data": {"name": "digits", "validation": 397, "train_size": 1000, "label_noise": 0.4},
        "model": {"name": "mlp-tiny"},
        "recipe": {"base": "digits"},
    },
    "clean digits, too few epochs": {
        "data": {"name": "digits", "validation": 397, "train_size": 500},
        "model": {"name": "cnn-tiny"},
        "recipe": {"base": "digits", "epochs": 6},
    },
    "Fashion-MNIST 8 x 8, CNN": {
        "data": {"name": "npz", "validation": 4000, "train_size": 1000},
        "model": {"name": "cnn-tiny"},
        "recipe": {"base": "digits", "epochs": 12},
    },
    "Fashion-MNIST 8 x 8, MLP, Adam": {
        "data": {"name": "npz", "validation": 2000, "train_size": 1000, "label_noise": 0.1},
        "model": {"name": "mlp-tiny"},
        "recipe": {"base": "digits", "epochs": 15, "optimizer": "adam", "lr": 0.003, "rho": 0.1},
    },
}
BASE_LENGTHS, SAM_LENGTHS, SAM_RADII = (0.15, 0.3, 0.5, 1.0, 2.0), (0.5, 1.0), (1.0, 2.5)
SEEDS, RANDOM = 3, 120


def sample(rng: np.random.Generator) -> dict[str, Any]:
    """Return random parameters of the space: constants more often than the others."""
    family = FAMILIES[rng.integers(len(FAMILIES))] if rng.random() < 0.6 else "constant"
    params = {
        "family": family,
        "c": float(np.exp(rng.uniform(np.log(0.05), 0))),
        "gamma_rst": float(np.exp(rng.uniform(np.log(0.35), np.log(3)))),
        "horizon": float(np.exp(rng.uniform(np.log(0.15), np.log(2)))),
        "rho": float(np.exp(rng.uniform(np.log(0.3), np.log(4)))),
        "rho_unit": "recipe",
        "rule": "sam",
    }
    return params if family == "constant" else {**params, "shape": float(rng.choice([0.5, 1.0]))}


def design(name: str) -> list[tuple[dict[str, Any], int]]:
    """Return parameters and seeds of all trainings of a task."""
    rng = np.random.default_rng(sum(map(ord, name)))
    base = [constant(0.0, horizon=length) for length in BASE_LENGTHS]
    sam = [constant(1.0, horizon=length, rho=rho, rho_unit="recipe") for length in SAM_LENGTHS for rho in SAM_RADII]
    given = [(params, seed) for seed in range(SEEDS) for params in [*base, *sam]]
    return given + [(sample(rng), 100 + number) for number in range(RANDOM)]


def constant(p: float, **more: Any) -> dict[str, Any]:
    return {"schedule": {"family": "constant", "p": p}, "gamma_gnr": 1.0, "rule": "sam", **more}


def scale_of(fields: dict[str, Any]) -> TaskScale:
    from rst_tune.training.task import Task

    recipe = Task.model_validate({**fields, "data": {**fields["data"], "root": None}}).recipe
    steps = fields["data"]["train_size"] // recipe.batch_size
    return TaskScale(epochs=recipe.epochs, steps_per_epoch=steps, rho=recipe.rho, batch_size=recipe.batch_size)


def train(name: str, root: str | None) -> list[dict[str, Any]]:
    """Train all of a task."""
    import torch

    from rst_tune.training.data import load_dataset
    from rst_tune.training.loop import Run
    from rst_tune.training.task import Task
    from rst_tune.tuning.backend.runner import to_method

    torch.set_num_threads(1)
    task = Task.model_validate({**TASKS[name], "data": {**TASKS[name]["data"], "root": root}})
    data, scale, rows = load_dataset(task.data), scale_of(TASKS[name]), []
    for params, seed in design(name):
        method, epochs = to_method(trial_config(params, scale)), scale.epochs_of(params)
        run = Run(task, method, seed=seed, epochs=epochs, device="cpu", data=data)
        while not run.finished:
            run.epoch()
        error = run.last_metrics.get("validation_error") if run.status == "complete" else None
        rows.append({"task": name, "params": params, "seed": seed, "error": error})
        print(f"{name}: {len(rows)} of {len(design(name))}", end="\r", flush=True)
    return rows


def trials_of(rows: Sequence[dict[str, Any]], name: str) -> list[Trial]:
    """Return the trainings of a task as finished trials; a diverged one has the error of chance."""
    scale = scale_of(TASKS[name])
    return [
        Trial(
            key=str(i), number=i, role=Role.SEARCH, config_id=config_id(row["params"]),
            config=trial_config(row["params"], scale), seed=row["seed"], epochs=scale.epochs_of(row["params"]),
            full_horizon=True, sampled_at=0.0, ended_at=1.0, status=Status.COMPLETE,
            error=90.0 if row["error"] is None else row["error"],
        )
        for i, row in enumerate(rows)
        if row["task"] == name
    ]  # fmt: skip


def log_errors(trials: Sequence[Trial]) -> np.ndarray:
    """Return the targets as the surrogate sees them: clipped at the worst baseline."""
    worst = max(t.error or 0.0 for t in trials if t.config.is_base)
    return np.log(np.minimum([max(t.error or 0.0, 0.1) for t in trials], model.CLIP * worst))


def coefficients(trials: Sequence[Trial]) -> tuple[float, np.ndarray, float]:
    """Return the scale, the coefficients and the remaining deviation of the best fit of the prior mean."""
    target = log_errors(trials)
    best: tuple[float, np.ndarray, float] | None = None
    for scale in np.exp(np.linspace(np.log(0.25), np.log(4), 13)):
        columns = model.basis([t.config for t in trials], float(scale))
        gram = columns.T @ columns + 0.3 * np.eye(columns.shape[1])
        found = np.linalg.solve(gram, columns.T @ (target - np.median(target)))
        left = float(np.std(target - np.median(target) - columns @ found))
        if best is None or left < best[2]:
            best = (float(scale), found, left)
    assert best is not None
    return best


def predict(trials: Sequence[Trial], count: int, repeats: int = 8) -> tuple[float, float]:
    """Return error and coverage of predictions from `count` random trainings and the baselines."""
    scores = []
    for repeat in range(repeats):
        order = np.random.default_rng(repeat).permutation(len(trials))
        chosen = {int(i) for i in order[:count]} | {i for i, t in enumerate(trials) if t.config.is_base and t.seed == 0}
        seen, held_out = ([t for i, t in enumerate(trials) if (i in chosen) is flag] for flag in (True, False))
        fitted = model.fit_surrogate(seen)
        worst = max(t.error or 0.0 for t in seen if t.config.is_base)
        target = np.log(np.minimum([max(t.error or 0.0, 0.1) for t in held_out], model.CLIP * worst))
        mean, sd = fitted.log_errors([t.config for t in held_out])
        inside = np.abs(target - mean) < 1.645 * np.sqrt(sd**2 + fitted.noise_sd**2)
        scores.append((float(np.sqrt(np.mean((target - mean) ** 2))), float(inside.mean())))
    return float(np.mean([s[0] for s in scores])), float(np.mean([s[1] for s in scores]))


def report(rows: Sequence[dict[str, Any]]) -> None:
    fits = {name: coefficients(trials_of(rows, name)) for name in TASKS if any(r["task"] == name for r in rows)}
    print("task                              scale      1      L     L²   gain   loss   left  sd")
    for name, (scale, found, left) in fits.items():
        spread = float(np.std(log_errors(trials_of(rows, name))))
        print(f"{name:32s} {scale:6.2f} " + " ".join(f"{value:6.2f}" for value in found) + f" {left:6.2f} {spread:.2f}")
    found = np.array([found for _, found, _ in fits.values()])
    for title, row in (("mean", found.mean(axis=0)), ("spread", found.std(axis=0, ddof=1))):
        print(f"{title:39s} " + " ".join(f"{value:6.2f}" for value in row))
    print("\nleft out of the prior             35 trainings: rmse, inside   70 trainings: rmse, inside")
    kept = model.MEAN_PRIOR.copy(), model.MEAN_SD.copy()
    for name in fits:
        others = np.array([found for other, (_, found, _) in fits.items() if other != name])
        # The level belongs to the task: its prior stays.
        model.MEAN_PRIOR[1:], model.MEAN_SD[1:] = (
            others.mean(axis=0)[1:],
            np.maximum(others.std(axis=0, ddof=1)[1:], 0.1),
        )
        scores = [predict(trials_of(rows, name), count) for count in (35, 70)]
        print(f"{name:32s} " + "   ".join(f"{rmse:20.3f}, {inside:.2f}" for rmse, inside in scores))
    model.MEAN_PRIOR[:], model.MEAN_SD[:] = kept


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", choices=list(TASKS), help="train this task again")
    parser.add_argument("--root", help="the .npz file of a task that reads one")
    parser.add_argument("--quick", action="store_true", help="accepted for uniformity: the report takes seconds")
    options = parser.parse_args()
    rows = [json.loads(line) for line in gzip.decompress(KEPT.read_bytes()).splitlines()] if KEPT.exists() else []
    if options.train:
        rows = [row for row in rows if row["task"] != options.train] + train(options.train, options.root)
        text = "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)
        KEPT.write_bytes(gzip.compress(text.encode(), mtime=0))
    report(rows)


if __name__ == "__main__":
    main()
