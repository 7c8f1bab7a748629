"""What the search costs beside the training: how fast a worker turns round, and how busy the cores are kept.

    python experiments/benchmarks/overhead.py [--trials 60] [--busy-trials 24] [--seconds 3.5]

Both are read from the record of a real search on a local Ray cluster with reused workers. The first trains one step of
a tiny perceptron, which is no work; the second trains the digits task for `--seconds` a trial. Run it alone.
"""

import argparse
import json
import math
import os
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

from rst_tune.analysis.records import Search
from rst_tune.tuning.plan import measure_pair
from rst_tune.tuning.run import run_search

from rst_tune.training.data import load_dataset
from rst_tune.tuning.experiment import load_experiment

SECONDS_A_TURN = 0.3
BUSY = 0.9
COMMON = ("fidelity.kind=full", "confirm.enabled=false", "tracking.enabled=false")
NO_WORK = (
    "sampler.name=random",
    "task.data={name: digits, train_size: 64}",
    "task.model.name=mlp-tiny",
    "task.recipe.epochs=1",
)


def search(settings: Iterable[str]) -> Search:
    """Run a search of these settings in a directory that is thrown away."""
    with tempfile.TemporaryDirectory() as folder:
        return run_search(load_experiment("digits", [*COMMON, *settings]), Path(folder))


def turns(found: Search) -> list[float]:
    """Return the seconds from one end to the next on the same worker, each worker's first few trials left out."""
    ends: dict[str, list[float]] = defaultdict(list)
    for trial in sorted(found.trials, key=lambda t: t.ended or 0.0):
        ends[trial.worker].append(trial.ended or 0.0)
    return [b - a for times in ends.values() for a, b in pairwise(times[2:])]


def busy_share(found: Search, cores: int) -> float:
    """Return the trials' own seconds over the seconds that the cores had, from the first start to the last end."""
    wall = max(t.ended or 0.0 for t in found.trials) - min(t.started or math.inf for t in found.trials)
    return sum(t.seconds for t in found.trials) / (cores * wall)


def epochs_of(seconds: float) -> int:
    """Return how many epochs of the digits task take so many seconds at the space's mean cost."""
    experiment = load_experiment("digits")
    data = load_dataset(experiment.task.data)
    steps = len(data.train) // experiment.task.recipe.batch_size
    return math.ceil(seconds / (measure_pair(experiment, data) * steps * 1.5))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--busy-trials", type=int, default=24)
    parser.add_argument("--seconds", type=float, default=3.5)
    given = parser.parse_args()
    cores = os.cpu_count() or 1
    between = turns(search([*NO_WORK, f"budget={{trials: {given.trials}}}"]))
    epochs = epochs_of(given.seconds)
    long = search([f"task.recipe.epochs={epochs}", f"budget={{trials: {given.busy_trials}}}"])
    result = {
        "cores": cores,
        "load_average": round(os.getloadavg()[0], 1),
        "turns": len(between),
        "seconds_a_turn": round(statistics.fmean(between), 3),
        "seconds_a_turn_median": round(statistics.median(between), 3),
        "seconds_a_trial": round(statistics.fmean(t.seconds for t in long.trials), 2),
        "busy_share": round(busy_share(long, cores), 3),
    }
    print(json.dumps(result, indent=2))
    return 0 if result["seconds_a_turn"] <= SECONDS_A_TURN and result["busy_share"] >= BUSY else 1


if __name__ == "__main__":
    sys.exit(main())
