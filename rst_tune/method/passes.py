"""Forward-backward passes over the closures of a step: accumulation, loss scaling, synchronization of ranks."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from rst_tune.errors import InputError
from rst_tune.method.ascent.rule import Closure

SECOND_BACKWARD = "backward through the graph a second time"
REMEDY = "return the loss and leave the backward pass to step()"


class Passes:
    """Runs the first and the second pass of a step.

    A closure returns the loss, and the backward pass is run here. A closure of torch's convention (zero_grad, backward,
    return the loss) is recognized by the gradients that it sets in the first pass.
    """

    def __init__(self, model: nn.Module, scaler: torch.amp.GradScaler | None) -> None:
        self.model, self.scaler = model, scaler
        self.closure_runs_backward = False

    def first(self, closures: Sequence[Closure], params: Sequence[Tensor], *, synced: bool = True) -> list[Tensor]:
        """Add the gradient of the mean of the losses to `.grad`, which is None before; return the losses.

        Several closures are the parts of one batch: equal parts give the gradient of the joined batch. Ranks exchange
        gradients in the last backward pass only, and not at all with synced=False.
        """
        self.closure_runs_backward = False
        losses = []
        for position, closure in enumerate(closures, start=1):
            last = position == len(closures)
            unset = params if position == 1 else ()
            losses.append(self._one_pass(closure, 1.0 / len(closures), synced and last, unset))
        return losses

    def second(self, closures: Sequence[Closure], factor: float, params: Sequence[Tensor] = ()) -> None:
        """Add the gradient of factor · (mean of the losses) to `.grad`, or run closures that call backward.

        With `params` a closure that calls backward is refused: the first pass did not use it, and so did not detect it.
        """
        for position, closure in enumerate(closures, start=1):
            watched = _watched(closure, params) if params else closure
            self._one_pass(watched, factor / len(closures), position == len(closures), ())

    def _one_pass(self, closure: Closure, weight: float, synced: bool, unset: Sequence[Tensor]) -> Tensor:
        # The forward pass belongs inside no_sync as well: DDP decides there what the backward pass will exchange.
        with nullcontext() if synced else getattr(self.model, "no_sync", nullcontext)():
            loss = closure()
            if not self.closure_runs_backward and any(p.grad is not None for p in unset):
                self._accept_backward(weight)
            if self.closure_runs_backward:
                return _detached(loss)
            self._backward(_checked(loss), weight)
        return loss.detach()

    def _accept_backward(self, weight: float) -> None:
        if self.scaler is not None:
            raise InputError(f"with a scaler the closure must not call backward, because step() scales it: {REMEDY}")
        self.closure_runs_backward = weight == 1.0
        if not self.closure_runs_backward:
            raise InputError(f"the closures of several parts must not call backward: {REMEDY}")

    def _backward(self, loss: Tensor, weight: float) -> None:
        weighted = loss if weight == 1.0 else loss * weight
        try:
            (weighted if self.scaler is None else self.scaler.scale(weighted)).backward()  # type: ignore[no-untyped-call]
        except RuntimeError as error:
            if SECOND_BACKWARD in str(error):
                raise InputError(f"the closure must not call backward, but its graph is freed: {REMEDY}") from error
            raise


def _watched(closure: Closure, params: Sequence[Tensor]) -> Closure:
    def watched() -> Tensor:
        before = [p.grad for p in params]
        loss = closure()
        if any(p.grad is not grad for p, grad in zip(params, before, strict=True)):
            raise InputError(f"the closure of a rule with per_sample must not call backward: {REMEDY}")
        return loss

    return watched


def _checked(loss: object) -> Tensor:
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        what = _what(loss)
        raise InputError(f"the closure must return the loss, one number in a tensor, but it returned {what}: {REMEDY}")
    if not loss.requires_grad:
        raise InputError(f"the loss must have a graph, but it requires no gradient: do not detach it, {REMEDY}")
    return loss


def _detached(loss: object) -> Tensor:
    if isinstance(loss, Tensor) and loss.numel() == 1:
        return loss.detach()
    if isinstance(loss, int | float):
        return torch.tensor(float(loss))
    raise InputError(f"the closure must return the loss, one number, but it returned {_what(loss)}: return the loss")


def _what(loss: object) -> str:
    return f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else repr(loss)


def as_list(value: Any) -> list[Any]:
    """Return a list of closures as it is, and one closure as a list of one."""
    return list(value) if isinstance(value, list | tuple) else [value]


def is_distributed(model: nn.Module) -> bool:
    """Return whether gradients of this model are exchanged between ranks."""
    return hasattr(model, "no_sync") and dist.is_available() and dist.is_initialized()


def mean_over_ranks(tensors: list[Tensor]) -> None:
    """Replace each tensor by its mean over the ranks, in place."""
    for tensor in tensors:
        dist.all_reduce(tensor)
        tensor.div_(dist.get_world_size())


def ranks_agree(settings: Mapping[str, object]) -> None:
    """Raise unless every rank has the same settings: X_t must be equal on all ranks."""
    all_settings: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(all_settings, settings)
    for rank, other in enumerate(all_settings):
        if other != all_settings[0]:
            differing = {k: (all_settings[0][k], other[k]) for k in settings if other[k] != all_settings[0][k]}
            raise InputError(f"all ranks must have the same settings, but ranks 0 and {rank} differ in {differing}")
