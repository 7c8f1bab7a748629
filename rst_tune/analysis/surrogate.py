"""A Gaussian process over everything that a search varies, with a prior mean that knows sharpness-aware training.

The logarithm of the error of a configuration x is

    y(x) = b·φ(x; k) + f(x) + noise,

    φ = 1, L, L²                        L = log2 of the horizon: the base optimizer's own dependence on the length
        tanh(k·effect)/(1 + q)          the gain of regularization
        q/(1 + q)                       the loss of a training that breaks down
    q = (k·strain / (S·horizon^A))^6    short trainings break down at a smaller strain

with a normal prior over the coefficients b, a Matérn 5/2 process f with one length scale per group of features, and one
scale k per task, because radii are not comparable between tasks. The prior of b is wide enough to learn that
sharpness-aware training does not pay: it was measured over the tasks of `experiments/benchmarks/suite.py`.

Errors above the worst baseline's are clipped: such a training is of no use, and its exact error would only widen the
scale. `errors` and `log_errors` are about the true mean error, diverged seeds included; `interval` is about a single
training, with the noise between seeds that the same fit estimates.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, stats
from scipy.optimize import minimize
from threadpoolctl import threadpool_limits

from rst_tune.analysis.features import FeatureEncoding
from rst_tune.errors import InputError
from rst_tune.records import Role, Trial, TrialConfig

__all__ = ["MIN_TRIALS", "KernelParams", "Surrogate", "fit_surrogate"]

Array = NDArray[np.float64]

MIN_TRIALS = 6
MAX_TRIALS = 200  # the fit costs the cube of this
MIN_ERROR = 1e-3
CLIP = 1.1  # times the worst baseline

# The prior of the coefficients b: mean and standard deviation for 1 (about the mean of the targets), L, L², gain, loss.
MEAN_PRIOR = np.array([0.0, 0.0, 0.05, -0.3, 0.6])
MEAN_SD = np.array([0.5, 0.2, 0.1, 0.35, 0.5])
STRAIN_LIMIT, STRAIN_EXPONENT = 2.7, 0.4
# The prior of the kernel parameters, as logarithms with one standard deviation each.
AMPLITUDE, NOISE, SCALE, LENGTH = 0.2, 0.15, 1.0, 1.0
PRIOR_SD = np.array([0.4, 0.4, 0.5, 0.3])
# One length per group, in units of its features: length, effect, strain, lateness, radius, kind, options.
LENGTHS = np.array([1.5, 1.5, 1.5, 1.0, 1.5, 1.2, 2.0])
# The number of stable trainings that the prior of the divergence model is worth, and its length scale.
DIVERGENCE_LENGTH, STABLE_PSEUDOCOUNT, STABLE_PSEUDOCOUNT_OF_MEAN = 0.5, 10.0, 40.0
MAX_ERROR_RATIO = 10.0  # a single divergence counts with at most this multiple of the predicted error


@dataclass(frozen=True)
class KernelParams:
    """Standard deviation of the process, noise between seeds, scale of the task, and a factor on all lengths."""

    amplitude: float = AMPLITUDE
    noise: float = NOISE
    scale: float = SCALE
    length: float = LENGTH


def _basis(configs: Sequence[TrialConfig], scale: float) -> Array:
    """Return φ, one row per configuration."""
    horizon = np.array([c.horizon for c in configs])
    effect, strain = (scale * np.array([getattr(c, name) for c in configs]) for name in ("effect", "strain"))
    octaves = np.log2(horizon)
    q = np.minimum(strain / (STRAIN_LIMIT * horizon**STRAIN_EXPONENT), 20.0) ** 6
    return np.column_stack([np.ones(len(configs)), octaves, octaves**2, np.tanh(effect) / (1 + q), q / (1 + q)])


def _matern(x: Array, y: Array, lengths: Array) -> Array:
    x, y = x / lengths, y / lengths
    square = (x**2).sum(axis=1)[:, None] + (y**2).sum(axis=1)[None, :] - 2 * x @ y.T
    a = np.sqrt(5 * np.maximum(square, 0.0))
    return np.asarray((1 + a + a**2 / 3) * np.exp(-a))


@dataclass(frozen=True, kw_only=True)
class Surrogate:
    """The posterior. `configs` and `target` (log errors) are what it is conditioned on; `base` is their mean."""

    encoding: FeatureEncoding
    params: KernelParams
    configs: tuple[TrialConfig, ...]
    target: Array
    base: float
    errors_seen: Array
    outlier: float

    @property
    def kernel_params(self) -> KernelParams:
        """What was fitted: given to `fit_surrogate`, it is not fitted again."""
        return self.params

    @property
    def noise_sd(self) -> float:
        """The standard deviation of log error between seeds."""
        return self.params.noise

    def prior_covariance(self, left: Sequence[TrialConfig], right: Sequence[TrialConfig]) -> Array:
        """Return the prior covariance of the true log errors."""
        lengths = self.params.length * LENGTHS[list(self.encoding.groups)]
        smooth = _matern(self.encoding.encode(left), self.encoding.encode(right), lengths)
        rows, columns = (_basis(configs, self.params.scale) * MEAN_SD for configs in (left, right))
        return np.asarray(self.params.amplitude**2 * smooth + rows @ columns.T)

    def prior_mean(self, configs: Sequence[TrialConfig]) -> Array:
        """Return the prior mean of the log errors."""
        return np.asarray(self.base + _basis(configs, self.params.scale) @ MEAN_PRIOR)

    @cached_property
    def _factor(self) -> tuple[Array, bool]:
        covariance = self.prior_covariance(self.configs, self.configs)
        covariance[np.diag_indices_from(covariance)] += self.params.noise**2
        return linalg.cho_factor(covariance, lower=True, check_finite=False)  # type: ignore[no-any-return]

    @cached_property
    def _weights(self) -> Array:
        residual = self.target - self.prior_mean(self.configs)
        return np.asarray(linalg.cho_solve(self._factor, residual, check_finite=False))

    def posterior(self, configs: Sequence[TrialConfig]) -> tuple[Array, Array]:
        """Return mean and covariance of the true log errors, diverged seeds not included."""
        cross = self.prior_covariance(configs, self.configs)
        mean = self.prior_mean(configs) + cross @ self._weights
        solved = linalg.cho_solve(self._factor, cross.T, check_finite=False)
        return np.asarray(mean), np.asarray(self.prior_covariance(configs, configs) - cross @ solved)

    def log_errors(self, configs: Sequence[TrialConfig]) -> tuple[Array, Array]:
        """Return mean and standard deviation of the logarithm of each configuration's true mean error."""
        mean, covariance = self.posterior(configs)
        sd = np.sqrt(np.maximum(np.diag(covariance), 1e-12))
        return mean + np.log(self.divergence_factor(configs)), sd

    def errors(self, configs: Sequence[TrialConfig]) -> Array:
        """Return the posterior mean error of each configuration, in percent."""
        return np.asarray(np.exp(self.log_errors(configs)[0]))

    def interval(self, configs: Sequence[TrialConfig], level: float = 0.9) -> tuple[Array, Array]:
        """Return lower and upper ends of the interval of the error of one training of each configuration.

        Where a training diverges with more than half of the remaining probability, the upper end is 100 %.
        """
        mean, covariance = self.posterior(configs)
        sd = np.sqrt(np.maximum(np.diag(covariance), 0.0) + self.noise_sd**2)
        half = float(stats.norm.ppf(0.5 + level / 2)) * sd
        diverges = self.divergence_probability(configs) > (1 - level) / 2
        return np.exp(mean - half), np.where(diverges, 100.0, np.exp(mean + half))

    def condition_on(self, configs: Sequence[TrialConfig]) -> "Surrogate":
        """Return the surrogate as if each of these had been trained once, with the predicted error as the result."""
        if not configs:
            return self
        predicted = self.posterior(configs)[0]
        return replace(
            self,
            configs=(*self.configs, *configs),
            target=np.append(self.target, predicted),
            errors_seen=np.append(self.errors_seen, np.exp(predicted)),
        )

    # --- divergence: local averages over the trials ---------------------------------------------------------------

    def divergence_factor(self, configs: Sequence[TrialConfig]) -> Array:
        """Return the mean error over the error without divergence; near 1 far from diverged trials."""
        ratios = np.minimum(self.errors_seen / np.exp(self._fitted), MAX_ERROR_RATIO)
        return self._local_average(configs, np.maximum(ratios, 1.0), 1.0, STABLE_PSEUDOCOUNT_OF_MEAN)

    def divergence_probability(self, configs: Sequence[TrialConfig]) -> Array:
        """Return the probability that a training diverges."""
        return self._local_average(configs, (self.errors_seen > self.outlier) * 1.0, 0.0, STABLE_PSEUDOCOUNT)

    @cached_property
    def _fitted(self) -> Array:
        return self.posterior(self.configs)[0]

    def _local_average(self, configs: Sequence[TrialConfig], values: Array, prior: float, pseudocount: float) -> Array:
        lengths = DIVERGENCE_LENGTH * LENGTHS[list(self.encoding.groups)]
        weight = _matern(self.encoding.encode(configs), self.encoding.encode(self.configs), lengths)
        return np.asarray((pseudocount * prior + weight @ values) / (pseudocount + weight.sum(axis=1)))


