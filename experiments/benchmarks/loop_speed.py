"""What the loop costs: images per second at p = 0 against a bare torch loop over the same tensors, same model.

    python experiments/benchmarks/loop_speed.py [--rounds 15]
    python experiments/benchmarks/loop_speed.py --quick

The bare loop is hand-written: permute, index the uint8 tensors, normalize, forward, backward, SGD, cosine. Both take
turns, one epoch each, in one process; the ratio is the median over the rounds. The goal is at least 0.97. `--clock cpu`
counts the processor's time instead of the wall's, for a machine with other load.
"""

import argparse
import json
import statistics
from collections.abc import Callable

import torch
from slope import CLOCKS, random_data
from torch.nn.functional import cross_entropy

from rst_tune.training.data import Dataset, load_dataset
from rst_tune.training.loop import Run
from rst_tune.training.models import build_model
from rst_tune.training.task import Method, Task

GOAL = 0.97


class BareLoop:
    """The hand-written loop."""

    def __init__(self, task: Task, data: Dataset, epochs: int) -> None:
        self.data, self.batch_size = data, task.recipe.batch_size
        self.model = build_model(task.model.name, data.classes, data.shape, task.model.options).train()
        recipe = task.recipe
        self.optimizer = torch.optim.SGD(
            self.model.parameters(), lr=recipe.lr, momentum=recipe.momentum, weight_decay=recipe.weight_decay
        )
        steps = epochs * (len(data.train) // self.batch_size)
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, steps)
        self.mean = 255 * torch.tensor(data.mean)[:, None, None]
        self.std = 255 * torch.tensor(data.std)[:, None, None]

    def epoch(self) -> None:
        order = torch.randperm(len(self.data.train))
        for step in range(len(order) // self.batch_size):
            indices = order[step * self.batch_size : (step + 1) * self.batch_size]
            images = (self.data.train.images[indices].float() - self.mean) / self.std
            loss = cross_entropy(self.model(images), self.data.train.labels[indices])
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.scheduler.step()


def seconds(work: Callable[[], object], clock: Callable[[], float]) -> float:
    start = clock()
    work()
    return clock() - start


def compare(task: Task, data: Dataset, rounds: int, clock: Callable[[], float]) -> float:
    """Return the speed of our loop in units of the bare one's: the median over the rounds, after one to warm up."""
    epochs = rounds + 1
    ours = Run(task, Method(schedule={"family": "constant", "p": 0.0}), data=data, epochs=epochs, device="cpu")
    bare = BareLoop(task, data, epochs)
    ratios = []
    for number in range(epochs):
        parts = {"bare": bare.epoch, "ours": lambda: ours.steps(ours.steps_per_epoch)}
        names = ("bare", "ours") if number % 2 else ("ours", "bare")
        taken = {name: seconds(parts[name], clock) for name in names}
        ours.epoch()
        ratios.append(taken["bare"] / taken["ours"])
    return statistics.median(ratios[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true", help="2 rounds")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.rounds = 2
    torch.set_num_threads(1)
    clock = CLOCKS[arguments.clock]
    embedded = Task()
    wide = Task.model_validate({"model": {"name": "cnn-tiny", "options": {"width": 64}}})
    results = {
        "digits, cnn-tiny": compare(embedded, load_dataset(embedded.data), arguments.rounds, clock),
        "3x32x32, cnn-tiny of width 64": compare(wide, random_data(640), arguments.rounds, clock),
    }
    if arguments.json:
        print(json.dumps(results))
        return
    for name, ratio in results.items():
        print(f"{name:32}{ratio:6.3f} of the bare loop ({'at least' if ratio >= GOAL else 'BELOW'} {GOAL})")


if __name__ == "__main__":
    main()
