"""Earlier searches for a judged task of the suite, and the prior that a search started `--from` them has.

    python experiments/benchmarks/suite/warm.py            # how well a few trainings predict others, by prior
    python experiments/benchmarks/suite/run.py --train --worlds 8 --method "ours, from alike"   # the fronts

`itself` is the same task, searched before with other seeds: no other task is more alike. Which other tasks are alike
was decided by their descriptions, before anything was measured: the same data and optimizer, or the same optimizer and
wrong labels. The earlier searches are ours, with 40 plain trainings each, in worlds that no
other search is run in; each world of a judged task has one of four sets of them. What is not learnt from them is
measured with the judged task left out; what they trained was chosen with the prior of all tasks but their own.
"""

import argparse
import threading
from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import methods
import numpy as np
from bank import Bank
from prior import design, left_out
from tasks import TASKS

from rst_tune.analysis import pareto, warm_start
from rst_tune.analysis.analysis import Analysis
from rst_tune.analysis.surrogate import CLIP, fit_surrogate
from rst_tune.records import Prior, Role, Status, Trial, config_id
from rst_tune.tuning.confirmation import spread_points

WORLD, WORLDS, BUDGET = 900, 4, 40.0
# Starting points: configurations of the earlier fronts that hold most of their hypervolume.
POINTS = 3
ALIKE = {
    "digits-noisy": ("digits-40",), "digits-40": ("digits-noisy",),
    "fashion-adam": ("words",), "words": ("fashion-adam",),
}  # fmt: skip
UNLIKE = {
    "digits-noisy": ("digits-short", "words"), "digits-40": ("digits-short", "words"),
    "fashion-adam": ("digits-short", "clusters-hot"), "words": ("digits-short", "clusters-hot"),
    "digits-short": ("digits-noisy", "words"), "cifar-bn": ("digits-noisy", "words"),
    "clusters-hot": ("digits-short", "words"),
}  # fmt: skip
EARLIER: dict[str, dict[str, tuple[str, ...]]] = {
    "itself": {n: (n,) for n in TASKS}, "alike": ALIKE, "unlike": UNLIKE,
    "all others": {n: tuple(o for o in TASKS if o != n) for n in TASKS},
}  # fmt: skip
# Trainings that a prediction has beside the base optimizer at ten lengths, and repeats with other ones.
TRAININGS, REPEATS = (0, 4, 12, 40), 8
_LOCK = threading.RLock()


@cache
def _searches(task: str) -> list[Analysis]:
    """Return the earlier searches of a task, one per world."""
    bank, prior = Bank(TASKS[task]), left_out(task)
    worlds = range(WORLD, WORLD + WORLDS)
    found = bank.run([partial(methods.ours, bank, BUDGET, world, prior=prior) for world in worlds])
    bank.save()
    return [delivered.analysis for delivered in found if delivered.analysis is not None]


@cache
def _prior(task: str, kind: str, number: int) -> Prior:
    earlier = [_searches(other)[number].search for other in EARLIER[kind][task]]
    return warm_start.learn_prior(earlier, left_out(task))


def warm_prior(task: str, kind: str, world: int) -> Prior:
    """Return the prior that a world of a task is searched with."""
    with _LOCK:
        return _prior(task, kind, world % WORLDS)


def first_points(task: str, kind: str, world: int, count: int) -> dict[str, Any]:
    """Return the change of the space by which the best points of the earlier fronts are trained first."""
    if not count:
        return {}
    with _LOCK:
        fronts = [_searches(other)[world % WORLDS] for other in EARLIER[kind][task]]
    ranked: list[list[dict[str, Any]]] = []
    for found in fronts:
        points = [p for p in found.points if not p.config.is_baseline]
        values = [(p.error_posterior, p.compute) for p in points]
        order = spread_points(values, found.reference or pareto.reference_point(found.search), count) if points else []
        ranked.append([dict(points[i].config.params) for i in order])
    in_turn = [front[i] for i in range(count) for front in ranked if i < len(front)]
    return {"points_to_evaluate": in_turn[:count]}


