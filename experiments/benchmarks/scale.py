"""Can one driver feed many GPUs? The real conductor, record and study, against simulated workers and a simulated clock.

512 logical GPUs train 20,000 trials with epochs of 60 s. Every decision of the driver is made for real and timed; in
simulated time a GPU waits in the driver's queue until its decision is made. Ray's own handling of a report is added
as a constant (`--ray-ms`, measured separately). Printed: the share of time that the GPUs are busy, and the time a
decision and the memory against the number of trials.

    python experiments/benchmarks/scale.py                        # the whole claim
    python experiments/benchmarks/scale.py --trials 1000 --profile   # where the time goes
    python experiments/benchmarks/scale.py --clock cpu            # on a machine that is busy with other things
"""

import argparse
import cProfile
import heapq
import json
import math
import pstats
import random
import statistics
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from rst_tune.analysis.records import Record, Replay
from rst_tune.tuning.conductor import Conductor, Plan

from rst_tune.tuning.experiment import Experiment, load_space
from rst_tune.tuning.study import SearchStudy

STEPS_PER_EPOCH = 390
TARGET = 0.95


def experiment(options: argparse.Namespace) -> Experiment:
    return Experiment.model_validate(
        {
            "name": "scale",
            "task": {"recipe": {"base": "cifar-cnn", "epochs": options.epochs}},
            "space": load_space("grst").model_dump(),
            "budget": {"trials": options.trials},
            "sampler": {"name": options.sampler},
            "confirm": {"enabled": False},
        }
    )


def error_at(plan: Plan, epoch: int) -> float:
    """Return a believable learning curve: falls with the epochs and the cost, noisier early."""
    cost, left = plan.config["extra_propagation"], math.exp(-3 * epoch / plan.epochs)
    noise = random.Random(f"{plan.key} {epoch}").gauss(0, 0.1 + left)
    return max(0.5, 5 - 1.2 * cost**0.5 + 30 * left + noise)


@dataclass
class Driver:
    """The one process that decides. In simulated time it is busy for as long as each decision really took."""

    clock: Callable[[], float]
    ray_seconds: float
    free_at: float = 0.0
    seconds: dict[str, list[float]] = field(default_factory=dict)

    def decide(self, now: float, name: str, work: Callable[[], Any]) -> tuple[float, Any]:
        begun = self.clock()
        answer = work()
        took = self.clock() - begun
        self.seconds.setdefault(name, []).append(took)
        self.free_at = max(now, self.free_at) + took
        return self.free_at, answer


class Simulation:
    """Logical GPUs that train what the conductor hands out."""

    def __init__(self, conductor: Conductor, driver: Driver, options: argparse.Namespace) -> None:
        self.conductor, self.driver, self.options = conductor, driver, options
        self.events: list[tuple[float, int]] = [(0.0, gpu) for gpu in range(options.gpus)]
        self.work: dict[int, tuple[Plan, int]] = {}
        self.idle: deque[int] = deque()
        self.busy = [0.0] * options.gpus
        self.drawn, self.now = 0, 0.0
        self.steady: tuple[float, list[float]] | None = None

    def step(self) -> bool:
        """Take the next event; False when there is none, or when the steady state is over."""
        if not self.events or self.steady is not None:
            return False
        self.now, gpu = heapq.heappop(self.events)
        if gpu not in self.work:
            self._take(self.now, gpu)
        else:
            self._reported(gpu)
        return True

    def _take(self, now: float, gpu: int) -> None:
        at, plan = self.driver.decide(now, "next_plan", self.conductor.next_plan)
        if not isinstance(plan, Plan):  # the budget is handed out: what follows is only the last trainings ending
            self.steady = (now, list(self.busy))
            return
        at, _ = self.driver.decide(at, "started", lambda: self.conductor.started(plan.key, node="n", worker="1"))
        self.drawn += 1
        self._train(at, gpu, plan, 1)

    def _train(self, at: float, gpu: int, plan: Plan, epoch: int) -> None:
        spread = random.Random(f"{plan.key} {epoch} s").uniform(0.95, 1.05)
        seconds = self.options.epoch_seconds * spread * (1 + plan.config["extra_propagation"]) / 1.5
        self.work[gpu] = (plan, epoch)
        self.busy[gpu] += seconds
        heapq.heappush(self.events, (at + seconds, gpu))

    def _reported(self, gpu: int) -> None:
        plan, epoch = self.work[gpu]
        error = error_at(plan, epoch)
        self.driver.free_at = max(self.now, self.driver.free_at) + self.driver.ray_seconds
        at, decision = self.driver.decide(self.now, "report", lambda: self.conductor.report(plan.key, epoch, error))
        stopped = decision is not None and decision.stop
        if epoch < plan.epochs and not stopped:
            self._train(at, gpu, plan, epoch + 1)
            return
        del self.work[gpu]
        status = "stopped" if stopped else "complete"
        result = {"error": error, "pairs": float(epoch * STEPS_PER_EPOCH), "history": history(plan, epoch)}
        at, _ = self.driver.decide(at, "ended", lambda: self.conductor.ended(plan.key, status, **result))
        self._take(at, gpu)


