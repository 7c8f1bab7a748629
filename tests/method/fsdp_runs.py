"""The script of two gloo ranks with sharded models (FSDP2); `test_fsdp.py` compares the results."""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from rank_runs import STEPS, losses_of
from small_nets import batch, mlp, rst
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from rst_tune.errors import InputError
from rst_tune.method.ascent import RULES

RUNS = {
    "sam": {},
    "sam-gamma-2": {"gamma_gnr": 2.0},
    "asam": {"rule": "asam", "gamma_gnr": 1.5},
    "gsam": {"rule": "gsam", "gamma_gnr": 1.5},
    "sam-on": {"rule": "sam-on"},
    "msam": {"rule": "msam"},
    "esam": {"rule": "esam", "rule_options": {"gamma": 1.0}},
    "gradient-norm": {"policy": "gradient-norm", "gamma_gnr": 2.0},
    "cap": {"gamma_gnr": 3.0, "cap": 1.05},
    "decay": {"weight_decay_in_ascent": True},
}
BASES = {
    "sgd": lambda model: torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5, weight_decay=0.01),
    "adamw": lambda model: torch.optim.AdamW(model.parameters(), lr=0.01),
}


CASES = [*((name, "sgd") for name in RUNS), *((name, "adamw") for name in ("sam", "msam", "gradient-norm"))]


def build(model, name, base="sgd"):
    return rst(model, BASES[base](model), p=0.7, T=STEPS, rho=0.1, clip=5.0, **RUNS[name])


def run(model, opt, part, steps=range(1, STEPS + 1), torch_closure=False):
    """Train on a part of each batch; return the counters and the full weights per step."""
    path = []
    for t in steps:
        x, y = (whole[part] for whole in batch(t, dtype=torch.float64))
        each = losses_of(model, x, y)

        def closure(each=each):
            loss = each(None).mean()
            if torch_closure:
                opt.zero_grad()
                loss.backward()
            return loss

        opt.step(closure, per_sample=each)
        path.append(full_weights(model))
    return {"pairs": opt.pairs, "ascents": opt.ascents, "path": path}


def full_weights(model):
    params = [p.detach() for p in model.parameters()]
    return torch.cat([(p.full_tensor() if isinstance(p, DTensor) else p).flatten() for p in params])


def sharded(seed=0):
    model = mlp(seed, dtype=torch.float64)
    for layer in (model[0], model[3]):
        fully_shard(layer)
    return fully_shard(model)


def resumed(part):
    """Stop after 4 steps, load the distributed state into a new model, and finish."""
    first = sharded()
    opt = build(first, "gradient-norm", "adamw")
    run(first, opt, part, range(1, 5))
    state = get_optimizer_state_dict(first, opt)
    second = sharded(seed=9)
    second.load_state_dict(first.state_dict())
    again = build(second, "gradient-norm", "adamw")
    set_optimizer_state_dict(second, again, state)
    return run(second, again, part, range(5, STEPS + 1))


def refusals():
    messages = {}
    for rule in RULES.names():
        try:
            rst(sharded(), rule=rule)
        except InputError as error:
            messages[rule] = str(error)
    return messages


def main(rank, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
    part = slice(8 * rank, 8 * rank + 8)
    results = {}
    for name, base in CASES:
        model = sharded()
        results[name, base] = run(model, build(model, name, base), part)
    for name in ("sam-gamma-2", "gsam"):
        model = sharded()
        results[name, "torch closure"] = run(model, build(model, name), part, torch_closure=True)
    results["resumed"] = resumed(part)
    results["refused"] = refusals()
    torch.save(results, Path(folder) / f"rank{rank}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
