"""Figure 2B of the paper on this machine: extra wall time over SGD against the extra propagation.

    python experiments/benchmarks/slope.py [--rounds 9] [--steps 20] [--model cnn-tiny] [--width 64]

For p = 0, 0.1 ... 1 a run takes a few steps in turn, round after round, on random images of CIFAR's shape. In each
round the time of a run is compared with that of p = 0 in the same round, and with the second passes that really
happened. A point is p plus the median over the rounds of (extra time - extra propagation). The wall clock measures
whole steps: data, both passes, ascent, restore, base step; evaluation is no part of it. `--clock cpu` counts the
processor's time instead: the same on an idle machine with one thread, and the one to use on a busy machine.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch

from rst_tune.training.data import Dataset, Part
from rst_tune.training.loop import Run
from rst_tune.training.task import Method, Task

CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}
POINTS = [round(0.1 * each, 1) for each in range(11)]
TOLERANCE = 0.05


def random_data(count: int = 2048) -> Dataset:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (count, 3, 32, 32), dtype=torch.uint8, generator=generator)
    part = Part(images, torch.randint(0, 10, (count,), generator=generator))
    constants = {"mean": (0.5,) * 3, "std": (0.25,) * 3}
    return Dataset(train=part, validation=part, test=part, classes=10, shape=(3, 32, 32), noisy_labels=0, **constants)


def make_run(p: float, data: Dataset, arguments: argparse.Namespace) -> Run:
    options = {"width": arguments.width} if arguments.model == "cnn-tiny" else {}
    steps = (arguments.rounds + 1) * arguments.steps
    epochs = -(-steps // (len(data.train) // arguments.batch_size))
    task = Task.model_validate(
        {
            "data": {"augment": ["flip", "crop"]},
            "model": {"name": arguments.model, "options": options},
            "recipe": {"base": "cifar-cnn", "batch_size": arguments.batch_size, "epochs": epochs},
        }
    )
    return Run(task, Method(schedule={"family": "constant", "p": p}), data=data, device=arguments.device)


def timed_steps(run: Run, count: int, clock: Callable[[], float]) -> tuple[float, float]:
    """Return the seconds of `count` steps and the extra propagation that happened in them."""
    before, seconds, done = run.pairs, 0.0, 0
    while done < count:
        start = clock()
        took = run.steps(count - done)
        if run.device.type == "cuda":
            torch.cuda.synchronize()
        seconds += clock() - start
        done += took
        if took == 0:
            run.epoch()
    return seconds, (run.pairs - before) / count - 1


def measure(runs: dict[float, Run], rounds: int, steps: int, clock: Callable[[], float]) -> dict[float, list[float]]:
    """Return, for each p, (extra time - extra propagation) of every round."""
    for run in runs.values():
        timed_steps(run, steps, clock)
    deviations: dict[float, list[float]] = {p: [] for p in runs}
    for number in range(rounds):
        order = np.roll(list(runs), number)
        taken = {p: timed_steps(runs[p], steps, clock) for p in order}
        base = taken[0.0][0]
        for p, (seconds, extra) in taken.items():
            deviations[p].append(seconds / base - 1 - extra)
    return deviations


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--model", default="cnn-tiny")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    data = random_data()
    runs = {p: make_run(p, data, arguments) for p in POINTS}
    deviations = measure(runs, arguments.rounds, arguments.steps, CLOCKS[arguments.clock])
    rows = [
        {"p": p, "extra_time": p + statistics.median(each), "deviation": statistics.median(each)}
        for p, each in deviations.items()
    ]
    if arguments.json:
        print(json.dumps(rows))
        return
    print(f"{'extra propagation':>18}{f'extra {arguments.clock} time':>17}{'off the line':>14}")
    for row in rows:
        print(f"{row['p']:>18.1f}{row['extra_time']:>17.3f}{row['deviation']:>+14.3f}")
    worst = max(rows, key=lambda row: abs(row["deviation"]))
    inside = abs(worst["deviation"]) <= TOLERANCE
    print(
        f"worst point {worst['deviation']:+.3f} at p = {worst['p']}: {'within' if inside else 'NOT within'} {TOLERANCE}"
    )


if __name__ == "__main__":
    main()
