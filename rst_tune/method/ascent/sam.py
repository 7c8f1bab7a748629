"""SAM: ascend by rho along the gradient, descend with the gradient there."""

from typing import ClassVar

from rst_tune.method.ascent.rule import Rule


class SAM(Rule):
    """eps = rho · g1 / ‖g1‖; g_rule = g2 = ∇L(w + eps).

    Foret, Kleiner, Mobahi and Neyshabur, ICLR 2021.
    """

    name: ClassVar[str] = "sam"