def fit_surrogate(
    trials: Sequence[Trial], *, kernel_params: KernelParams | None = None, known: Sequence[TrialConfig] = ()
) -> Surrogate:
    """Return the surrogate of finished trials; of more than 200 it uses the baselines, the replicates and a sample.

    Args:
        trials: finished trials, at least `MIN_TRIALS`.
        kernel_params: those of an earlier surrogate; they are not fitted again.
        known: configurations that will be predicted although no trial of their rule may have finished.
    """
    if len(trials) < MIN_TRIALS:
        raise InputError(f"a surrogate needs {MIN_TRIALS} finished trials, but there are {len(trials)}: run more")
    used = _sample(trials)
    errors = np.maximum([float(t.error or 0.0) for t in used], MIN_ERROR)
    outlier = 3.0 * float(np.quantile(errors, 0.25))
    worst = max((e for t, e in zip(used, errors, strict=True) if t.config.is_base), default=outlier / CLIP)
    target = np.log(np.minimum(errors, CLIP * worst))
    surrogate = Surrogate(
        encoding=FeatureEncoding.of([*(t.config for t in trials), *known]),
        params=kernel_params or KernelParams(),
        configs=tuple(t.config for t in used),
        target=target,
        base=float(np.median(target)),
        errors_seen=errors,
        outlier=max(outlier, CLIP * worst),
    )
    if kernel_params is not None:
        return surrogate
    with threadpool_limits(1):  # several times faster than many threads for matrices this small
        return replace(surrogate, params=_maximum_a_posteriori(surrogate))


