"""An optimizer around another one: one set of param groups and state, gradients by parameter index, pickling."""

from typing import Any

from torch import Tensor, device
from torch.optim import Optimizer

from rst_tune.method.checks import check_dense
from rst_tune.method.vectors import local


class OptimizerWrapper(Optimizer):
    """Uses the param groups and the state of `base` as its own: a scheduler changes the values that the step uses."""

    def __init__(self, base: Optimizer) -> None:
        self.base = base
        self._cleared = False  # whether zero_grad was called since the last step
        super().__init__(base.param_groups, base.defaults)

    def __getstate__(self) -> dict[str, Any]:
        """Return all attributes but hooks and the `step` that a scheduler wrapped, as torch's optimizers do."""
        return {name: value for name, value in vars(self).items() if name != "step" and "_hooks" not in name}

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The param groups of the base optimizer."""
        return self.base.param_groups

    @param_groups.setter
    def param_groups(self, value: object) -> None: ...

    @property
    def state(self) -> Any:
        """The state of the base optimizer."""
        return self.base.state

    @state.setter
    def state(self, value: object) -> None: ...

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group to the base optimizer."""
        if not any(param_group is group for group in self.base.param_groups):
            self.base.add_param_group(param_group)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Reset the gradients. `step` does so itself."""
        self.base.zero_grad(set_to_none)
        self._cleared = True

    def _all_params(self) -> list[Tensor]:
        return [p for group in self.param_groups for p in group["params"]]

    def _devices(self) -> set[device]:
        return {p.device for p in self._all_params()}

    def _with_gradient(self) -> list[int]:
        return [i for i, p in enumerate(self._all_params()) if p.grad is not None]

    def _gradients(self, indices: list[int]) -> list[Tensor]:
        all_params = self._all_params()
        grads = [local(grad) for i in indices if (grad := all_params[i].grad) is not None]
        check_dense(grads)
        return grads

    def _initializes_state(self) -> bool:
        # torch.distributed.checkpoint makes optimizer state by a step with learning rate 0 and zero gradients.
        still = all(float(group.get("lr", 0.0)) == 0.0 for group in self.param_groups)
        grads = [p.grad for p in self._all_params() if p.grad is not None]
        return still and bool(grads) and not any(local(g).any() for g in grads)
