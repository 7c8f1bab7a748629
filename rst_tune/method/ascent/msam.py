"""MSAM: one pass per step, at the weights perturbed along the momentum of the base optimizer."""

from typing import ClassVar

from torch import Tensor, nn
from torch.optim import Optimizer

from rst_tune.errors import InputError
from rst_tune.method.ascent.ahead import AheadRule
from rst_tune.method.ascent.rule import AscentContext, Perturbation
from rst_tune.method.vectors import local, ratio

BUFFERS = ("momentum_buffer", "exp_avg")


class MSAM(AheadRule):
    """eps_t = −rho · v/‖v‖ and g_t = ∇L(w_t + eps_t), v the momentum of the base optimizer before the step.

    v accumulates gradients, and the base optimizer descends along −v; so eps points ahead, in the direction of the
    descent. This is the sign of the paper (Algorithm 1 there) and of its authors' code. v is `momentum_buffer` of SGD
    or `exp_avg` of Adam and AdamW, with the weight decay that the base optimizer adds to its gradients (at w; the
    authors' code adds it at w + eps). eps = 0 before v exists. Becker, Altrock and Risse, arXiv 2401.12033.
    """

    name: ClassVar[str] = "msam"

    def attach(self, model: nn.Module, base: Optimizer) -> None:  # noqa: ARG002
        """Keep the base optimizer. Raises if one of its groups has no momentum."""
        for group in base.param_groups:
            betas = group.get("betas")
            if not (betas[0] if betas else group.get("momentum", 0.0)) > 0.0:
                raise InputError(
                    f"rule 'msam' perturbs along the momentum of the base optimizer, but {type(base).__name__} has "
                    "none: give it momentum (SGD) or betas[0] > 0 (Adam, AdamW), or use rule 's2sam'"
                )
        self._base = base

    def perturbation(self, context: AscentContext) -> Perturbation:
        """Return −rho · v/‖v‖."""
        params, vectors = list[Tensor](), list[Tensor]()
        for param, index in zip(context.params, context.indices, strict=True):
            state = self._base.state.get(context.all_params[index], {})
            if (momentum := next((state[name] for name in BUFFERS if state.get(name) is not None), None)) is not None:
                params.append(param)
                vectors.append(local(momentum))
        return Perturbation(params, vectors, ratio(-context.rho, context.norm(vectors)))