def _maximum_a_posteriori(surrogate: Surrogate) -> KernelParams:
    """Return the kernel parameters of highest posterior density."""
    centre = np.log([AMPLITUDE, NOISE, SCALE, LENGTH])

    def objective(theta: Array) -> float:
        made = replace(surrogate, params=KernelParams(*np.exp(theta)))
        try:
            lower, _ = made._factor
        except linalg.LinAlgError:
            return 1e10
        residual = made.target - made.prior_mean(made.configs)
        fit = 0.5 * float(residual @ made._weights) + float(np.log(np.diag(lower)).sum())
        return fit + 0.5 * float((((theta - centre) / PRIOR_SD) ** 2).sum())

    bounds = [(c - 4 * s, c + 4 * s) for c, s in zip(centre, PRIOR_SD, strict=True)]
    found = minimize(objective, centre, method="L-BFGS-B", bounds=bounds, options={"maxiter": 15})
    return KernelParams(*np.exp(found.x))


def _sample(trials: Sequence[Trial]) -> list[Trial]:
    """Return at most `MAX_TRIALS` trials: baselines and replicates first, the others at random."""
    if len(trials) <= MAX_TRIALS:
        return list(trials)
    order = np.random.default_rng(0).permutation(len(trials)).tolist()
    order.sort(key=lambda i: trials[i].role is not Role.CONFIRM and not trials[i].config.is_base)
    return [trials[i] for i in sorted(order[:MAX_TRIALS])]
