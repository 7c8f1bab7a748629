"""One forward-backward pass over the closures of a step: accumulation, loss scaling, and what ranks exchange."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from rst_tune.errors import InputError
from rst_tune.method.ascent.rule import Closure

__all__ = ["as_list", "is_distributed", "propagate", "ranks_agree"]

SECOND_BACKWARD = "backward through the graph a second time"
REMEDY = "return the loss and leave the backward pass to step()"


def propagate(
    closures: Sequence[Closure],
    model: nn.Module,
    *,
    scaler: torch.amp.GradScaler | None = None,
    factor: float = 1.0,
    synced: bool = True,
) -> list[Tensor]:
    """Run the closures and add the gradient of factor · (mean of their losses) to `.grad`; return the losses.

    Several closures are the parts of one batch: equal parts give the gradient of the joined batch. Ranks exchange
    gradients in the last backward pass only, and not at all with synced=False.
    """
    weight = factor / len(closures)
    return [
        _one_pass(closure, model, scaler, weight, synced and position == len(closures))
        for position, closure in enumerate(closures, start=1)
    ]


def _one_pass(
    closure: Closure, model: nn.Module, scaler: torch.amp.GradScaler | None, weight: float, synced: bool
) -> Tensor:
    # The forward pass belongs inside no_sync as well: DDP decides there what the backward pass will exchange.
    with nullcontext() if synced else _no_sync(model):
        loss = _checked(closure())
        scaled = loss if weight == 1.0 else loss * weight
        try:
            (scaled if scaler is None else scaler.scale(scaled)).backward()  # type: ignore[no-untyped-call]
        except RuntimeError as error:
            if SECOND_BACKWARD in str(error):
                raise InputError(f"the closure must not call backward, but its graph is used up: {REMEDY}") from error
            raise
    return loss.detach()


def _checked(loss: object) -> Tensor:
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        what = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else repr(loss)
        raise InputError(f"the closure must return the loss, one number in a tensor, but it returned {what}: {REMEDY}")
    if not loss.requires_grad:
        raise InputError(f"the loss must carry its graph, but it requires no gradient: do not detach it, {REMEDY}")
    return loss


def _no_sync(model: nn.Module) -> AbstractContextManager[Any]:
    no_sync: Callable[[], AbstractContextManager[Any]] = getattr(model, "no_sync", nullcontext)
    return no_sync()


def as_list(value: Any) -> list[Any]:
    """Return a list of closures as it is, and one closure as a list of one."""
    return list(value) if isinstance(value, list | tuple) else [value]


def is_distributed(model: nn.Module) -> bool:
    """Return whether gradients of this model are exchanged between ranks."""
    return hasattr(model, "no_sync") and dist.is_available() and dist.is_initialized()


def ranks_agree(model: nn.Module, settings: dict[str, Any]) -> None:
    """Raise unless every rank has the same settings: X_t has to be equal everywhere before the first pass."""
    if not is_distributed(model):
        return
    everyone: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, settings)
    for rank, other in enumerate(everyone):
        if other != everyone[0]:
            differing = {k: (everyone[0][k], other[k]) for k in settings if other[k] != everyone[0][k]}
            raise InputError(f"all ranks must have the same settings, but ranks 0 and {rank} differ in {differing}")
