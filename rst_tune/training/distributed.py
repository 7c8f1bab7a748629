"""One run over several processes: rank, world size and reductions. With one process all are no-ops.

Order, augmentation, mixup partners and batch norm are those of the global batch, so with `eps: global` the number of
ranks changes a training by rounding alone. Two things still depend on it: with `eps: local` each rank ascends along the
gradient of its own slice (m-sharpness), and dropout masks are drawn per rank.
"""

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from rst_tune.errors import InputError
from rst_tune.training.batch_norm import synchronize_batch_norm


def _active() -> bool:
    return dist.is_available() and dist.is_initialized()


def rank() -> int:
    """Return the rank of this process, 0 without a process group."""
    return dist.get_rank() if _active() else 0


def world_size() -> int:
    """Return the number of processes of the run."""
    return dist.get_world_size() if _active() else 1


def sum_over_processes(values: Tensor) -> Tensor:
    """Return the sum of `values` over the processes of the run."""
    if world_size() > 1:
        values = values.clone()
        dist.all_reduce(values)
    return values


def gather(value: Tensor) -> Tensor:
    """Return the values of all processes, in rank order."""
    values = torch.zeros(world_size(), dtype=value.dtype, device=value.device)
    values[rank()] = value
    return sum_over_processes(values)


def own_share(values: Tensor) -> Tensor:
    """Return this rank's entry of gathered values; after a change of the world size rank 0 gets the sum."""
    if len(values) == world_size():
        return values[rank()].clone()
    return values.sum() if rank() == 0 else torch.zeros_like(values[0])


def barrier() -> None:
    """Wait until every process of the run has called this."""
    if world_size() > 1:
        dist.barrier()


def select_device(device: str | torch.device | None = None) -> torch.device:
    """Return the device of this process and make it the current one.

    None is the CUDA device of this rank if there is one, else the CPU. Kernels, NCCL and allocations without an
    explicit device use the current one: without `set_device` every rank would also occupy device 0.
    """
    if device is None:
        device = f"cuda:{rank() % torch.cuda.device_count()}" if torch.cuda.is_available() else "cpu"
    try:
        chosen = torch.device(device)
    except RuntimeError as error:
        raise InputError(f"`device` must be cpu, cuda or cuda:<number>, got {device!r}") from error
    if chosen.type != "cuda":
        return chosen
    if not torch.cuda.is_available() or (chosen.index or 0) >= torch.cuda.device_count():
        raise InputError(
            f"`device` {chosen} does not exist, there are {torch.cuda.device_count()} CUDA devices: use cpu"
        )
    chosen = torch.device("cuda", torch.cuda.current_device() if chosen.index is None else chosen.index)
    torch.cuda.set_device(chosen)
    return chosen


def wrap(model: nn.Module, device: torch.device) -> nn.Module:
    """Return the model in DistributedDataParallel, its batch norm synchronized; with one process, the model itself."""
    if world_size() == 1:
        return model
    model = synchronize_batch_norm(model, device)
    return DistributedDataParallel(model, device_ids=[device] if device.type == "cuda" else None)
