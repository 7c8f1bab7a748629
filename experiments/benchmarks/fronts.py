"""Seconds for the front of many trials: dominance, contributions, hypervolume. The goal is one second for 100,000.

python experiments/benchmarks/fronts.py [--trials 100000]
python experiments/benchmarks/fronts.py --quick
"""

import argparse
import time

import numpy as np

from rst_tune.analysis import pareto


def make_points(trials: int, kind: str) -> np.ndarray:
    """Return a noisy cloud as a search makes it, or the worst case: every point on the front."""
    rng = np.random.default_rng(0)
    cost = rng.uniform(0, 1, trials)
    error = 4 - np.sqrt(cost) + (rng.gamma(2.0, 0.2, trials) if kind == "cloud" else 0.0)
    return np.column_stack([error, cost])


def seconds(trials: int, kind: str, repeats: int = 5) -> tuple[float, int]:
    """Return the shortest of several times of all three together, and the size of the front."""
    points = make_points(trials, kind)
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        members = pareto.nondominated(points)
        pareto.contributions(points, (5.0, 1.1))
        pareto.hypervolume(points, (5.0, 1.1))
        times.append(time.perf_counter() - begin)
    return min(times), int(members.sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=100_000)
    parser.add_argument("--quick", action="store_true", help="1,000 trials")
    options = parser.parse_args()
    trials = 1000 if options.quick else options.trials
    for kind in ("cloud", "all on the front"):
        spent, size = seconds(trials, kind)
        print(f"{trials} trials, {kind}: {size} on the front, {spent:.3f} s")


if __name__ == "__main__":
    main()
