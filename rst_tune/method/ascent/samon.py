"""SAM-ON: the perturbation is restricted to the parameters of normalization layers."""

from typing import ClassVar

from torch import nn
from torch.optim import Optimizer

from rst_tune.errors import InputError
from rst_tune.method.ascent.rule import AscentContext, Perturbation, Rule
from rst_tune.method.vectors import ratio


class SAMON(Rule):
    """eps = rho · g1_N/‖g1_N‖ on the parameters N of normalization layers, 0 on all others; g_rule = g2.

    N are the own parameters of every module whose class name has "norm" in it: BatchNorm, LayerNorm, GroupNorm,
    RMSNorm and those of other libraries. (The authors' code looks for "norm" or "bn" in the names of parameters.) They
    are few, so a larger rho than that of SAM fits. Müller, Vlaar, Rolnick and Hein, NeurIPS 2023, arXiv 2306.04226.
    """

    name: ClassVar[str] = "sam-on"

    def attach(self, model: nn.Module, base: Optimizer) -> None:  # noqa: ARG002
        """Find the parameters of the normalization layers. Raises if there are none."""
        self._names = frozenset(
            f"{prefix}.{name}" if prefix else name
            for prefix, module in model.named_modules()
            if "norm" in type(module).__name__.lower()
            for name, _ in module.named_parameters(recurse=False)
        )
        if not self._names:
            raise InputError(
                "rule 'sam-on' perturbs normalization layers only, but the model has none with parameters: "
                "use another rule, or a model with BatchNorm or LayerNorm"
            )

    def perturbation(self, context: AscentContext) -> Perturbation:
        """Return rho · g1_N/‖g1_N‖."""
        chosen = [place for place in range(len(context.params)) if context.name(place) in self._names]
        vectors = [context.ascent_grads[place] for place in chosen]
        params = [context.params[place] for place in chosen]
        return Perturbation(params, vectors, ratio(context.rho, context.norm(vectors)))
