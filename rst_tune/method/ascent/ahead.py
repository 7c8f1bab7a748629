"""Rules that pass ahead: the only pass of a step is taken at w + eps, with eps known before it."""

from collections.abc import Sequence
from typing import ClassVar

from rst_tune.method.ascent.rule import Rule


class AheadRule(Rule):
    """A rule without a second pass: X_t = 1 takes the only pass at w + eps, X_t = 0 at w. Zero extra pairs.

    - gamma_gnr: there is one gradient and no mix, so only 1 is accepted; neither is `cap`, a multiple of ‖g1‖.
    - Batch-norm statistics: updated by the only pass, at w + eps.
    - Dropout masks: drawn once, in the only pass.
    - DDP: every pass is synchronized, and eps is made of synchronized gradients, so it is equal on all ranks.
    - GradScaler: eps depends on a direction only, so the loss scale cancels; a non-finite eps counts as 0.
    - Accumulation: all closures of a step are evaluated at the same w + eps.
    """

    passes_ahead: ClassVar[bool] = True

    @property
    def needs_global_grad(self) -> bool:
        """The only gradient of the step is the one the base optimizer uses, so ranks always exchange it."""
        return True

    def expected_pairs(self, p: Sequence[float], batch_size: int | None = None) -> float:  # noqa: ARG002
        """Return 0."""
        return 0.0
