"""RST with parameters sharded by FSDP2, two processes on a CPU: `python examples/fsdp2.py [steps]`."""

import sys
import tempfile

import torch
import torch.distributed as dist
from torch import multiprocessing, nn
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy

from rst_tune import RST, schedules

RANKS = 2


def train(rank, folder, steps):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=RANKS)
    torch.manual_seed(0)  # the same weights on every rank
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 2))
    for layer in (model[0], model[2]):
        fully_shard(layer)
    fully_shard(model)
    base = torch.optim.AdamW(model.parameters(), lr=1e-2)  # after sharding
    opt = RST(base, model, schedule=schedules.constant(0.5), total_steps=steps, rho=0.05)
    generator = torch.Generator().manual_seed(rank)  # other data on every rank
    for _ in range(steps):
        x = torch.randn(64, 20, generator=generator)
        y = (x[:, :3].sum(1) > 0).long()
        loss = opt.step(lambda x=x, y=y: cross_entropy(model(x), y))
    dist.all_reduce(loss)
    if rank == 0:
        print(f"loss {loss / RANKS:.3f}, {opt.t} steps, {opt.pairs:.0f} forward-backward pairs on {RANKS} ranks")
    dist.destroy_process_group()


def main(steps=100):
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(train, (folder, steps), nprocs=RANKS)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
