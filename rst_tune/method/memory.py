"""What the second pass must not change: weights, buffers such as BN statistics, and the random streams."""

from collections import Counter
from collections.abc import Iterable
from operator import is_

import torch
from torch import Tensor, nn

from rst_tune.method.vectors import Scale, add_

__all__ = ["Buffers", "Streams", "Weights"]

LARGE = 16384  # entries from which moving memory costs more than a call for each tensor


class Weights:
    """Moves weights to w + scale · v and puts the very same w back, whatever their precision.

    A large tensor on a CPU is not copied: w + scale · v is written into storage beside it, which takes its place for
    the time of the second pass. All others are copied, moved in place and copied back, a few calls for all of them.
    """

    def __init__(self) -> None:
        self._params: list[Tensor] = []
        self._kinds: set[object] = set()
        self._room: dict[Tensor, Tensor] = {}
        self._large: list[int] = []
        self._small: list[int] = []
        self._undo: list[tuple[Tensor, Tensor]] = []
        self._copied: tuple[list[Tensor], list[Tensor]] = ([], [])

    @torch.no_grad()
    def move(self, params: list[Tensor], vectors: list[Tensor], scale: Scale) -> None:
        """Go from w to w + scale · v."""
        self._plan(params)
        if not isinstance(scale, Tensor):
            for i in self._large:
                moved = torch.add(params[i], vectors[i], alpha=scale, out=self._room[params[i]])
                self._undo.append((params[i], params[i].data))
                params[i].data = moved
        places = self._small if not isinstance(scale, Tensor) else range(len(params))
        here = [params[i] for i in places]
        if here:
            self._copied = (here, [self._room[p] for p in here])
            torch._foreach_copy_(self._copied[1], here)
            add_(here, [vectors[i] for i in places], scale)

    @torch.no_grad()
    def restore(self) -> None:
        """Go back to w. Without a move there is nothing to do."""
        for param, data in self._undo:
            param.data = data
        params, copies = self._copied
        if params:
            torch._foreach_copy_(params, copies)
        self._undo, self._copied = [], ([], [])

    def _plan(self, params: list[Tensor]) -> None:
        """Find storage for each parameter, and which ones are large. The answer holds while the parameters do."""
        kinds: set[object] = {p.dtype for p in params} | {p.device for p in params}
        if kinds == self._kinds and len(params) == len(self._params) and all(map(is_, params, self._params)):
            return
        if kinds != self._kinds:  # the model was moved or cast
            self._room.clear()
        for p in params:
            if p not in self._room:
                self._room[p] = torch.empty_like(p, requires_grad=False)
        places = Counter(p.data_ptr() for p in params)
        self._large = [i for i, p in enumerate(params) if _may_step_aside(p) and places[p.data_ptr()] == 1]
        self._small = sorted(set(range(len(params))) - set(self._large))
        self._params, self._kinds = params, kinds


def _may_step_aside(param: Tensor) -> bool:
    # A parameter that is a view of more, as flattened or sharded weights are, has to stay where it is.
    if param.device.type != "cpu" or param.numel() < LARGE:
        return False
    return param.untyped_storage().nbytes() == param.numel() * param.element_size()


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
