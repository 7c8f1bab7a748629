"""The cost of the protocol: a training function run by a worker, against the same loop without a search.

    python experiments/benchmarks/protocol_overhead.py [rounds | --quick]

Both train the same model with the same RST for about three seconds, one after the other in turns, on one thread. The
worker saves a checkpoint at the end of each slice of 10 s and at a rung, as in a search. The aim: at most 2 %. On a
busy machine read the time of the processor: the clock counts what others take.
"""

import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from statistics import median

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from rst_tune import RST, schedules
from rst_tune.records import TrialConfig
from rst_tune.training.function import FunctionTask
from rst_tune.tuning.backend.protocol import TaskKind, TrialTask
from rst_tune.tuning.backend.runner import TrialContext, TrialRunner

EPOCHS, STEPS, SEED, SECONDS = 12, 20, 0, 3.0
CONFIG = TrialConfig(
    family="constant",
    schedule={"family": "constant", "p": 0.5},
    extra_propagation=0.5,
    gamma_gnr=1.0,
    gamma_rst=0.5,
    rho=0.05,
)


def setting(width: int) -> tuple[nn.Module, torch.optim.Optimizer, torch.Tensor, torch.Tensor]:
    x, y = torch.randn(STEPS * 32, 64), torch.randint(0, 10, (STEPS * 32,))
    model = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3), x, y


def epoch(model: nn.Module, opt: RST, x: torch.Tensor, y: torch.Tensor) -> float:
    for part in torch.randperm(len(x)).chunk(STEPS):
        opt.step(lambda part=part: cross_entropy(model(x[part]), y[part]))
    with torch.no_grad():
        return float((model(x).argmax(1) != y).float().mean())


def plain(width: int) -> float:
    """Return the last error of the loop without a search."""
    torch.manual_seed(SEED)
    model, base, x, y = setting(width)
    opt = RST(base, model, schedule=schedules.constant(0.5), total_steps=EPOCHS * STEPS, rho=0.05, seed=SEED)
    return [epoch(model, opt, x, y) for _ in range(EPOCHS)][-1]


def searched(trial, width: int) -> None:
    model, base, x, y = setting(width)
    opt = trial.optimizer(base, model, steps_per_epoch=STEPS)
    for _ in trial.epochs():
        trial.report(epoch(model, opt, x, y))


def by_worker(context: TrialContext, number: int) -> float:
    """Return the last error of the function, run by a worker until its end."""
    task = TrialTask(
        kind=TaskKind.TRAIN, key=f"trial-{number}", config=CONFIG, seed=SEED, epochs=EPOCHS, rungs=(EPOCHS // 3,)
    )
    runner = TrialRunner(task, context)
    while (report := runner.advance()).status == "running":
        pass
    assert report.error is not None, report.reason
    return report.error


def timed(work) -> tuple[float, float, float]:
    """Return seconds of the clock, seconds of the processor, and the result."""
    wall, busy = time.perf_counter(), time.process_time()
    result = work()
    return time.perf_counter() - wall, time.process_time() - busy, result


def width_of(seconds: float) -> int:
    """Return the width of a model whose training takes about so long here."""
    widths = (128, 256, 384, 512, 768, 1024, 1536)
    return next((width for width in widths if timed(partial(plain, width))[1] > seconds), widths[-1])


def main(rounds: int = 7) -> None:
    torch.set_num_threads(1)
    width = width_of(SECONDS)
    task = FunctionTask.of(searched, epochs=EPOCHS, steps_per_epoch=STEPS, options={"width": width})
    with tempfile.TemporaryDirectory() as folder:
        context = TrialContext(workload=task.workload(), directory=Path(folder), device="cpu")
        turns = [_turn(context, width, number) for number in range(rounds)]
    print(f"{rounds} rounds, width {width}: the same result to the last bit")
    for i, name in enumerate(("clock", "processor")):
        seconds, ratios = zip(*(turn[i] for turn in turns), strict=True)
        each = ", ".join(f"{100 * (ratio - 1):+.1f}" for ratio in ratios)
        print(f"{name}: {median(seconds):.2f} s by a worker, overhead {100 * (median(ratios) - 1):+.2f} % ({each})")


def _turn(context: TrialContext, width: int, number: int) -> list[tuple[float, float]]:
    """Train plainly, by a worker, plainly; return the worker's seconds and its ratio to the others, by both clocks."""
    before = timed(partial(plain, width))
    own = timed(partial(by_worker, context, number))
    after = timed(partial(plain, width))
    assert own[2] == before[2], "the protocol changed the training"
    return [(own[i], 2 * own[i] / (before[i] + after[i])) for i in (0, 1)]


if __name__ == "__main__":
    main(1) if "--quick" in sys.argv else main(*map(int, sys.argv[1:]))
