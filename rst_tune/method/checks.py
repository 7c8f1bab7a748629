"""Wrong input of the optimizer, answered before anything is computed."""

from collections.abc import Iterable, Sequence
from math import isfinite
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from rst_tune.errors import InputError, unknown_name
from rst_tune.method.ascent.rule import Closure, PerSample, Rule
from rst_tune.method.schedules import Schedule

__all__ = [
    "check_base",
    "check_dense",
    "check_numbers",
    "check_per_sample",
    "check_settings",
    "recorded",
    "wants_local_eps",
    "watched",
]


def check_base(base: object) -> None:
    """Raise unless `base` is an optimizer that steps without a closure."""
    if not isinstance(base, Optimizer):
        raise InputError(f"base must be a torch optimizer, but got {base!r}: for example torch.optim.SGD(...)")
    if isinstance(base, torch.optim.LBFGS) or hasattr(base, "gamma_gnr"):
        raise InputError(f"base must take one gradient a step, but got {type(base).__name__}: give SGD, Adam or AdamW")


def check_numbers(
    *, schedule: object, total_steps: int, rho: float, gamma_gnr: float, clip: float | None, seed: int
) -> None:
    """Raise unless the numbers of an RST are in range."""
    if not isinstance(schedule, Schedule):
        raise InputError(f"schedule must be a Schedule, but got {schedule!r}: for example schedules.constant(0.5)")
    _whole("total_steps", total_steps)
    if total_steps < 1:
        raise InputError(f"total_steps >= 1 must hold, but got {total_steps}: give the number of steps of the training")
    _whole("seed", seed)
    _not_negative("rho", rho, "it is the radius of the ascent; 0 is the base optimizer")
    _not_negative("gamma_gnr", gamma_gnr, "it is a multiple of rho; 1 is RST, 0 the base optimizer")
    if clip is not None and not (isfinite(clip) and clip > 0):
        raise InputError(
            f"clip > 0 must hold, but got {clip!r}: it is the largest norm of a gradient; None clips nothing"
        )


def _whole(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputError(f"{name} must be a whole number, but got {value!r}")


def _not_negative(name: str, value: Any, meaning: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not (isfinite(value) and value >= 0):
        raise InputError(f"{name} >= 0 must hold, but got {name} = {value!r}: {meaning}")


def wants_local_eps(eps: str | None, rule: Rule) -> bool:
    """Return whether each rank goes up by its own gradient."""
    if eps not in (None, "local", "global"):
        raise unknown_name("eps", eps, ["local", "global"])
    if eps == "local" and rule.needs_global_grad:
        raise InputError(f"rule {rule.name!r} needs the gradient of all ranks, but got eps = 'local': use eps='global'")
    return eps != "global" and not rule.needs_global_grad


def check_dense(grads: Iterable[Tensor | None]) -> None:
    """Raise at a sparse gradient: it has no norm to go up along."""
    for grad in grads:
        if grad is not None and grad.is_sparse:
            raise InputError(
                f"gradients must be dense, but got a sparse one of shape {tuple(grad.shape)}: "
                "build the embedding with sparse=False"
            )


def check_per_sample(rule: Rule, parts: int, per_sample: Sequence[Any] | None) -> None:
    """Raise unless there is a per_sample for every closure of a rule that looks at single samples."""
    if per_sample is None or len(per_sample) != parts:
        got = "none" if per_sample is None else len(per_sample)
        raise InputError(
            f"rule {rule.name!r} looks at single samples and needs {parts} per_sample, but got {got}: "
            "call step(closure, per_sample=losses), where losses(None) returns the loss of each sample and "
            "losses(indices) that of some"
        )


def watched(closure: Closure, params: Sequence[Tensor]) -> Closure:
    """Return the closure with a check that it leaves the gradients alone."""

    def checked() -> Tensor:
        before = [p.grad for p in params]
        loss = closure()
        if any(p.grad is not grad for p, grad in zip(params, before, strict=True)):
            raise InputError(
                "the closure must only compute the loss, but it changed the gradients: "
                "return the loss and leave backward and zero_grad to step()"
            )
        return loss

    return checked


def recorded(losses: PerSample, into: list[Tensor]) -> Closure:
    """Return the closure that means the losses of all samples, and keeps them in `into`."""

    def mean() -> Tensor:
        each = losses(None)
        if each.dim() != 1:
            raise InputError(
                f"per_sample must return one loss a sample, but it returned a tensor of shape {tuple(each.shape)}: "
                "compute the loss with reduction='none'"
            )
        into.append(each.detach())
        return each.mean()

    return mean


def check_settings(saved: dict[str, Any], own: dict[str, Any]) -> None:
    """Raise unless a state was saved with these settings: with others, X_t would not go on as it began."""
    differing = {name: (saved.get(name), value) for name, value in own.items() if saved.get(name) != value}
    if differing:
        told = ", ".join(f"{name} was {old!r} and is {new!r}" for name, (old, new) in differing.items())
        raise InputError(
            f"the settings must be those of the saved run, but {told}: load with strict=False to change them"
        )
