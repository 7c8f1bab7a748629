"""Checks of the arguments of the optimizer, before anything is computed."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from rst_tune.errors import InputError, unknown_name
from rst_tune.method.ascent.rule import Closure, PerSample, Rule
from rst_tune.method.policies import Policy
from rst_tune.method.schedules import Schedule

OLDER: Mapping[str, object] = {"policy": "coin", "policy_options": {}, "cap": None}
"""Settings that states of older versions do not have."""


def check_base(base: object) -> None:
    """Raise unless `base` is an optimizer that steps without a closure."""
    if not isinstance(base, Optimizer):
        raise InputError(f"base must be a torch optimizer, but got {base!r}: for example torch.optim.SGD(...)")
    if isinstance(base, torch.optim.LBFGS) or hasattr(base, "gamma_gnr"):
        name = type(base).__name__
        raise InputError(f"base must use one gradient per step, but got {name}: use SGD, Adam or AdamW")


def check_numbers(
    *, schedule: object, total_steps: int, rho: float, gamma_gnr: float, clip: float | None, seed: int
) -> None:
    """Raise unless the numbers of an RST are in range."""
    if not isinstance(schedule, Schedule):
        raise InputError(f"schedule must be a Schedule, but got {schedule!r}: for example schedules.constant(0.5)")
    _whole("total_steps", total_steps)
    if total_steps < 1:
        raise InputError(f"total_steps >= 1 must hold, but got {total_steps}: it is the number of training steps")
    _whole("seed", seed)
    _not_negative("rho", rho, "it is the radius of the ascent; 0 is the base optimizer")
    _not_negative("gamma_gnr", gamma_gnr, "it is a multiple of rho; 1 is RST, 0 the base optimizer")
    _positive("clip", clip, "it is the largest norm of a gradient; None clips nothing")


def check_method(
    rule: Rule, policy: Policy, *, gamma_gnr: float, cap: float | None, weight_decay_in_ascent: bool = False
) -> None:
    """Raise unless rule, policy, gamma_gnr and cap fit together."""
    _positive("cap", cap, "it is the largest norm of the mixed gradient as a multiple of ‖g1‖; None is no limit")
    if not rule.passes_ahead:
        return
    if gamma_gnr != 1.0:
        raise InputError(
            f"gamma_gnr = 1 must hold for rule {rule.name!r}, but got gamma_gnr = {gamma_gnr!r}: its only pass is at "
            "w + eps, so there is no g1 to mix with; change rho instead"
        )
    if cap is not None:
        raise InputError(f"rule {rule.name!r} has no g1 to measure the cap by, but got cap = {cap!r}: use cap=None")
    if policy.needs_gradient:
        raise InputError(
            f"policy {policy.name!r} decides by the gradient at w, which rule {rule.name!r} does not compute: "
            "use policy='coin'"
        )
    if weight_decay_in_ascent:
        raise InputError(f"rule {rule.name!r} has no gradient at w: use weight_decay_in_ascent=False")


def _whole(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputError(f"{name} must be a whole number, but got {value!r}")


def _not_negative(name: str, value: Any, meaning: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not (isfinite(value) and value >= 0):
        raise InputError(f"{name} >= 0 must hold, but got {name} = {value!r}: {meaning}")


def _positive(name: str, value: float | None, meaning: str) -> None:
    if value is not None and not (isfinite(value) and value > 0):
        raise InputError(f"{name} > 0 must hold, but got {value!r}: {meaning}")


def wants_local_eps(eps: str | None, rule: Rule, policy: Policy, cap: float | None) -> bool:
    """Return whether each rank uses an eps of its own gradient."""
    if eps not in (None, "local", "global"):
        raise unknown_name("eps", eps, ["local", "global"])
    needs = {
        f"rule {rule.name!r}": rule.needs_global_grad,
        f"policy {policy.name!r}": policy.needs_gradient,
        "cap": cap is not None,
    }
    global_only = [name for name, needed in needs.items() if needed]
    if eps == "local" and global_only:
        raise InputError(f"{global_only[0]} needs the gradient of all ranks, but got eps = 'local': use eps='global'")
    return eps != "global" and not global_only


def check_closure(closure: object) -> None:
    """Raise if there is no closure to compute the loss with."""
    if closure is None:
        raise InputError(
            "step needs a closure, since a second pass may be due, but got none: call "
            "opt.step(lambda: loss_function(model(x), y)). With a GradScaler construct RST(..., scaler=scaler), which "
            "calls scale, unscale_, step and update, instead of scaler.step(opt)"
        )


def check_accelerate() -> None:
    """Raise if accelerate accumulates gradients: it does not call the step of all but one of the parts of a batch."""
    gradient_state = getattr(sys.modules.get("accelerate.state"), "GradientState", None)
    parts = 1 if gradient_state is None or not gradient_state._shared_state else gradient_state().num_steps
    if parts > 1:
        raise InputError(
            f"gradient_accumulation_steps = 1 must hold in accelerate's Accelerator, but it is {parts}: accumulate() "
            "skips the step, and so the closure, of all other parts; call step([closure of each part]) instead"
        )


def check_dense(grads: Iterable[Tensor | None]) -> None:
    """Raise at a sparse gradient, of which no norm is computed."""
    for grad in grads:
        if grad is not None and grad.is_sparse:
            raise InputError(
                f"gradients must be dense, but got a sparse one of shape {tuple(grad.shape)}: "
                "build the embedding with sparse=False"
            )


def check_per_sample(rule: Rule, parts: int, per_sample: Sequence[Any] | None) -> None:
    """Raise unless there is one per_sample per closure of a rule that uses losses of single samples."""
    if per_sample is None or len(per_sample) != parts:
        got = "none" if per_sample is None else len(per_sample)
        raise InputError(
            f"rule {rule.name!r} uses the losses of single samples and needs {parts} per_sample, but got {got}: "
            "call step(closure, per_sample=losses), where losses(None) returns the loss of each sample and "
            "losses(indices) that of some"
        )


def recorded(losses: PerSample, into: list[Tensor]) -> Closure:
    """Return a closure of the mean loss of all samples, which appends the losses to `into`."""

    def mean() -> Tensor:
        each = losses(None)
        if each.dim() != 1:
            raise InputError(
                f"per_sample must return one loss per sample, but it returned a tensor of shape {tuple(each.shape)}: "
                "compute the loss with reduction='none'"
            )
        into.append(each.detach())
        return each.mean()

    return mean


def check_settings(saved: Mapping[str, object], own: Mapping[str, object]) -> None:
    """Raise unless a state was saved with these settings: with others, X_t would not continue as it began."""
    saved = {**OLDER, **saved}
    differing = {name: (saved.get(name), value) for name, value in own.items() if saved.get(name) != value}
    if differing:
        told = ", ".join(f"{name} was {old!r} and is {new!r}" for name, (old, new) in differing.items())
        raise InputError(
            f"the settings must be those of the saved run, but {told}: load with strict=False to change them"
        )
