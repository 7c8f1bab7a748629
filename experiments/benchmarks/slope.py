"""Figure 2B of the paper on this machine: extra wall time over SGD against the extra propagation.

    python experiments/benchmarks/slope.py [--steps 160] [--model cnn-tiny] [--width 16]
    python experiments/benchmarks/slope.py --quick

For p = 0, 0.1 ... 1 a run takes one step in turn, on random images of CIFAR's shape, so that other load of the machine
affects all of them alike. Of each run the median times of the steps with and without a second pass are weighted by p:
this expected time per step over that of p = 0, less 1, is the extra time. A step includes data, both passes, ascent,
restore and base step, but no evaluation. `--clock cpu` counts the processor's time, for a machine with other load.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch

from rst_tune.training.data import Dataset, Split
from rst_tune.training.loop import Run
from rst_tune.training.task import Method, Task

CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}
POINTS = [round(0.1 * each, 1) for each in range(11)]
TOLERANCE = 0.05
WARM_UP = 5


def random_data(count: int = 2048) -> Dataset:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (count, 3, 32, 32), dtype=torch.uint8, generator=generator)
    split = Split(images, torch.randint(0, 10, (count,), generator=generator))
    constants = {"mean": (0.5,) * 3, "std": (0.25,) * 3}
    return Dataset(
        train=split, validation=split, test=split, classes=10, shape=(3, 32, 32), noisy_labels=0, **constants
    )


def make_run(p: float, data: Dataset, arguments: argparse.Namespace) -> Run:
    options = {"width": arguments.width} if arguments.model == "cnn-tiny" else {}
    epochs = -(-(WARM_UP + arguments.steps) // (len(data.train) // arguments.batch_size))
    task = Task.model_validate(
        {
            "data": {"augment": ["flip", "crop"]},
            "model": {"name": arguments.model, "options": options},
            "recipe": {"base": "cifar-cnn", "batch_size": arguments.batch_size, "epochs": epochs},
        }
    )
    return Run(task, Method(schedule={"family": "constant", "p": p}), data=data, device=arguments.device)


def timed_step(run: Run, clock: Callable[[], float]) -> tuple[bool, float]:
    """Take one step; return whether it had a second pass, and its seconds."""
    before, start = run.pairs, clock()
    if not run.steps(1):
        run.epoch()
        return timed_step(run, clock)
    if run.device.type == "cuda":
        torch.cuda.synchronize()
    return run.pairs - before > 1, clock() - start


def measure(runs: dict[float, Run], steps: int, clock: Callable[[], float]) -> dict[float, float]:
    """Return the expected seconds per step for each p: the medians of both kinds of step, weighted by p."""
    taken: dict[float, dict[bool, list[float]]] = {p: {False: [], True: []} for p in runs}
    for number in range(WARM_UP + steps):
        for p in np.roll(list(runs), number):
            second, seconds = timed_step(runs[p], clock)
            if number >= WARM_UP:
                taken[p][second].append(seconds)
    shares = {p: {True: p, False: 1 - p} for p in runs}
    return {
        p: sum(shares[p][kind] * statistics.median(own[kind]) for kind in own if own[kind]) for p, own in taken.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=160, help="per run")
    parser.add_argument("--model", default="cnn-tiny")
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true", help="10 steps per run")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.steps = 10
    torch.set_num_threads(1)
    data = random_data()
    runs = {p: make_run(p, data, arguments) for p in POINTS}
    seconds = measure(runs, arguments.steps, CLOCKS[arguments.clock])
    extra = {p: each / seconds[0.0] - 1 for p, each in seconds.items()}
    rows = [{"p": p, "extra_time": each, "deviation": each - p} for p, each in extra.items()]
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
