"""What a proposal of the sampler alone takes after 35, 200, 2,000 and 10,000 trials (`suggest.py`: a whole search).

    python experiments/benchmarks/propose.py [--trials 35 200 2000 10000] [--pending 2] [--space compute]

The trials are random samples of the space with made-up errors; nothing is trained and Ray is not started. Timed is what
happens between a result and the next task: the sampler observes it and proposes, with `--pending` trials running. A
suggestion that fits the kernel again is rarer the more trials there are, so it is timed apart.
"""

import argparse
import json
import os
import statistics
import sys
import time

import numpy as np
import psutil

from rst_tune.records import Role, Status, Trial, config_id
from rst_tune.tuning.experiment import load_space
from rst_tune.tuning.sampler import FrontSampler, RandomSuggester, _last_fit
from rst_tune.tuning.space import Space, TaskScale, trial_config

# Seconds per suggestion that are allowed after so many trials.
LIMITS = {35: 0.020, 200: 0.060, 2_000: 0.3, 10_000: 1.0}
GIGABYTES = 2.0
REPEATS = 15
SCALE = TaskScale(epochs=20, steps_per_epoch=15, rho=0.2, batch_size=64, exact=False)


def make_trial(space: Space, number: int, rng: np.random.Generator) -> Trial:
    """Return a finished trial of a random configuration: cost and length help, SAM's strength is best."""
    params = space.sample(RandomSuggester(rng))
    config = trial_config(params, SCALE)
    strength = config.gamma_rst * config.rho / SCALE.rho
    error = 3 + 4 * np.exp(-3 * config.extra_propagation) + np.log(strength) ** 2 - np.log2(config.horizon)
    return Trial(
        key=str(number), number=number, role=Role.SEARCH, config_id=config_id(params), config=config, seed=number,
        epochs=round(20 * config.horizon), full_horizon=True, sampled_at=float(number), ended_at=float(number),
        status=Status.COMPLETE, error=float(max(error + 0.3 * rng.normal(), 0.5)),
    )  # fmt: skip


def measure(space: Space, count: int, pending: int) -> dict[str, float]:
    """Return seconds and processor seconds of a suggestion after `count` trials, and of one that fits the kernel."""
    rng = np.random.default_rng(0)
    sampler = FrontSampler(space.sample, SCALE, n_startup_trials=6)
    for number in range(count):
        sampler.observe(make_trial(space, number, rng))
    running = [make_trial(space, count + i, rng) for i in range(pending)]
    sampler.prepare(running, (12.0, 4.3), 0)
    sampler.propose()
    usual, fits, worked = [], [], []
    for number in range(count, count + REPEATS):
        fit = _last_fit(number + 1) != _last_fit(number)
        trial = make_trial(space, number, rng)
        begun, cpu = time.perf_counter(), time.process_time()
        sampler.observe(trial)
        sampler.prepare(running, (12.0, 4.3), number)
        sampler.propose()
        (fits if fit else usual).append(time.perf_counter() - begun)
        worked.append(time.process_time() - cpu)
    if not fits:
        sampler._kernel_params = (0, None)
        begun = time.perf_counter()
        sampler.propose()
        fits.append(time.perf_counter() - begun)
    return {
        "trials": count,
        "seconds": round(statistics.median(usual), 4),
        "processor_seconds": round(statistics.median(worked), 4),
        "seconds_with_a_fit": round(statistics.median(fits), 4),
    }


def main() -> int:
    """Print one row per number of trials; fail where a suggestion takes too long."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, nargs="+", default=list(LIMITS))
    parser.add_argument("--pending", type=int, default=2)
    parser.add_argument("--space", default="compute")
    given = parser.parse_args()
    space = load_space(given.space)
    assert isinstance(space, Space)
    rows = [measure(space, count, given.pending) for count in given.trials]
    memory = psutil.Process().memory_info().rss / 1e9
    print(json.dumps({"load": os.getloadavg()[0], "memory_gigabytes": round(memory, 3), "rows": rows}, indent=2))
    fast = all(row["seconds"] <= LIMITS.get(int(row["trials"]), 1.0) for row in rows)
    return 0 if fast and memory < GIGABYTES else 1


if __name__ == "__main__":
    sys.exit(main())