# --- how well a few trainings predict others ----------------------------------------------------------------------


def trials_of(task: str) -> tuple[list[Trial], list[Trial]]:
    """Return the base optimizer at ten lengths, and random configurations of the space, as trials of one seed each."""
    bank = Bank(TASKS[task])
    rows = design(bank)
    bank.train(rows)
    chance = methods.chance(bank)
    made = [
        Trial(
            key=str(number), number=number, role=Role.SEARCH, config_id=config_id(config.params), config=config,
            seed=seed, epochs=bank.scale.epochs_of(config.params), full_horizon=True, sampled_at=0.0,
            status=Status.COMPLETE, error=float(np.nan_to_num(bank.error(config, seed), nan=chance)),
        )
        for number, (config, seed) in enumerate(rows)
    ]  # fmt: skip
    return [t for t in made if t.config.is_base][::3], [t for t in made if not t.config.is_base]


def _priors(task: str, number: int) -> Iterator[tuple[str, Prior]]:
    yield "shipped", left_out(task)
    for kind, earlier in EARLIER.items():
        if task in earlier:
            yield kind, warm_prior(task, kind, number)


def prediction_errors(task: str) -> dict[tuple[str, int], list[float]]:
    """Return the root mean square errors of predicted log errors by (prior, trainings), one per repeat."""
    base, others = trials_of(task)
    worst = max(float(t.error or 0.0) for t in base)
    found: dict[tuple[str, int], list[float]] = {}
    for repeat in range(REPEATS):
        order = np.random.default_rng(repeat).permutation(len(others))
        held_out = [others[i] for i in order[max(TRAININGS) :]]
        target = np.log([min(float(t.error or 0.0), CLIP * worst) for t in held_out])
        for name, prior in _priors(task, repeat):
            for count in TRAININGS:
                fitted = fit_surrogate([*base, *(others[i] for i in order[:count])], prior=prior)
                gaps = fitted.log_errors([t.config for t in held_out])[0] - target
                found.setdefault((name, count), []).append(float(np.sqrt(np.mean(gaps**2))))
    return found


def main() -> None:
    """Print the prediction errors: means over repeats, and the difference from the shipped prior with its error."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", action="append", choices=list(TASKS))
    parser.add_argument("--quick", action="store_true", help="accepted for uniformity: it takes minutes")
    parser.add_argument("--common", type=float, default=warm_start.COMMON, help="the part that tasks share")
    options = parser.parse_args()
    warm_start.COMMON = options.common
    print(f"{'task':14s} {'prior':12s} " + " ".join(f"{f'{n} trainings':>24s}" for n in TRAININGS))
    gains: dict[tuple[str, int], list[float]] = {}
    for task in options.task or TASKS:
        found = prediction_errors(task)
        for name in dict.fromkeys(kind for kind, _ in found):
            cells = []
            for count in TRAININGS:
                errors, shipped = np.array(found[name, count]), np.array(found["shipped", count])
                gains.setdefault((name, count), []).append(float(np.log(errors.mean() / shipped.mean())))
                gap = errors - shipped
                cells.append(f"{errors.mean():.3f} ({gap.mean():+.3f} ± {gap.std(ddof=1) / len(gap) ** 0.5:.3f})")
            print(f"{task:14s} {name:12s} " + " ".join(f"{cell:>24s}" for cell in cells), flush=True)
    for name in dict.fromkeys(kind for kind, _ in gains):
        cells = [f"{np.exp(np.mean(gains[name, count])):.3f}" for count in TRAININGS]
        tasks = len(gains[name, TRAININGS[0]])
        print(f"{f'{tasks} tasks':14s} {name:12s} " + " ".join(f"{f'ratio {cell}':>24s}" for cell in cells))


if __name__ == "__main__":
    main()
