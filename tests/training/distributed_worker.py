"""One process of a run that is shared by several: trains a little and writes what came out."""

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist

from rst_tune.method import coin
from rst_tune.training import metrics
from rst_tune.training.loop import Run
from rst_tune.training.task import Method, Task


def settings(model: str) -> tuple[Task, Method]:
    """Two epochs of ten steps; half of the steps go uphill."""
    task = Task.model_validate(
        {
            "data": {**Task().data.model_dump(), "augment": ["flip", "mixup"]},
            "model": {"name": model},
            "recipe": {"base": "digits", "epochs": 2, "batch_size": 100, "eps": "global", "max_grad_norm": 1.0},
        }
    )
    return task, Method(schedule={"family": "constant", "p": 0.5}, gamma_gnr=2.0)


def outcome(run: Run) -> dict[str, object]:
    """What every process must agree on."""
    history = {name: values for name, values in run.history.items() if name not in metrics.TIMINGS}
    tossed = [coin.toss(run.optimizer.seed, t, 0.5) for t in range(1, run.total_steps + 1)]
    weights = torch.cat([weight.detach().flatten() for weight in run.model.parameters()])
    return {
        "weights": weights.tolist(),
        "history": history,
        "coins": tossed,
        "ascents": run.optimizer.ascents,
        "test": run.test(),
        "sharpness": run.sharpness(),
    }


def main(rank: int, world: int, folder: Path, model: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder / 'meeting'}", rank=rank, world_size=world)
    task, method = settings(model)
    run = Run(task, method, seed=3, device="cpu")
    run.steps(4)
    run.save(folder / "run.pt")
    continued = Run(task, method, seed=3, device="cpu")
    continued.restore(folder / "run.pt")
    for each in (run, continued):
        while not each.finished:
            each.epoch()
    results = [outcome(run), outcome(continued)]
    (folder / f"{rank}.json").write_text(json.dumps(results))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4])
