"""What the second pass must not change: weights, buffers such as BN statistics, and the random streams."""

from collections.abc import Iterable
from operator import is_

import torch
from torch import Tensor, nn

__all__ = ["Buffers", "Streams", "Weights"]


class Weights:
    """Keeps a copy of the weights in storage that stays, and puts it back exactly, whatever their precision."""

    def __init__(self) -> None:
        self._params: list[Tensor] = []
        self._copies: list[Tensor] = []

    @torch.no_grad()
    def save(self, params: list[Tensor]) -> None:
        """Remember the values of `params`."""
        if not self._fits(params):
            self._copies = [torch.empty_like(p, requires_grad=False) for p in params]
        self._params = params
        if params:
            torch._foreach_copy_(self._copies, params)

    @torch.no_grad()
    def restore(self) -> None:
        """Put the remembered values back."""
        if self._params:
            torch._foreach_copy_(self._params, self._copies)

    def _fits(self, params: list[Tensor]) -> bool:
        # A model may be moved or cast between two steps; the storage then has to follow.
        same = len(params) == len(self._params) and all(map(is_, params, self._params))
        return same and all(
            p.dtype == c.dtype and p.device == c.device for p, c in zip(params, self._copies, strict=True)
        )


class Buffers:
    """Keeps every buffer of a model over the second pass.

    BN statistics, their batch counter and those of any custom or nested layer are buffers; a layer may write into them
    or put new tensors in their place, and both are undone. No layer is switched off, so none can stay off.
    """

    def __init__(self, model: nn.Module) -> None:
        self._places = [
            (module._buffers, name, buffer)
            for module in model.modules()
            for name, buffer in module._buffers.items()
            if buffer is not None
        ]
        self._values = [buffer.detach().clone() for _, _, buffer in self._places]

    @torch.no_grad()
    def restore(self) -> None:
        """Put the buffers and their values back."""
        for (owner, name, buffer), value in zip(self._places, self._values, strict=True):
            buffer.copy_(value)
            if owner[name] is not buffer:
                owner[name] = buffer


class Streams:
    """The states of the random generators that a forward pass draws from: the CPU's and those of the devices."""

    def __init__(self, devices: Iterable[torch.device]) -> None:
        self.devices = list(devices)
        self._cpu = torch.get_rng_state()
        self._cuda = {device: torch.cuda.get_rng_state(device) for device in self.devices if device.type == "cuda"}

    def restore(self) -> None:
        """Set the generators back to these states."""
        torch.set_rng_state(self._cpu)
        for device, state in self._cuda.items():
            torch.cuda.set_rng_state(state, device)
