"""Algorithm 1, literal and slow, and every ascent rule as its formula: the reference of the tests.

It shares no code with the optimizer. The weights are one flat vector, every gradient in a formula is computed anew, and
random choices are arguments.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from math import ceil, cos, inf, pi, sqrt
from statistics import NormalDist
from typing import Any

import torch
from torch import Tensor

__all__ = ["REFERENCES", "Problem", "Settings", "ae_sam", "algorithm1", "closed_form"]


@dataclass(frozen=True)
class Problem:
    """A loss as a function of flat weights: `losses(w, t)` are those of the samples of batch t."""

    losses: Callable[[Tensor, int], Tensor]
    tensors: tuple[tuple[str, int], ...]
    """The name and the size of each tensor in the flat weights."""
    norm_tensors: frozenset[str] = frozenset()
    """The names of the tensors of normalization layers."""

    def gradient(self, w: Tensor, t: int, samples: Tensor | None = None) -> Tensor:
        """Return ∇L at w on batch t, or on some samples of it."""
        w = w.detach().clone().requires_grad_()
        losses = self.losses(w, t)
        mean = (losses if samples is None else losses[samples]).mean()
        return torch.autograd.grad(mean, w)[0]


@dataclass
class Settings:
    """The numbers of a run, its random choices, and the state of a rule."""

    T: int
    rho: float
    options: dict[str, float] = field(default_factory=dict)
    chosen: Callable[[int, int], bool] = lambda t, tensor: True
    shuffled: Callable[[int, int], Tensor] = lambda t, count: torch.arange(count)
    memory: dict[str, Tensor] = field(default_factory=dict)
    count: int = 0


Rule = Callable[[Problem, Tensor, int, Settings], Tensor]


def algorithm1(
    problem: Problem,
    w: Tensor,
    settings: Settings,
    *,
    lr: float,
    decide: Callable[[int, Tensor], bool],
    rule: Rule,
    gamma_gnr: float = 1.0,
    momentum: float = 0.0,
    cap: float = inf,
) -> list[Tensor]:
    """Return θ_1 … θ_T of Algorithm 1 with the step θ − lr·v_t, v_t = momentum·v_{t−1} + g_t.

    gamma_gnr other than 1 is G-RST; `decide(t, g)` is X_t, the coin's or that of a policy with the gradient g.
    """
    path, v = [], torch.zeros_like(w)
    for t in range(1, settings.T + 1):
        g1 = g = problem.gradient(w, t)
        if decide(t, g1):
            g = g1 + gamma_gnr * (rule(problem, w, t, settings) - g1)
            g = g * min(1.0, cap * float(g1.norm()) / float(g.norm()))
            settings.count += 1
        v = momentum * v + g
        settings.memory |= {"last": g, "momentum": v}
        w = w - lr * v
        path.append(w)
    return path


def ae_sam(delta: float, p: Callable[[int], float], coin: Callable[[int], bool]) -> Callable[[int, Tensor], bool]:
    """X_t of AE-SAM with the threshold Φ⁻¹(1 − p(t)); the coin decides the first step."""
    mean, variance = 0.0, 0.0

    def decide(t: int, g: Tensor) -> bool:
        nonlocal mean, variance
        s = float(g @ g)
        mean = s if t == 1 else delta * mean + (1 - delta) * s
        variance = delta * variance + (1 - delta) * (s - mean) ** 2
        return coin(t) if t == 1 else s >= mean + NormalDist().inv_cdf(1 - p(t)) * sqrt(variance)

    return decide


def sam(problem: Problem, w: Tensor, t: int, settings: Settings) -> Tensor:
    """∇L(w + ρ·g/‖g‖)."""
    g = problem.gradient(w, t)
    return problem.gradient(w + settings.rho * g / g.norm(), t)


def asam(problem: Problem, w: Tensor, t: int, settings: Settings) -> Tensor:
    """∇L(w + ρ·T²g/‖Tg‖), T = diag(|w| + η) on weights and 1 elsewhere."""
    g = problem.gradient(w, t)
    is_weight = torch.cat([torch.full((size,), "weight" in name) for name, size in problem.tensors])
    scale = torch.where(is_weight, w.abs() + settings.options["eta"], torch.ones_like(w))
    return problem.gradient(w + settings.rho * scale**2 * g / (scale * g).norm(), t)


def gsam(problem: Problem, w: Tensor, t: int, settings: Settings) -> Tensor:
    """g2 − α·g1⊥, g1⊥ the part of g1 orthogonal to g2."""
    g1 = problem.gradient(w, t)
    g2 = sam(problem, w, t, settings)
    orthogonal: Tensor = g1 - (g1 @ g2) / (g2 @ g2) * g2
    return g2 - settings.options["alpha"] * orthogonal


def looksam(problem: Problem, w: Tensor, t: int, settings: Settings) -> Tensor:
    """g2 every k-th time; else g1 + α·(‖g1‖/‖g_v‖)·g_v with g_v the part of g2 orthogonal to g1 back then."""
    g1 = problem.gradient(w, t)
    if settings.count % settings.options["k"] == 0:
        g2 = sam(problem, w, t, settings)
        settings.memory["g_v"] = g2 - (g1 @ g2) / (g1 @ g1) * g1
        return g2
    g_v = settings.memory["g_v"]
    strength: Tensor = settings.options["alpha"] * g1.norm() / g_v.norm()
    return g1 + strength * g_v


def esam(problem: Problem, w: Tensor, t: int, settings: Settings) -> Tensor:
    """The gradient on the samples whose loss rose most at w + (ρ/β)·g/‖g‖ on the chosen tensors."""
    beta, gamma = settings.options["beta"], settings.options["gamma"]
    g = problem.gradient(w, t)
    sizes = [size for _, size in problem.tensors]
    chosen = torch.cat([torch.full((size,), settings.chosen(t, i)) for i, size in enumerate(sizes)])
    there = w + torch.where(chosen, settings.rho / beta * g / g.norm(), torch.zeros_like(g))
    rise = problem.losses(there, t) - problem.losses(w, t)
    worst = rise.argsort(descending=True)[: ceil(gamma * len(rise))]
    return problem.gradient(there, t, worst)


def ssam_fisher(problem: Problem, w: Tensor, t: int, settings: Settings) -> Tensor:
    """∇L(w + ρ·m⊙g/‖g‖), m the entries with the largest Σ_i (∂ℓ_i)²."""
    if settings.count % settings.options["every"] == 0:
        samples = range(int(settings.options["samples"]))
        information = sum(problem.gradient(w, t, torch.tensor([i])) ** 2 for i in samples)
        assert isinstance(information, Tensor)
        settings.memory["mask"] = _first(information.argsort(descending=True), len(w), settings)
    return _masked(problem, w, t, settings)


def ssam_dynamic(problem: Problem, w: Tensor, t: int, settings: Settings) -> Tensor:
    """∇L(w + ρ·m⊙g/‖g‖), m random at first; then the weakest live entries make room for random dead ones."""
    if settings.count == 0:
        settings.memory["mask"] = _first(settings.shuffled(t, len(w)), len(w), settings)
    elif settings.count % settings.options["every"] == 0:
        mask = settings.memory["mask"].clone()
        live, dead = torch.where(mask)[0], torch.where(~mask)[0]
        share = settings.options["drop"] * (1 + cos(pi * t / settings.T)) / 2
        moving = min(int(share * len(live)), len(dead))
        weakest = live[problem.gradient(w, t)[live].abs().argsort()[:moving]]
        mask[weakest] = False
        mask[dead[settings.shuffled(t, len(dead))[:moving]]] = True
        settings.memory["mask"] = mask
    return _masked(problem, w, t, settings)


def _first(order: Tensor, total: int, settings: Settings) -> Tensor:
    mask = torch.zeros(total, dtype=torch.bool)
    mask[order[: round((1 - settings.options["sparsity"]) * total)]] = True
    return mask


def _masked(problem: Problem, w: Tensor, t: int, settings: Settings) -> Tensor:
    g = problem.gradient(w, t)
    return problem.gradient(w + settings.rho * settings.memory["mask"] * g / g.norm(), t)


def fsam(problem: Problem, w: Tensor, t: int, settings: Settings) -> Tensor:
    """∇L(w + ρ·d/‖d‖), d = g − σ·m, m = λ·m + (1 − λ)·g from m = 0."""
    g, lam = problem.gradient(w, t), settings.options["lam"]
    m = lam * settings.memory.get("mean", torch.zeros_like(w)) + (1 - lam) * g
    settings.memory["mean"] = m
    d = g - settings.options["sigma"] * m
    return problem.gradient(w + settings.rho * d / d.norm(), t)


def vasso(problem: Problem, w: Tensor, t: int, settings: Settings) -> Tensor:
    """∇L(w + ρ·d/‖d‖), d = (1 − θ)·d + θ·g from d = g."""
    g, theta = problem.gradient(w, t), settings.options["theta"]
    d = (1 - theta) * settings.memory.get("mean", g) + theta * g
    settings.memory["mean"] = d
    return problem.gradient(w + settings.rho * d / d.norm(), t)


def sam_on(problem: Problem, w: Tensor, t: int, settings: Settings) -> Tensor:
    """∇L(w + ρ·g/‖g‖) with g set to zero outside of normalization layers."""
    g = problem.gradient(w, t)
    in_norm = torch.cat([torch.full((size,), name in problem.norm_tensors) for name, size in problem.tensors])
    g = torch.where(in_norm, g, torch.zeros_like(g))
    return problem.gradient(w + settings.rho * g / g.norm(), t)


def s2sam(problem: Problem, w: Tensor, t: int, settings: Settings) -> Tensor:
    """∇L(w + ρ·g/‖g‖), g the gradient of the step before; ∇L(w) at the first step."""
    return _ahead(problem, w, t, settings.rho, settings.memory.get("last"))


def msam(problem: Problem, w: Tensor, t: int, settings: Settings) -> Tensor:
    """∇L(w − ρ·v/‖v‖), v the momentum before the step; ∇L(w) at the first step."""
    return _ahead(problem, w, t, -settings.rho, settings.memory.get("momentum"))


def _ahead(problem: Problem, w: Tensor, t: int, rho: float, direction: Tensor | None) -> Tensor:
    return problem.gradient(w if direction is None else w + rho * direction / direction.norm(), t)


REFERENCES: dict[str, Rule] = {
    "sam": sam,
    "asam": asam,
    "gsam": gsam,
    "looksam": looksam,
    "esam": esam,
    "ssam-fisher": ssam_fisher,
    "ssam-dynamic": ssam_dynamic,
    "fsam": fsam,
    "vasso": vasso,
    "sam-on": sam_on,
    "s2sam": s2sam,
    "msam": msam,
}


def closed_form(schedule: Any) -> float:
    """Return the limit of the mean of p for large T, as the paper's tables print it."""
    match schedule if isinstance(schedule, dict) else schedule.to_dict():
        case {"family": "constant", "p": p}:
            return p
        case {"family": "piecewise", "a": a, "b": b}:
            return 1.0 + 2.0 * a * b - b - a
        case {"family": "linear", "p0": p0, "p1": p1, "u0": u0, "u1": u1}:
            return p0 + (p1 - p0) * (0.5 - u0) / (u1 - u0)
        case {"family": "linear_group1", "m": m}:
            return m
        case {"family": "linear_group2" | "cos1" | "cos2"}:
            return 0.5
        case {"family": "sin1"}:
            return 2.0 / pi
        case {"family": "sin2"}:  # the paper's table prints 2/π
            return 1.0 - 2.0 / pi
        case {"family": "warmup", "w": w, "then": then}:
            return (1.0 - w) * closed_form(then)
        case {"family": "interpolate", "points": points}:
            inside = sum((u1 - u0) * (p0 + p1) / 2.0 for (u0, p0), (u1, p1) in pairwise(points))
            return inside + points[0][0] * points[0][1] + (1.0 - points[-1][0]) * points[-1][1]
        case {"c": c, "shape": _}:
            return c
    raise AssertionError(f"no closed form of {schedule}")
