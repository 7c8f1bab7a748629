"""What the search costs beside the training: seconds between two trials of a worker, and how busy the cores are.

    python experiments/benchmarks/overhead.py [--trials 60] [--busy-trials 24] [--seconds 3.5]
    python experiments/benchmarks/overhead.py --quick

Both are computed from the event log of a real search on a local Ray cluster with reused workers. The first trains one
step of a tiny perceptron, which is next to no work; the second trains the digits task for `--seconds` per trial. It
needs an idle machine.
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

from rst_tune.records import Search
from rst_tune.tuning.estimate import measure_pair
from rst_tune.tuning.experiment import load_experiment
from rst_tune.tuning.search import run_search

MAX_SECONDS_BETWEEN_TRIALS = 0.3
MIN_BUSY = 0.9
# One length, so that every trial takes as long as asked for.
COMMON = ("space=grst", "fidelity.kind=full", "confirm.enabled=false", "tracking.enabled=false")
NO_WORK = (
    "sampler.name=random",
    "task.data={name: digits, train_size: 64}",
    "task.model.name=mlp-tiny",
    "task.recipe.epochs=1",
)


def search(settings: Iterable[str]) -> Search:
    """Run a search with these settings in a temporary directory."""
    with tempfile.TemporaryDirectory() as folder:
        return run_search(load_experiment("digits", [*COMMON, *settings]), Path(folder))


def seconds_between_trials(found: Search) -> list[float]:
    """Return the seconds from one end to the next on the same worker, without each worker's first two trials."""
    ends: dict[str, list[float]] = defaultdict(list)
    for trial in sorted(found.trials, key=lambda t: t.ended_at or 0.0):
        ends[trial.worker].append(trial.ended_at or 0.0)
    return [b - a for times in ends.values() for a, b in pairwise(times[2:])]


def busy_share(found: Search, cores: int) -> float:
    """Return the seconds of training over cores times wall time, from the first start to the last end."""
    wall = max(t.ended_at or 0.0 for t in found.trials) - min(t.started_at or math.inf for t in found.trials)
    return sum(t.seconds for t in found.trials) / (cores * wall)


def epochs_in(seconds: float) -> int:
    """Return how many epochs of the digits task take this many seconds at the space's mean cost."""
    experiment = load_experiment("digits")
    workload = experiment.workload()
    return math.ceil(seconds / (measure_pair(experiment, workload) * workload.steps_per_epoch * 1.5))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--busy-trials", type=int, default=24)
    parser.add_argument("--seconds", type=float, default=3.5)
    parser.add_argument("--quick", action="store_true", help="8 trials each, half a second per trial; no verdict")
    given = parser.parse_args()
    if given.quick:
        given.trials, given.busy_trials, given.seconds = 8, 8, 0.5
    cores = os.cpu_count() or 1
    between = seconds_between_trials(search([*NO_WORK, f"budget={{trials: {given.trials}}}"]))
    epochs = epochs_in(given.seconds)
    long = search([f"task.recipe.epochs={epochs}", f"budget={{trials: {given.busy_trials}}}"])
    result = {
        "cores": cores,
        "load_average": round(os.getloadavg()[0], 1),
        "intervals": len(between),
        "seconds_between_trials": round(statistics.fmean(between), 3),
        "seconds_between_trials_median": round(statistics.median(between), 3),
        "seconds_per_trial": round(statistics.fmean(t.seconds for t in long.trials), 2),
        "busy_share": round(busy_share(long, cores), 3),
    }
    print(json.dumps(result, indent=2))
    fast = result["seconds_between_trials"] <= MAX_SECONDS_BETWEEN_TRIALS
    return 0 if given.quick or (fast and result["busy_share"] >= MIN_BUSY) else 1


if __name__ == "__main__":
    sys.exit(main())
