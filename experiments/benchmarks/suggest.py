"""What the search itself costs after 10,000 trials: time of a suggestion, of a result, and memory of the driver.

    python experiments/benchmarks/suggest.py [--trials 10000] [--concurrent 64] [--sampler front]

The trials are simulated: they carry histories of the usual size, and 64 at a time are running. Nothing is trained and
Ray is not started; record, study (a journal file) and rungs are the real ones, in a temporary directory. All but the
last few trials are drawn at random, which is quicker and leaves the sampler with as much to look at.
"""

import argparse
import heapq
import json
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import numpy as np
import psutil
from rst_tune.analysis.records import Record, Replay
from rst_tune.tuning.conductor import Conductor

from rst_tune.tuning.experiment import load_experiment
from rst_tune.tuning.study import SearchStudy

SECONDS_A_SUGGESTION = 1.0
GIGABYTES = 2.0
METRICS = 13
LAST = 50


def final_error(config: dict, rng: np.random.Generator) -> float:
    cost, gamma = config["extra_propagation"], config["gamma_rst"]
    return float(3 + 4 * np.exp(-3 * cost) + 2 * abs(gamma - 1) + 0.4 * rng.normal())


def simulate(conductor: Conductor, concurrent: int, rng: np.random.Generator) -> dict[str, list[float]]:
    """Drive the search to its end; return the seconds of every call, by its name."""
    spent: dict[str, list[float]] = defaultdict(list)
    running: list[tuple[float, int, object, int]] = []
    now, count = 0.0, 0

    def timed(name: str, *given: object, **named: object) -> object:
        begun, worked = time.perf_counter(), time.process_time()
        result = getattr(conductor, name)(*given, **named)
        spent[name].append(time.perf_counter() - begun)
        spent[f"{name} cpu"].append(time.process_time() - worked)
        return result

    while True:
        plan = timed("next_plan") if len(running) < concurrent else None
        if plan == "done":
            return spent
        if plan is not None:
            count += 1
            if count % 1000 == 0:
                recent = statistics.fmean(spent["next_plan"][-LAST:])
                print(f"{count:6d} trials, {recent:.3f} s a suggestion, {memory():.2f} GB", file=sys.stderr)
            heapq.heappush(running, (now + (plan.rungs or (plan.epochs,))[0], count, plan, 0))
            continue
        now, number, plan, place = heapq.heappop(running)
        config = dict(plan.config)
        epoch = (*plan.rungs, plan.epochs)[place]
        error = final_error(config, rng) + 20.0 * (1 - epoch / plan.epochs)
        history = {f"metric{i}": rng.normal(size=epoch).tolist() for i in range(METRICS)}
        result = {"error": error, "pairs": float(epoch), "seconds": 1.0, "history": history}
        if epoch == plan.epochs:
            timed("ended", plan.key, "complete", **result)
        elif (decision := timed("report", plan.key, epoch, error)) is not None and decision.stop:
            timed("ended", plan.key, "stopped", **result)
        else:
            further = (*plan.rungs, plan.epochs)[place + 1] - epoch
            heapq.heappush(running, (now + further, number, plan, place + 1))


def memory() -> float:
    return psutil.Process().memory_info().rss / 1e9


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--concurrent", type=int, default=64)
    parser.add_argument("--sampler", default="front")
    given = parser.parse_args()
    startup = max(10, given.trials - given.concurrent - 8 * LAST)
    settings = [f"budget={{trials: {given.trials}}}", "confirm.enabled=false"]
    settings += [f"sampler={{name: {given.sampler}, startup: {startup}}}"]
    experiment = load_experiment("digits", settings)
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        study, record = SearchStudy(experiment, directory), Record(directory)
        conductor = Conductor(experiment, record=record, replay=Replay(directory), study=study, steps_per_epoch=15)
        begun = time.perf_counter()
        spent = simulate(conductor, given.concurrent, np.random.default_rng(0))
        wall = time.perf_counter() - begun
        drawing = [i for i, s in enumerate(spent["next_plan"]) if s > 1e-3][-LAST:]
        result = {
            "trials": given.trials,
            "sampler": given.sampler,
            "concurrent": given.concurrent,
            "seconds": round(wall, 1),
            "seconds_a_suggestion_at_the_end": round(statistics.fmean(spent["next_plan"][i] for i in drawing), 4),
            "of_them_of_the_processor": round(statistics.fmean(spent["next_plan cpu"][i] for i in drawing), 4),
            "seconds_a_report_at_the_end": round(statistics.fmean(spent["report"][-LAST:]), 5),
            "seconds_a_result_at_the_end": round(statistics.fmean(spent["ended"][-LAST:]), 5),
            "memory_gigabytes": round(memory(), 3),
            "record_megabytes": round(record.path.stat().st_size / 1e6, 1),
        }
        record.close()
    print(json.dumps(result, indent=2))
    fast = result["seconds_a_suggestion_at_the_end"] <= SECONDS_A_SUGGESTION
    return 0 if fast and result["memory_gigabytes"] < GIGABYTES else 1


if __name__ == "__main__":
    sys.exit(main())
