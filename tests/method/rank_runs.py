"""The script of two gloo ranks; `test_ranks.py` compares the results."""

import subprocess
import sys
from itertools import product
from pathlib import Path

import torch
import torch.distributed as dist
from small_nets import batch, mlp, rst, weights
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from rst_tune.errors import InputError

STEPS = 8
RUNS = {
    "sam-local": {"eps": "local"},
    "sam-local-gamma-2": {"eps": "local", "gamma_gnr": 2.0},
    "sam-global": {"eps": "global"},
    "sam-global-gamma-2": {"eps": "global", "gamma_gnr": 2.0},
    "asam-global": {"eps": "global", "rule": "asam"},
    "gsam": {"rule": "gsam", "gamma_gnr": 1.5},
    "looksam": {"rule": "looksam", "rule_options": {"k": 2}},
    "ssam-fisher": {"rule": "ssam", "rule_options": {"samples": 16, "every": 3}},
    "ssam-dynamic": {"rule": "ssam", "rule_options": {"mask": "dynamic", "every": 3}},
    "esam-local": {"rule": "esam"},
    "esam-global": {"rule": "esam", "rule_options": {"gamma": 1.0}, "eps": "global"},
    "fsam": {"rule": "fsam", "gamma_gnr": 1.5},
    "vasso": {"rule": "vasso"},
    "sam-on-local": {"rule": "sam-on"},
    "sam-on-global": {"rule": "sam-on", "eps": "global"},
    "s2sam": {"rule": "s2sam"},
    "msam": {"rule": "msam"},
    "gradient-norm": {"policy": "gradient-norm", "gamma_gnr": 2.0},
    "cap": {"gamma_gnr": 3.0, "cap": 1.05},
}
PARTED = ("sam-local-gamma-2", "gsam", "s2sam")
TORCH_CLOSURES = ("sam-local", "sam-local-gamma-2", "gsam", "gradient-norm", "msam")


def losses_of(model, x, y):
    return lambda i: cross_entropy(model(x if i is None else x[i]), y if i is None else y[i], reduction="none")


def run_with_torch_closures(model, opt, part):
    """Train with closures that call zero_grad and backward; return what `run` returns."""
    coins, path = [], []
    for t in range(1, STEPS + 1):
        x, y = (whole[part] for whole in batch(t, dtype=torch.float64))

        def closure(x=x, y=y):
            opt.zero_grad()
            loss = cross_entropy(model(x), y)
            loss.backward()
            return loss

        before = opt.ascents
        opt.step(closure)
        coins.append(opt.ascents - before)
        path.append(weights(model))
    return {"coins": coins, "pairs": opt.pairs, "path": path}


def run(model, opt, part, parts=1):
    """Train on a part of each batch; return X_t, the pairs and the weights per step."""
    coins, path = [], []
    for t in range(1, STEPS + 1):
        x, y = (whole[part] for whole in batch(t, dtype=torch.float64))
        before = opt.ascents
        each = [losses_of(model, a, b) for a, b in zip(x.chunk(parts), y.chunk(parts), strict=True)]
        opt.step([lambda f=f: f(None).mean() for f in each], per_sample=each)
        coins.append(opt.ascents - before)
        path.append(weights(model))
    return {"coins": coins, "pairs": opt.pairs, "path": path}


def build(wrapped, name, p=0.7, **more):
    base = torch.optim.SGD(wrapped.parameters(), lr=0.1, momentum=0.5 if name == "msam" else 0.0)
    return rst(wrapped, base, p=p, T=STEPS, rho=0.1, **RUNS[name], **more)


def counted(model, bucket_view=False):
    exchanges = []

    def hook(group, bucket):
        exchanges.append(1)
        return allreduce_hook(group, bucket)

    wrapped = DistributedDataParallel(model, gradient_as_bucket_view=bucket_view)
    wrapped.register_comm_hook(None, hook)
    return wrapped, exchanges


def run_ranks(script, folder):
    """Run a script of two ranks and return what each of them saved."""
    command = [sys.executable, str(Path(__file__).with_name(script))]
    processes = [subprocess.Popen([*command, str(rank), str(folder)]) for rank in (0, 1)]
    try:
        assert [process.wait(timeout=600) for process in processes] == [0, 0]
    finally:
        for process in processes:
            process.kill()
    return [torch.load(folder / f"rank{rank}.pt") for rank in (0, 1)]


def main(rank, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
    part, results = slice(8 * rank, 8 * rank + 8), {}
    for name in RUNS:
        model, exchanges = counted(mlp(dtype=torch.float64))
        results[name] = run(model, build(model, name), part) | {"exchanges": len(exchanges)}
    for name in PARTED:
        model, _ = counted(mlp(dtype=torch.float64), bucket_view=True)
        results[f"{name}-in-two-parts"] = run(model, build(model, name), part, parts=2)
    for bucket_view, name in product((False, True), TORCH_CLOSURES):
        model, _ = counted(mlp(dtype=torch.float64), bucket_view)
        results[f"{name}-torch-closure"] = run_with_torch_closures(model, build(model, name), part)
    try:
        build(counted(mlp(dtype=torch.float64))[0], "sam-local", seed=rank)
    except InputError as error:
        results["refused"] = str(error)
    torch.save(results, Path(folder) / f"rank{rank}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
