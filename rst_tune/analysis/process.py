"""The Gaussian process behind the belief: how smooth it is, and what the runs that broke down add to it."""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, WhiteKernel
from threadpoolctl import threadpool_limits

from rst_tune.analysis.kernel import GroupedMatern

__all__ = ["Tail", "conditioned", "fitted", "noise_sd", "tail_of"]

Array = NDArray[np.float64]

# What the scales are before any trial: variance, length and noise, the first and the last in units of the variance of
# the targets. Thirty noisy trials do not fix five numbers by themselves; thousands do, whatever is believed before.
VARIANCE, LENGTH, NOISE = 1.5, 1.2, 0.4
# How far (one standard deviation of the logarithm) a task may well be from that.
VARIED = 0.3
# Over what distance trainings break down alike, and how many calm ones each point is believed to have seen: for the
# chance of a breakdown, and for the mean error, which a single one must not move far.
NEAR, CALM, CALM_OF_MEAN = 0.5, 10.0, 40.0
# A single breakdown counts at most as so many times the error that is typical there.
WORST = 10.0


def fitted(features: Array, kinds: int, target: Array, seed: int) -> Any:
    """Return the process with the most probable scales."""
    sizes = _sizes(kinds)
    smooth = GroupedMatern((LENGTH,) * len(sizes), sizes)
    kernel = ConstantKernel(VARIANCE, (1e-2, 1e2)) * smooth + WhiteKernel(NOISE, (1e-3, 2.0))
    model = GaussianProcessRegressor(kernel, normalize_y=True, random_state=seed, optimizer=_most_probable)
    with warnings.catch_warnings():
        # A length scale at its bound says that the error is flat: no news to a user.
        warnings.simplefilter("ignore", ConvergenceWarning)
        # Matrices this small are several times slower on many threads.
        with threadpool_limits(1):
            return model.fit(features, target)


def _sizes(kinds: int) -> tuple[int, ...]:
    return (1, 1, kinds) if kinds else (1, 1)


def _most_probable(objective: Any, typical: Array, bounds: Array) -> tuple[Array, float]:
    """Return the logarithms of the scales with the highest posterior density, starting from the typical ones."""

    def penalised(theta: Array) -> tuple[float, Array]:
        value, gradient = objective(theta)
        away = (theta - typical) / VARIED
        return value + float(away @ away) / 2, gradient + away / VARIED

    found = minimize(penalised, typical, jac=True, bounds=bounds.tolist(), method="L-BFGS-B")
    return found.x, found.fun


def conditioned(scales: Any, features: Array, target: Array) -> Any:
    """Return a process whose scales are given."""
    with threadpool_limits(1):
        return GaussianProcessRegressor(scales, normalize_y=True, optimizer=None).fit(features, target)


def noise_sd(model: Any) -> float:
    """Return the spread between seeds, in the units of the target."""
    return float(np.sqrt(model.kernel_.k2.noise_level) * model._y_train_std)


@dataclass(frozen=True, kw_only=True)
class Tail:
    """How much more than the typical error the mean error is, because some seeds break down.

    The process sees logarithms, and of a breakdown only that it happened: it believes in typical errors. The ratio of
    each error to the typical one there, averaged over the neighbourhood, makes a mean of it. Far from all breakdowns
    the factor is near 1.
    """

    features: Array
    ratios: Array
    broken: Array
    nearness: GroupedMatern

    def factor(self, features: Array) -> Array:
        """Return mean error over typical error at some features."""
        return self._near(features, self.ratios, usual=1.0, calm=CALM_OF_MEAN)

    def chance(self, features: Array) -> Array:
        """Return how likely a training breaks down at some features."""
        return self._near(features, self.broken, usual=0.0, calm=CALM)

    def _near(self, features: Array, values: Array, *, usual: float, calm: float) -> Array:
        weight = self.nearness(features, self.features)
        return np.asarray((calm * usual + weight @ values) / (calm + weight.sum(axis=1)))


def tail_of(model: Any, features: Array, kinds: int, errors: Array, cut: float) -> Tail:
    """Return the tail that the errors have over what the process believes to be typical; above `cut` they broke."""
    sizes = _sizes(kinds)
    ratios = np.minimum(errors / np.exp(model.predict(features)), WORST)
    nearness = GroupedMatern((NEAR,) * len(sizes), sizes)
    return Tail(features=features, ratios=ratios, broken=(errors > cut).astype(float), nearness=nearness)
