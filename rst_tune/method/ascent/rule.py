"""The protocol of an ascent rule: which passes an iteration takes, eps, and the gradient that results."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from math import fsum
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from rst_tune.errors import InputError
from rst_tune.method import vectors
from rst_tune.method.vectors import Scale, ratio

Closure = Callable[[], Tensor]
PerSample = Callable[[Tensor | None], Tensor]
"""`per_sample(None)` returns the losses of all samples of the batch, `per_sample(indices)` those of some."""

PAIRS_OF_A_FORWARD = 1.0 / 3.0
"""A forward pass without its backward, in forward-backward pairs: a backward costs about two forwards."""


@dataclass
class AscentContext:
    """Inputs of a rule in one sharpness-aware iteration. Gradients are still multiplied by the loss scale.

    `params` are the parameters with a gradient and `indices` their positions in `all_params`. `g1` is their gradient
    at w, `ascent_grads` the gradient for the ascent (g1, or g1 with the weight decay). `losses` are the losses of the
    samples in the first pass, if `needs_sample_losses`. For a rule that `passes_ahead` there is no gradient yet:
    `params` are the trained parameters, `g1` and `ascent_grads` are empty. With FSDP2 all tensors but `all_params` are
    local shards, and `norm` and `dot` are sums over the ranks of `shard_group`.
    """

    t: int
    T: int
    seed: int
    rho: float
    lr: float
    params: list[Tensor]
    indices: list[int]
    g1: list[Tensor]
    ascent_grads: list[Tensor]
    all_params: list[Tensor]
    names: Mapping[int, str]
    model: nn.Module
    closures: Sequence[Closure] = ()
    per_sample: Sequence[PerSample] | None = None
    losses: list[Tensor] = field(default_factory=list)
    scaler: torch.amp.GradScaler | None = None
    shard_group: Any = None

    @property
    def loss_scale(self) -> float:
        """The factor of all gradients. With a scaler on a device, reading it synchronizes."""
        return 1.0 if self.scaler is None else self.scaler.get_scale()

    @property
    def targets(self) -> list[Tensor]:
        """The parameters with a gradient, as the optimizer has them: `params`, or DTensors with FSDP2."""
        return [self.all_params[index] for index in self.indices]

    def name(self, place: int) -> str:
        """Return the name in the model of `params[place]`."""
        return self.names.get(id(self.all_params[self.indices[place]]), "")

    def norm(self, vector: list[Tensor]) -> Scale:
        """Return the Euclidean norm over all entries."""
        return vectors.norm(vector, self.shard_group)

    def dot(self, a: list[Tensor], b: list[Tensor]) -> Scale:
        """Return the inner product over all entries."""
        return vectors.dot(a, b, self.shard_group)


@dataclass(frozen=True)
class Perturbation:
    """eps = scale · vectors on these parameters, 0 on the others."""

    params: list[Tensor]
    vectors: list[Tensor]
    scale: Scale


@dataclass(kw_only=True)
class Rule:
    """One ascent rule. The defaults are those of SAM; a rule overrides what differs.

    Fields are the options of the rule. Those without an argument (`init=False`) are its state: counts, and tensors by
    the index of their parameter.
    """

    name: ClassVar[str]
    descends_with_g2: ClassVar[bool] = True
    """Whether g_rule is g2 itself, so that autograd can form the mix and g1 need not be kept."""
    passes_ahead: ClassVar[bool] = False
    """Whether the only pass of an iteration with X_t = 1 is taken at w + eps, with eps known before it."""
    keeps_vectors: ClassVar[bool] = False
    """Whether the rule keeps a vector or mask of all parameters between steps, which is not supported with FSDP2."""

    @property
    def needs_global_grad(self) -> bool:
        """Whether the rule needs the gradient of all ranks, and so a global eps, because it keeps or projects it."""
        return self.keeps_vectors or not self.descends_with_g2

    def expected_pairs(self, p: Sequence[float], batch_size: int | None = None) -> float:  # noqa: ARG002
        """Return the expected extra pairs of a training with the probabilities p(1) … p(T), in total.

        Args:
            p: the probability of X_t = 1 per iteration.
            batch_size: samples per step and rank, for rules whose cost depends on it.
        """
        return fsum(p)

    def attach(self, model: nn.Module, base: Optimizer) -> None:
        """Check that the rule fits the model and the base optimizer, and keep what it needs of them."""

    def second_pass_due(self) -> bool:
        """Return whether this sharpness-aware iteration takes a second pass. Known before the first."""
        return True

    def needs_sample_losses(self) -> bool:
        """Return whether this iteration needs the losses of single samples."""
        return False

    def prepare(self, context: AscentContext) -> float:  # noqa: ARG002
        """Do the work that is due between the passes, and return the pairs it took."""
        return 0.0

    def perturbation(self, context: AscentContext) -> Perturbation:
        """Return eps at w; for SAM rho · g1 / ‖g1‖."""
        grads = context.ascent_grads
        return Perturbation(context.params, grads, ratio(context.rho, context.norm(grads)))

    def second_closures(self, context: AscentContext) -> tuple[Sequence[Closure], float]:
        """Return the losses of the second pass and the pairs it takes. Called at w + eps."""
        return context.closures, 1.0

    def gradient(self, context: AscentContext, g1: list[Tensor], g2: list[Tensor] | None) -> list[Tensor]:  # noqa: ARG002
        """Return g_rule; g2 is None when no second pass was due."""
        assert g2 is not None
        return g2

    def after_pass(self, indices: list[int], grads: list[Tensor]) -> None:
        """Read the gradient of a step. Called in every step of a rule that `passes_ahead`."""

    def on_step_end(self) -> None:
        """Take notice of the end of a sharpness-aware iteration."""

    def unset(self, param: Tensor) -> Tensor:
        """Return what a parameter without a kept tensor is taken to have."""
        return torch.zeros_like(param, requires_grad=False)

    def state_dict(self, trained: Mapping[int, Tensor]) -> dict[str, Any]:
        """Return the state that a resumed run needs, as plain data and tensors.

        `trained` are the trained parameters by index: the keys of a state must not depend on the step, because
        torch.distributed.checkpoint loads into the state of a new optimizer.
        """
        state = {name: getattr(self, f"_{name}") for name in self._state_names()}
        for name, kept in state.items():
            if isinstance(kept, dict):
                state[name] = {**{i: self.unset(p) for i, p in trained.items() if i not in kept}, **kept}
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load a copy of the state that `state_dict` returned."""
        names = self._state_names()
        if set(state) != set(names):
            own = ", ".join(names) or "no state"
            raise InputError(f"rule {self.name!r} has {own}, but got {sorted(state)}: another rule saved it")
        for name, value in state.items():
            copied = {i: kept.clone() for i, kept in value.items()} if isinstance(value, dict) else int(value)
            setattr(self, f"_{name}", copied)

    def _check_share(self, name: str, *, above_zero: bool = True) -> None:
        """Raise unless the option is a share: in (0, 1], or in [0, 1)."""
        value = getattr(self, name)
        if not (0.0 < value <= 1.0 if above_zero else 0.0 <= value < 1.0):
            bounds = f"0 < {name} <= 1" if above_zero else f"0 <= {name} < 1"
            raise InputError(f"{bounds} must hold for rule {self.name!r}, but got {name} = {value!r}: it is a share")

    def _state_names(self) -> list[str]:
        return [f.name.removeprefix("_") for f in fields(self) if not f.init]


@dataclass(kw_only=True)
class CountingRule(Rule):
    """A rule that counts its sharpness-aware iterations."""

    _count: int = field(default=0, init=False)

    def on_step_end(self) -> None:
        """Count one sharpness-aware iteration."""
        self._count += 1
