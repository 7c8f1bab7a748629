"""How long the front of many trials takes: dominance, contributions, hypervolume. The goal is one second for 100,000.

python experiments/benchmarks/fronts.py [--trials 100000]
"""

import argparse
import time

import numpy as np

from rst_tune.analysis import pareto


def points_of(trials: int, kind: str) -> np.ndarray:
    """A noisy cloud as a search makes it, or the worst case: every point on the front."""
    rng = np.random.default_rng(0)
    cost = rng.uniform(0, 1, trials)
    error = 4 - np.sqrt(cost) + (rng.gamma(2.0, 0.2, trials) if kind == "cloud" else 0.0)
    return np.column_stack([error, cost])


def seconds(trials: int, kind: str, repeats: int = 5) -> tuple[float, int]:
    """The best of several times of all three together, and the size of the front."""
    points = points_of(trials, kind)
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        members = pareto.front(points)
        pareto.contributions(points, (5.0, 1.1))
        pareto.hypervolume(points, (5.0, 1.1))
        times.append(time.perf_counter() - begin)
    return min(times), int(members.sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=100_000)
    trials = parser.parse_args().trials
    for kind in ("cloud", "all on the front"):
        spent, size = seconds(trials, kind)
        print(f"{trials} trials, {kind}: {size} on the front, {spent:.3f} s")


if __name__ == "__main__":
    main()
