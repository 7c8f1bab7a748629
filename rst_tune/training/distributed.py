"""One run over several processes: rank, world size and reductions. With one process all are no-ops."""

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from rst_tune.training.batch_norm import synchronize_batch_norm

__all__ = ["barrier", "default_device", "gather", "own_share", "rank", "sum_over_processes", "world_size", "wrap"]


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


def default_device() -> torch.device:
    """Return the CUDA device of this process if there is one, else the CPU."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", rank() % torch.cuda.device_count())


def wrap(model: nn.Module, device: torch.device) -> nn.Module:
    """Return the model in DistributedDataParallel, its batch norm synchronized; with one process, the model itself."""
    if world_size() == 1:
        return model
    model = synchronize_batch_norm(model, device)
    return DistributedDataParallel(model, device_ids=[device] if device.type == "cuda" else None)
