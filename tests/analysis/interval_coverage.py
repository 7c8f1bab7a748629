"""The share of held-out trials that an interval covers."""

from collections.abc import Sequence

import numpy as np

from rst_tune.analysis.surrogate import Surrogate
from rst_tune.records import Trial


def coverage(surrogate: Surrogate, held_out: Sequence[Trial], level: float = 0.9) -> float:
    """Return the share of trials whose error lies in the interval of a training."""
    low, high = surrogate.interval([trial.config for trial in held_out], level)
    errors = np.array([float(trial.error or 0.0) for trial in held_out])
    return float(np.mean((low <= errors) & (errors <= high)))