def history(plan: Plan, epochs: int) -> dict[str, list[float]]:
    """Return as many numbers as a real training leaves in the record."""
    names = ("train_loss", "validation_error", "validation_loss", "pairs", "seconds", "seconds_pass1", "seconds_pass2")
    return {name: [error_at(plan, epoch) for epoch in range(1, epochs + 1)] for name in names}


def fsync_milliseconds(folder: Path) -> float:
    """Return what one durable line costs on this disk."""
    record = Record(folder / "fsync")
    begun = time.perf_counter()
    for _ in range(200):
        record.append("phase", name="search", text="x" * 500)
    record.close()
    return (time.perf_counter() - begun) / 200 * 1e3


def row(simulation: Simulation, since: dict[str, int], before: tuple[float, float]) -> str:
    """Return one line: trials so far, milliseconds a decision (median, 95th percentile), memory, busy share."""
    cells = [f"{simulation.drawn:>7,}"]
    for name in ("next_plan", "report", "ended"):
        values = simulation.driver.seconds.get(name, [])[since.get(name, 0) :]
        high = statistics.quantiles(values, n=20)[-1] if len(values) > 1 else math.nan
        cells.append(f"{statistics.median(values) * 1e3:>8.2f} {high * 1e3:>8.2f}")
    memory = psutil.Process().memory_info().rss / 1e6
    passed, busy = simulation.now - before[0], sum(simulation.busy) - before[1]
    return "  ".join([*cells, f"{memory:>8.0f}", f"{100 * busy / (passed * simulation.options.gpus):>7.1f} %"])


def run(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    chosen = experiment(options)
    record = Record(folder)
    study = SearchStudy(chosen, folder)
    conductor = Conductor(chosen, record=record, replay=Replay(folder), study=study, steps_per_epoch=STEPS_PER_EPOCH)
    clock = time.process_time if options.clock == "cpu" else time.perf_counter
    simulation = Simulation(conductor, Driver(clock, options.ray_ms / 1e3), options)
    marks = deque(sorted({*(n for n in (1000, 2000, 5000, 10_000, 15_000) if n < options.trials), options.trials}))
    print("  trials   next_plan p50, p95 ms     report p50, p95 ms      ended p50, p95 ms        MB      busy")
    since: dict[str, int] = {}
    before = (0.0, 0.0)
    deadline = time.monotonic() + options.minutes * 60
    while simulation.step() and time.monotonic() < deadline:
        if simulation.drawn >= marks[0] and len(simulation.driver.seconds.get("ended", [])) > 1:
            print(row(simulation, since, before), flush=True)
            since = {name: len(values) for name, values in simulation.driver.seconds.items()}
            before = (simulation.now, sum(simulation.busy))
            marks.popleft()
            if not marks:
                break
    return summary(simulation, options, folder)


def summary(simulation: Simulation, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    # What was begun is counted in `busy` as a whole: take away what lies after the present.
    for at, gpu in simulation.events:
        simulation.busy[gpu] -= max(0.0, at - simulation.now)
    share = [seconds / simulation.now for seconds in simulation.busy]
    decisions = {name: statistics.fmean(v) * 1e3 for name, v in simulation.driver.seconds.items()}
    return {
        "gpus": options.gpus,
        "trials": simulation.drawn,
        "simulated_hours": simulation.now / 3600,
        "busy_mean": statistics.fmean(share),
        "busy_least": min(share),
        "mean_ms": decisions,
        "driver_busy": sum(map(sum, simulation.driver.seconds.values())) / simulation.now,
        "memory_mb": psutil.Process().memory_info().rss / 1e6,
        "record_mb": (folder / "record.jsonl").stat().st_size / 1e6,
        "fsync_ms_a_line": fsync_milliseconds(folder),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, default=512)
    parser.add_argument("--trials", type=int, default=20_000)
    parser.add_argument("--epochs", type=int, default=27)
    parser.add_argument("--epoch-seconds", type=float, default=60.0)
    parser.add_argument("--sampler", default="front")
    parser.add_argument("--ray-ms", type=float, default=2.2, help="Ray's own time for a report")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--minutes", type=float, default=60.0, help="give up after that much real time")
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    profile = cProfile.Profile()
    with tempfile.TemporaryDirectory() as folder:
        if options.profile:
            profile.enable()
        result = run(options, Path(folder))
        profile.disable()
    print(json.dumps(result, indent=2))
    if options.profile:
        pstats.Stats(profile).sort_stats("cumulative").print_stats(35)
    return 0 if result["busy_mean"] >= TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
