"""Earlier searches for a judged task of the suite, and the prior that a search started `--from` them has.

Which tasks are alike was decided by their descriptions, before anything was measured: the same data and optimizer, or
the same optimizer and wrong labels. The earlier searches are ours, with 40 plain trainings each, in worlds that no
other search is run in; each world of a judged task has one of four sets of them. What is not learnt from them is
measured with the judged task left out; what they trained was chosen with the prior of all tasks but their own.
"""

import threading
from functools import cache, partial
from typing import Any

import methods
from bank import Bank
from prior import left_out
from tasks import TASKS

from rst_tune.analysis import pareto
from rst_tune.analysis.analysis import Analysis
from rst_tune.analysis.warm_start import learn_prior
from rst_tune.records import Prior
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
    "alike": ALIKE, "unlike": UNLIKE, "all others": {n: tuple(o for o in TASKS if o != n) for n in TASKS},
}  # fmt: skip
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
    return learn_prior(earlier, left_out(task))


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
