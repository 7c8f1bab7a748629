"""State that a pass at w + eps must leave unchanged: weights, buffers such as BN statistics, random generators."""

from collections import Counter
from collections.abc import Iterable
from operator import is_

import torch
from torch import Tensor, nn

from rst_tune.method.vectors import Scale, add_

LARGE = 16384  # entries above which copying costs more than one call per tensor


class WeightPerturbation:
    """Moves weights to w + scale · v and restores w bit for bit in any precision.

    A large tensor on a CPU is not copied: w + scale · v is written into a second storage, which the parameter points
    to during the pass. All others are copied, changed in place and copied back with a few foreach calls.
    """

    def __init__(self) -> None:
        self._params: list[Tensor] = []
        self._kinds: set[object] = set()
        self._storage: dict[Tensor, Tensor] = {}
        self._large: list[int] = []
        self._small: list[int] = []
        self._undo: list[tuple[Tensor, Tensor]] = []
        self._copied: tuple[list[Tensor], list[Tensor]] = ([], [])

    def __reduce__(self) -> tuple[type["WeightPerturbation"], tuple[()]]:
        return WeightPerturbation, ()  # a copy has storage of its own

    @torch.no_grad()
    def move(self, params: list[Tensor], vectors: list[Tensor], scale: Scale) -> None:
        """Set the weights to w + scale · v."""
        self._plan(params)
        if not isinstance(scale, Tensor):
            for i in self._large:
                moved = torch.add(params[i], vectors[i], alpha=scale, out=self._storage[params[i]])
                self._undo.append((params[i], params[i].data))
                params[i].data = moved
        indices = self._small if not isinstance(scale, Tensor) else range(len(params))
        targets = [params[i] for i in indices]
        if targets:
            self._copied = (targets, [self._storage[p] for p in targets])
            torch._foreach_copy_(self._copied[1], targets)
            add_(targets, [vectors[i] for i in indices], scale)

    @torch.no_grad()
    def restore(self) -> None:
        """Set the weights back to w. Without a preceding move this is a no-op."""
        for param, data in self._undo:
            param.data = data
        params, copies = self._copied
        if params:
            torch._foreach_copy_(params, copies)
        self._undo, self._copied = [], ([], [])

    def _plan(self, params: list[Tensor]) -> None:
        """Allocate storage per parameter and find the large ones. Cached while the parameters stay the same."""
        kinds: set[object] = {p.dtype for p in params} | {p.device for p in params}
        if kinds == self._kinds and len(params) == len(self._params) and all(map(is_, params, self._params)):
            return
        if kinds != self._kinds:  # the model was moved or cast
            self._storage.clear()
        for p in params:
            if p not in self._storage:
                self._storage[p] = torch.empty_like(p, requires_grad=False)
        pointers = Counter(p.data_ptr() for p in params)
        self._large = [i for i, p in enumerate(params) if _may_repoint(p) and pointers[p.data_ptr()] == 1]
        self._small = sorted(set(range(len(params))) - set(self._large))
        self._params, self._kinds = params, kinds


def _may_repoint(param: Tensor) -> bool:
    # A parameter that is a view of a larger storage (flattened or sharded weights) must keep its storage.
    if param.device.type != "cpu" or param.numel() < LARGE:
        return False
    return param.untyped_storage().nbytes() == param.numel() * param.element_size()


class Buffers:
    """Saves every buffer of a model and restores it after a pass.

    BN statistics, their batch counter and those of custom layers are buffers. A layer may write into a buffer or
    replace it; both are undone. No layer is switched to another mode.
    """

    def __init__(self, model: nn.Module) -> None:
        self._slots = [
            (module._buffers, name, buffer)
            for module in model.modules()
            for name, buffer in module._buffers.items()
            if buffer is not None
        ]
        self._values = [buffer.detach().clone() for _, _, buffer in self._slots]

    @torch.no_grad()
    def restore(self) -> None:
        """Restore the buffers and their values."""
        for (owner, name, buffer), value in zip(self._slots, self._values, strict=True):
            buffer.copy_(value)
            if owner[name] is not buffer:
                owner[name] = buffer


class RngState:
    """The states of the random generators of the CPU and of the devices."""

    def __init__(self, devices: Iterable[torch.device]) -> None:
        self.devices = list(devices)
        self._cpu = torch.get_rng_state()
        self._cuda = {device: torch.cuda.get_rng_state(device) for device in self.devices if device.type == "cuda"}

    def restore(self) -> None:
        """Set the generators back to these states."""
        torch.set_rng_state(self._cpu)
        for device, state in self._cuda.items():
            torch.cuda.set_rng_state(state, device)
