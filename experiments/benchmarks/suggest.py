"""What the search itself costs after 10,000 trials: seconds per proposal and per report, and memory of the driver.

    python experiments/benchmarks/suggest.py [--trials 10000] [--concurrent 64] [--sampler front] [--clock cpu]
    python experiments/benchmarks/suggest.py --quick

The trials are simulated: they report as many metrics as real ones, 64 run at a time, and each is judged at its rungs.
Event log, study (a journal file) and rungs are the real ones, in a temporary directory. All but the last few trials
are sampled at random, which is faster and gives the sampler the same number of observations.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from scale import CLOCKS, InstrumentedController, memory_mb

from rst_tune.records import LOG_NAME, EventLog, SearchState
from rst_tune.tuning.backend.protocol import TrialTask
from rst_tune.tuning.backend.simulator import SimulatedTraining, SimulatorBackend
from rst_tune.tuning.controller import SearchController
from rst_tune.tuning.experiment import load_experiment
from rst_tune.tuning.study import SearchStudy

MAX_SECONDS, MAX_GIGABYTES = 1.0, 2.0
METRICS = tuple(f"metric{i}" for i in range(13))
LAST = 50
# A call that takes less than this made no proposal: the budget was handed out, or every slot was taken.
SECONDS_OF_NO_PROPOSAL = 1e-3


class Valley:
    """A workload: the error falls with the cost and is lowest at gamma_rst 1."""

    def train(self, task: TrialTask) -> SimulatedTraining:
        """Return the course of a training."""
        config, noise = task.config, np.random.default_rng(task.seed).normal(size=task.epochs)
        final = 3 + 4 * np.exp(-3 * config.extra_propagation) + 2 * abs(config.gamma_rst - 1)
        epochs = np.arange(1, task.epochs + 1)
        errors = final + 0.4 * noise + 20.0 * (1 - epochs / task.epochs)
        return SimulatedTraining(errors=errors.tolist(), pairs=epochs.astype(float).tolist())

    def test(self, task: TrialTask) -> float:
        """Return a constant: nothing is tested without confirmation."""
        return 5.0 - task.config.extra_propagation


def measure(options: argparse.Namespace, directory: Path) -> dict[str, Any]:
    """Run a search to its end and return the cost of its last decisions."""
    startup = max(10, options.trials - options.concurrent - 8 * LAST)
    experiment = load_experiment(
        "digits",
        [
            f"budget={{trials: {options.trials}}}",
            "confirm.enabled=false",
            f"sampler={{name: {options.sampler}, n_startup_trials: {startup}}}",
        ],
    )
    backend = SimulatorBackend(Valley(), workers=options.concurrent, timer=CLOCKS[options.clock])
    log = EventLog(directory)
    search = SearchController(
        experiment, log=log, state=SearchState(directory), study=SearchStudy(experiment, directory), steps_per_epoch=15
    )
    begun, shown = time.perf_counter(), 0

    def show() -> None:
        nonlocal shown
        if backend.tasks >= shown + 1000:
            shown = backend.tasks
            recent = statistics.fmean(backend.decision_seconds["next_task"][-LAST:])
            print(f"{shown:6d} trials, {recent:.3f} s per proposal, {memory_mb():.0f} MB", file=sys.stderr)

    backend.run_trials(InstrumentedController(search, METRICS), show)
    log.close()
    spent = backend.decision_seconds
    proposals = [seconds for seconds in spent["next_task"] if seconds > SECONDS_OF_NO_PROPOSAL]
    return {
        "trials": options.trials,
        "sampler": options.sampler,
        "concurrent": options.concurrent,
        "clock": options.clock,
        "seconds": round(time.perf_counter() - begun, 1),
        "seconds_per_proposal_at_the_end": round(statistics.fmean(proposals[-LAST:]), 4),
        "seconds_per_report_at_the_end": round(statistics.fmean(spent["on_report"][-LAST:]), 5),
        "memory_gigabytes": round(memory_mb() / 1e3, 3),
        "log_megabytes": round((directory / LOG_NAME).stat().st_size / 1e6, 1),
    }


def main() -> int:
    """Measure; 1 where a proposal or the memory is above its limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--concurrent", type=int, default=64)
    parser.add_argument("--sampler", default="front")
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--quick", action="store_true", help="60 trials, 8 at a time; no verdict")
    options = parser.parse_args()
    if options.quick:
        options.trials, options.concurrent = 60, 8
    with tempfile.TemporaryDirectory() as folder:
        result = measure(options, Path(folder))
    print(json.dumps(result, indent=2))
    fast = result["seconds_per_proposal_at_the_end"] <= MAX_SECONDS
    return 0 if options.quick or (fast and result["memory_gigabytes"] < MAX_GIGABYTES) else 1


if __name__ == "__main__":
    sys.exit(main())
