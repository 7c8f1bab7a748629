"""A prior for a new search, learnt from earlier ones: other data, other models, other lengths.

The coefficients b of the prior mean and the kernel parameters differ between tasks, by the standard deviations s of the
shipped prior. Of that variance the part `COMMON` is taken to be common to the tasks of one user, and the rest to belong
to each task:

    b_task = centre + c + d_task,    c ~ N(0, COMMON·s²),    d_task ~ N(0, (1 - COMMON)·s²).

Each earlier search is fitted alone, with the shipped prior. What its trials say about its own b (the precision of the
posterior minus that of the prior) says less about c, by the variance of d. The new prior is the posterior of c plus the
variance of d of the new task: however many searches there are, its standard deviation stays above sqrt(1 - COMMON) of
the shipped one, so a task that is unlike them is learnt from its own trainings.

The level of the error belongs to a task and is not transferred. Unit and direction of the metric may differ, because
targets are logarithms of errors. The scale k multiplies radii in units of the recipe's: to transfer it assumes that the
radii of both recipes suit their tasks equally well.
"""

from collections.abc import Sequence
from dataclasses import astuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from rst_tune.analysis.analysis import surrogate_of
from rst_tune.analysis.surrogate import MIN_TRIALS, PRIOR, Surrogate, transformed
from rst_tune.errors import InputError
from rst_tune.records import EarlierSearch, Prior, Search

Array = NDArray[np.float64]
# The part of the variance between tasks that the tasks of one user share. With 0.8 predictions are worse (docs/log.md).
COMMON = 0.5
DIGITS = 4
CURVATURE_STEP = 1e-3


def learn_prior(searches: Sequence[Search], shipped: Prior = PRIOR) -> Prior:
    """Return the prior that earlier searches inform; each needs `MIN_TRIALS` finished trials.

    An earlier search counts with its own trials alone, whatever it was itself started from.
    """
    coefficients, kernels = [], []
    for search in searches:
        fitted = surrogate_of(search, shipped)
        if fitted is None:
            raise InputError(
                f"an earlier search needs {MIN_TRIALS} finished trials, but {search.directory} has "
                f"{len(search.finished())}: let it run on, or leave it out"
            )
        mean, covariance = coefficient_posterior(fitted)
        coefficients.append((mean[1:], np.asarray(np.linalg.inv(covariance[1:, 1:]), dtype=np.float64)))
        kernels.append(kernel_posterior(fitted))
    mean, mean_sd = _combined(np.array(shipped.mean[1:]), np.array(shipped.mean_sd[1:]), coefficients)
    kernel, kernel_sd = _combined(transformed(shipped.kernel), np.array(shipped.kernel_sd), kernels)
    numbers = {
        "mean": [shipped.mean[0], *mean],
        "mean_sd": [shipped.mean_sd[0], *mean_sd],
        "kernel": [*np.exp(kernel[:4]), special.expit(kernel[4])],
        "kernel_sd": kernel_sd,
    }
    rounded = {name: np.round(np.asarray(values, dtype=float), DIGITS).tolist() for name, values in numbers.items()}
    return Prior.model_validate({**rounded, "searches": [_named(search) for search in searches]})


def coefficient_posterior(fitted: Surrogate) -> tuple[Array, Array]:
    """Return the posterior mean and covariance of the coefficients b of a surrogate."""
    spread = np.diag(np.square(fitted.prior.mean_sd))
    cross = spread @ fitted.design.basis(fitted.params.scale).T
    half = fitted.solved(cross)
    return np.asarray(fitted.prior.mean + cross @ fitted.weights), np.asarray(spread - half.T @ half)


def kernel_posterior(fitted: Surrogate) -> tuple[Array, Array]:
    """Return the fitted kernel parameters of a surrogate, transformed, and their posterior precision.

    The precision is the curvature of the objective, by differences of its gradient.
    """
    theta, objective = transformed(astuple(fitted.params)), fitted.objective()
    steps = CURVATURE_STEP * np.eye(len(theta))
    rows = [(objective(theta + h)[1] - objective(theta - h)[1]) / (2 * CURVATURE_STEP) for h in steps]
    return theta, np.asarray((np.array(rows) + np.array(rows).T) / 2)


def _named(search: Search) -> EarlierSearch:
    return EarlierSearch(name=search.name, uid=search.header.uid, trials=len(search.finished()))


def _combined(centre: Array, sd: Array, found: Sequence[tuple[Array, Array]]) -> tuple[Array, Array]:
    """Return mean and standard deviation for a new task, from (posterior mean, posterior precision) of earlier ones."""
    own = np.diag(1 / ((1 - COMMON) * sd**2))  # the precision of d
    total, moved = np.diag(1 / (COMMON * sd**2)), np.zeros(len(centre))
    for mean, precision in found:
        evidence = _positive(precision - np.diag(1 / sd**2))  # of the trials, without the prior
        kept = own @ np.linalg.inv(evidence + own)
        total = total + kept @ evidence
        moved = moved + kept @ (evidence + np.diag(1 / sd**2)) @ (mean - centre)
    covariance = np.linalg.inv(total)
    return centre + covariance @ moved, np.sqrt(np.diag(covariance) + (1 - COMMON) * sd**2)


def _positive(matrix: Array) -> Array:
    """Return the nearest positive semidefinite matrix: a curvature by differences may lie a little below."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    return np.asarray((vectors * np.maximum(values, 0.0)) @ vectors.T)
