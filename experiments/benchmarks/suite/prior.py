"""The prior of the surrogate's mean, measured: how length, effect and strain change the logarithm of the error.

    python experiments/benchmarks/suite/prior.py            # from the kept trainings
    python experiments/benchmarks/suite/prior.py --train    # trains the random designs that are missing

For each task of the suite, 500 random trainings of the space and the base optimizer at ten lengths are fitted by the
basis of `rst_tune.analysis.surrogate`. Printed are the coefficients, their mean and spread over the tasks, and the
same with each task left out, which `run.py` uses to judge that task. `MEAN_PRIOR` and `MEAN_SD` of the surrogate are
the rounded mean and spread over all tasks. The last lines are behind `SEED_SHARE` and `LOCAL_SEED_SHARE`.
"""

import argparse
from functools import cache

import numpy as np
from bank import TRUTH_SEED, TRUTH_SEEDS, Bank
from grid_space import compute_space, rounded
from tasks import TASKS

from rst_tune.analysis import surrogate as model
from rst_tune.records import Prior, TrialConfig
from rst_tune.tuning.points import SGD
from rst_tune.tuning.sampler import RandomSuggester

DESIGN_SEED, DESIGN = 500_000_000, 500
LENGTHS = (0.15, 0.21, 0.3, 0.42, 0.6, 0.85, 1.0, 1.2, 1.7, 2.0)
# The level belongs to the task, and spreads below these would be those of too few tasks.
LEAST_GROUP = 5  # configurations of one length
LEVEL, LEAST_SD = (0.0, 0.5), np.array([0.5, 0.2, 0.05, 0.2, 0.2])


def design(bank: Bank) -> list[tuple[TrialConfig, int]]:
    """Return configurations and seeds of the trainings that a task is fitted to."""
    rng, space = np.random.default_rng(7), compute_space()
    sampled = [bank.config(space.sample(RandomSuggester(rng))) for _ in range(DESIGN)]
    base = [bank.config(rounded({**SGD, "horizon": length})) for length in LENGTHS]
    return [(c, DESIGN_SEED + i) for i, c in enumerate(sampled)] + [(c, TRUTH_SEED + s) for c in base for s in range(3)]


@cache
def coefficients(name: str) -> tuple[float, ...]:
    """Return the scale k, the coefficients of the basis, and the deviation that they leave."""
    bank = Bank(TASKS[name])
    rows = design(bank)
    bank.train(rows)
    chance = 100 * (1 - 1 / bank.task.classes)
    errors = np.array([np.nan_to_num(bank.error(c, seed), nan=chance) for c, seed in rows])
    worst = max(e for e, (c, _) in zip(errors, rows, strict=True) if c.is_base)
    target = np.log(np.clip(errors, 0.05, model.CLIP * worst))
    target -= np.median(target)
    found = []
    for scale in np.exp(np.linspace(np.log(0.25), np.log(4), 13)):
        columns = model.basis([c for c, _ in rows], float(scale))
        fitted = np.linalg.solve(columns.T @ columns + 0.3 * np.eye(columns.shape[1]), columns.T @ target)
        found.append((float(np.std(target - columns @ fitted)), float(scale), *fitted.tolist()))
    left, *best = min(found)
    bank.save()
    return (*best, left)


@cache
def left_out(name: str | None) -> Prior:
    """Return the shipped prior with the coefficients measured on all tasks but this one."""
    found = np.array([coefficients(other)[1:-1] for other in TASKS if other != name])
    mean, sd = found.mean(axis=0), np.maximum(found.std(axis=0, ddof=1), LEAST_SD)
    mean[0], sd[0] = LEVEL
    return model.PRIOR.model_copy(
        update={"mean": tuple(mean.round(2).tolist()), "mean_sd": tuple(sd.round(2).tolist())}
    )


def seed_shares(name: str) -> tuple[float, float]:
    """Return the share of the variance between seeds that trainings of one length, and all of them, have in common.

    Of the configurations whose true error is known, those with less error than the base optimizer at its worst.
    """
    bank = Bank(TASKS[name])
    known = [k for k, seed in bank.trainings() if seed == TRUTH_SEED + TRUTH_SEEDS - 1]
    configs = [bank.config(bank.params(k)) for k in known]
    errors = bank.truth(configs)
    usable = errors.max(axis=1) < errors[[c.is_base for c in configs]].mean(axis=1).max()
    logs, lengths = np.log(errors[usable]), np.array([c.horizon for c in configs])[usable]
    residuals = logs - logs.mean(axis=1, keepdims=True)
    groups = [residuals[lengths == length] for length in np.unique(lengths)]
    groups = [group for group in groups if len(group) >= LEAST_GROUP]
    alike = np.concatenate([np.tile(group.mean(axis=0), (len(group), 1)) for group in groups])
    return float(alike.var() / np.concatenate(groups).var()), float(residuals.mean(axis=0).var() / residuals.var())


def main() -> None:
    """Print the fits."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", action="store_true", help="accepted: missing trainings are always trained")
    parser.add_argument("--quick", action="store_true", help="accepted for uniformity: it takes seconds")
    parser.parse_args()
    print(f"{'task':16s}  scale      1      L     L²   gain   loss   left")
    for name in TASKS:
        print(f"{name:16s} " + " ".join(f"{value:6.2f}" for value in coefficients(name)))
    for name in (None, *TASKS):
        found = left_out(name)
        print(f"{'without ' + name if name else 'all tasks':22s} mean {list(found.mean)} sd {list(found.mean_sd)}")
    for name in TASKS:
        alike, all_of_them = seed_shares(name)
        print(f"{name:16s} noise in common with the same seed: {alike:.2f} at one length, {all_of_them:.2f} at all")


if __name__ == "__main__":
    main()
