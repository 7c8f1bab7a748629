"""Model on its device, base optimizer, learning rate and precision of a recipe, and the RST of a method."""

import math
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn

from rst_tune.errors import unknown_name
from rst_tune.method import schedules
from rst_tune.method.optimizer import RST
from rst_tune.training.data import Dataset
from rst_tune.training.models import build_model
from rst_tune.training.seeds import derive
from rst_tune.training.task import Method, Recipe, Task


def learning_rate(t: int, total_steps: int, *, peak: float, warmup_steps: int = 0) -> float:
    """Return the rate of step t = 1 ... T: linear up to `peak`, then half a cosine that reaches 0 after the last step.

    >>> [learning_rate(t, 4, peak=1.0) for t in (1, 3)], learning_rate(1, 8, peak=1.0, warmup_steps=4)
    ([1.0, 0.5], 0.25)
    """
    if t <= warmup_steps:
        return peak * t / warmup_steps
    done = (t - 1 - warmup_steps) / (total_steps - warmup_steps)
    return peak * 0.5 * (1 + math.cos(math.pi * done))


def make_model(task: Task, data: Dataset, device: torch.device, *, seed: int) -> nn.Module:
    """Return the model of the task with weights drawn from `seed`, in its memory format, compiled if asked for."""
    recipe, spec = task.recipe, task.model
    model = build_model(spec.name, data.classes, data.shape, spec.options, seed=derive(seed, "weights")).to(device)
    if recipe.channels_last:
        model.to(memory_format=torch.channels_last)
    if (backend := compile_backend(recipe)) is not None:
        model.compile(backend=backend)
    return model


def compile_backend(recipe: Recipe) -> str | None:
    """Return the torch.compile backend that a recipe asks for; None: it does not."""
    if not recipe.compile:
        return None
    backend = recipe.compile if isinstance(recipe.compile, str) else "inductor"
    if backend not in torch.compiler.list_backends(exclude_tags=()):
        raise unknown_name("torch.compile backend in `compile`", backend, torch.compiler.list_backends())
    return backend


def make_base_optimizer(recipe: Recipe, model: nn.Module) -> torch.optim.Optimizer:
    """Return the base optimizer, fused: one kernel per step instead of several per tensor."""
    common: dict[str, Any] = {"lr": recipe.lr, "weight_decay": recipe.weight_decay, "fused": True}
    if recipe.optimizer == "sgd":
        return torch.optim.SGD(model.parameters(), momentum=recipe.momentum, **common)
    decoupled = recipe.optimizer == "adamw" or recipe.decoupled_weight_decay
    return (torch.optim.AdamW if decoupled else torch.optim.Adam)(model.parameters(), **common)


def make_rst(
    method: Method,
    base: torch.optim.Optimizer,
    model: nn.Module,
    *,
    kind: type[RST] = RST,
    total_steps: int,
    rho: float,
    **settings: Any,
) -> RST:
    """Return the optimizer of a method; `rho` is for a method without one, `settings` are other arguments of RST."""
    own = {**dict(method), "schedule": schedules.from_dict(method.schedule)}  # the fields are arguments of RST
    own["rho"] = rho if method.rho is None else method.rho
    return kind(base, model, total_steps=total_steps, **own, **settings)


def autocast(recipe: Recipe, device: torch.device) -> AbstractContextManager[Any]:
    """Return a reusable context that sets the precision of the forward pass."""
    bf16 = recipe.precision == "bf16" or (recipe.precision == "auto" and device.type == "cuda")
    return torch.autocast(device.type, dtype=torch.bfloat16) if bf16 else nullcontext()
