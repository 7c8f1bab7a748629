"""What an ascent rule answers: whether a second pass is due, where to go up, and what gradient comes of it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from rst_tune.errors import InputError
from rst_tune.method.vectors import Scale, norm, ratio

__all__ = ["PAIRS_OF_A_FORWARD", "AscentContext", "Closure", "PerSample", "Perturbation", "Rule", "in_unit"]

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
    samples in the first pass, if `needs_sample_losses`.
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
    closures: Sequence[Closure]
    per_sample: Sequence[PerSample] | None
    losses: list[Tensor]


@dataclass(frozen=True)
class Perturbation:
    """eps = scale · vectors on these parameters, 0 on the others."""

    params: list[Tensor]
    vectors: list[Tensor]
    scale: Scale


@dataclass(kw_only=True)
class Rule:
    """One ascent rule. The defaults are those of SAM; a rule states only what it does otherwise.

    Fields are the options of the rule. State is kept in attributes and goes through `state_dict`.
    """

    name: ClassVar[str]
    descends_with_g2: ClassVar[bool] = True
    """Whether g_rule is g2 itself, so that autograd can form the mix and g1 need not be kept."""

    @property
    def needs_global_grad(self) -> bool:
        """Whether the rule needs the gradient of all ranks, and so a global eps, because it keeps or projects it."""
        return not self.descends_with_g2

    @property
    def expected_pairs(self) -> float:
        """Return the expected extra pairs of a sharpness-aware iteration."""
        return 1.0

    def second_pass_due(self) -> bool:
        """Return whether this sharpness-aware iteration takes a second pass. Known before the first."""
        return True

    def needs_sample_losses(self) -> bool:
        """Return whether this iteration needs the losses of single samples."""
        return False

    def prepare(self, context: AscentContext) -> float:  # noqa: ARG002
        """Do what is due between the passes, and return the pairs it took."""
        return 0.0

    def perturbation(self, context: AscentContext) -> Perturbation:
        """Return eps at w; for SAM rho · g1 / ‖g1‖."""
        return Perturbation(context.params, context.ascent_grads, ratio(context.rho, norm(context.ascent_grads)))

    def second_closures(self, context: AscentContext) -> tuple[Sequence[Closure], float]:
        """Return the losses of the second pass and the pairs it takes. Called at w + eps."""
        return context.closures, 1.0

    def gradient(self, context: AscentContext, g1: list[Tensor], g2: list[Tensor] | None) -> list[Tensor]:
        """Return g_rule of a rule that is not linear; g2 is None when no second pass was due."""
        raise NotImplementedError

    def on_step_end(self) -> None:
        """Take note that one sharpness-aware iteration is over."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state that a resumed run needs, as plain data and tensors."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up the state of `state_dict`."""
        if state:
            raise InputError(f"rule {self.name!r} keeps no state, but got {sorted(state)}: another rule saved it")


def in_unit(rule: str, name: str, value: float, *, above_zero: bool = True) -> None:
    """Raise unless the option is a share: in (0, 1], or in [0, 1)."""
    good = 0.0 < value <= 1.0 if above_zero else 0.0 <= value < 1.0
    if not good:
        bounds = f"0 < {name} <= 1" if above_zero else f"0 <= {name} < 1"
        raise InputError(f"{bounds} must hold for rule {rule!r}, but got {name} = {value!r}: it is a share")
