"""A Gaussian process over (cost, degree, kind), fitted to the logarithm of the error of every finished trial.

Errors above 1.1 times the base optimizer's, or above three times the lower quartile where it was not run, are clipped:
such a training is of no use, and its exact error would only widen the scale. `errors` and `log_errors` are about
the true mean error, diverged seeds included; `interval` is about a single training, with the noise between seeds that
the same fit estimates.
"""

import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, WhiteKernel
from threadpoolctl import threadpool_limits

from rst_tune.analysis.features import FeatureEncoding
from rst_tune.analysis.kernel import GroupedMatern
from rst_tune.errors import InputError
from rst_tune.records import Role, Trial, TrialConfig

__all__ = ["MIN_TRIALS", "DivergenceModel", "Surrogate", "fit_surrogate"]

Array = NDArray[np.float64]

MIN_TRIALS = 6
MAX_TRIALS = 200  # the fit costs the cube of this
MIN_ERROR = 1e-3
# Errors are clipped here. Clipping at 1.1 times the base optimizer's error gained 0.04 of the hypervolume on the second
# benchmark task and nothing on the first (docs/log.md, 2026-11-17); three times the lower quartile alone clipped the
# base optimizer itself in the demo (third part of that day).
CLIP_BASE, CLIP_QUARTILE = 1.1, 3.0
# Prior of the kernel parameters: variance and noise in units of the targets' variance, the length scales in units of
# the features, and the standard deviation of their logarithms. Thirty noisy trials do not determine five numbers; held
# near typical values, with clipped errors, the sampler gained 0.03 to 0.12 over TPE and random sampling (docs/log.md,
# 2026-11-16, third part). Other values made no difference above two standard errors (2026-11-17, second part).
VARIANCE, LENGTH, NOISE, PRIOR_SD = 1.5, 1.2, 0.4, 0.3
# Length scale of the divergence model, and the number of stable trainings that its prior is worth: for the probability
# of a divergence and for the mean error. A prior of 40 for both made the 90 % interval cover 78 % of the trainings; one
# of 10 for both overstated the mean error next to a single divergence (docs/log.md, 2026-11-17, second part).
DIVERGENCE_LENGTH, STABLE_PSEUDOCOUNT, STABLE_PSEUDOCOUNT_OF_MEAN = 0.5, 10.0, 40.0
MAX_ERROR_RATIO = 10.0  # a single divergence counts with at most this multiple of the predicted error


@dataclass(frozen=True, kw_only=True)
class DivergenceModel:
    """Local averages over the trials: how often a training diverges, and by what factor that raises the mean error.

    The process is fitted to logarithms of clipped errors, so it predicts the error of a seed that does not diverge.
    `ratios` are the measured errors over the predicted ones, `diverged` is 1 for a trial that diverged, else 0.
    """

    features: Array
    ratios: Array
    diverged: Array
    kernel: GroupedMatern

    @classmethod
    def fit(cls, errors: Array, predicted: Array, features: Array, sizes: tuple[int, ...], limit: float) -> Self:
        """Return the model of errors above `limit`, which count as diverged, against the predicted errors."""
        return cls(
            features=features,
            ratios=np.minimum(errors / predicted, MAX_ERROR_RATIO),
            diverged=(errors > limit).astype(float),
            kernel=GroupedMatern((DIVERGENCE_LENGTH,) * len(sizes), sizes),
        )

    def mean_factor(self, features: Array) -> Array:
        """Return the mean error over the error without divergence; near 1 far from diverged trials."""
        return self._average(features, self.ratios, prior=1.0, pseudocount=STABLE_PSEUDOCOUNT_OF_MEAN)

    def probability(self, features: Array) -> Array:
        """Return the probability that a training diverges."""
        return self._average(features, self.diverged, prior=0.0, pseudocount=STABLE_PSEUDOCOUNT)

    def _average(self, features: Array, values: Array, *, prior: float, pseudocount: float) -> Array:
        weight = self.kernel(features, self.features)
        return np.asarray((pseudocount * prior + weight @ values) / (pseudocount + weight.sum(axis=1)))


@dataclass(frozen=True, kw_only=True)
class Surrogate:
    """The fitted process. `rule` is the rule tried most often."""

    model: Any
    divergence: DivergenceModel
    encoding: FeatureEncoding
    rule: str

    @property
    def families(self) -> tuple[str, ...]:
        """The families that it can predict."""
        return self.encoding.families

    @property
    def kernel_params(self) -> Any:
        """The fitted kernel: given to `fit_surrogate`, it replaces the fitting of the kernel parameters."""
        return self.model.kernel_

    @property
    def noise_sd(self) -> float:
        """The standard deviation of log error between seeds."""
        return float(np.sqrt(self.model.kernel_.k2.noise_level) * self.model._y_train_std)

    def errors(self, configs: Sequence[TrialConfig]) -> Array:
        """Return the posterior mean error of each configuration, in percent."""
        features = self.encoding.encode(configs)
        return np.asarray(np.exp(self.model.predict(features)) * self.divergence.mean_factor(features))

    def log_errors(self, configs: Sequence[TrialConfig]) -> tuple[Array, Array]:
        """Return mean and standard deviation of the logarithm of each configuration's true mean error."""
        features = self.encoding.encode(configs)
        mean, sd = self.model.predict(features, return_std=True)
        # The process predicts a noisy observation; the true mean has no noise.
        variance = np.maximum(sd**2 - self.noise_sd**2, 1e-12)
        return mean + np.log(self.divergence.mean_factor(features)), np.sqrt(variance)

    def predict(self, family: str, extra_propagation: float, gamma_rst: float) -> tuple[float, float]:
        """Return mean and standard deviation of the true error at one point of a family, in percent."""
        gamma_gnr = gamma_rst / extra_propagation if extra_propagation else 1.0
        config = TrialConfig(
            family=family, schedule={}, extra_propagation=extra_propagation, gamma_gnr=gamma_gnr,
            gamma_rst=gamma_rst, rho=1.0, rule=self.rule,
        )  # fmt: skip
        (log_mean,), (log_sd,) = self.log_errors([config])
        return float(np.exp(log_mean)), float(np.exp(log_mean) * log_sd)

    def interval(self, configs: Sequence[TrialConfig], level: float = 0.9) -> tuple[Array, Array]:
        """Return lower and upper ends of the interval of the error of one training of each configuration.

        Where a training diverges with more than half of the remaining probability, the upper end is 100 %.
        """
        features = self.encoding.encode(configs)
        mean, sd = self.model.predict(features, return_std=True)
        half = float(stats.norm.ppf(0.5 + level / 2)) * sd
        diverges = self.divergence.probability(features) > (1 - level) / 2
        return np.exp(mean - half), np.where(diverges, 100.0, np.exp(mean + half))

    def condition_on(self, configs: Sequence[TrialConfig]) -> "Surrogate":
        """Return the surrogate as if each of these had been trained once, with the predicted error as the result."""
        if not configs:
            return self
        features = self.encoding.encode(configs)
        target = self.model.y_train_ * self.model._y_train_std + self.model._y_train_mean
        target = np.append(target, self.model.predict(features))
        model = _conditioned(self.kernel_params, np.vstack([self.model.X_train_, features]), target)
        return replace(self, model=model)


def fit_surrogate(
    trials: Sequence[Trial], *, kernel_params: Any = None, known: Sequence[TrialConfig] = ()
) -> Surrogate:
    """Return the surrogate of finished trials; of more than 200 it uses the baselines, the replicates and a sample.

    Args:
        trials: finished trials, at least `MIN_TRIALS`.
        kernel_params: those of an earlier surrogate with the same families and rules; they are not fitted again.
        known: configurations that will be predicted although no trial of their family or rule may have finished.
    """
    if len(trials) < MIN_TRIALS:
        raise InputError(f"a surrogate needs {MIN_TRIALS} finished trials, but there are {len(trials)}: run more")
    # The names come from all trials: a family that the sample misses must still be predicted.
    configs = [*(trial.config for trial in trials), *known]
    encoding = FeatureEncoding.of(configs)
    used = _sample(trials)
    errors = np.maximum([float(t.error or 0.0) for t in used], MIN_ERROR)
    outlier = CLIP_QUARTILE * float(np.quantile(errors, 0.25))
    base = [error for trial, error in zip(used, errors, strict=True) if trial.config.is_base]
    clip = CLIP_BASE * float(np.mean(base)) if base else outlier
    features, target = encoding.encode([t.config for t in used]), np.log(np.minimum(errors, clip))
    sizes = encoding.group_sizes
    same = kernel_params is not None and kernel_params.k1.k2.sizes == sizes
    model = _conditioned(kernel_params, features, target) if same else _fitted(features, sizes, target)
    rules = Counter(c.rule for c in configs if c.extra_propagation > 0)
    return Surrogate(
        model=model,
        divergence=DivergenceModel.fit(errors, np.exp(model.predict(features)), features, sizes, max(outlier, clip)),
        encoding=encoding,
        rule=max(encoding.rules, key=lambda rule: rules[rule]),
    )


def _sample(trials: Sequence[Trial]) -> list[Trial]:
    """Return at most `MAX_TRIALS` trials: baselines and replicates first, the others at random."""
    if len(trials) <= MAX_TRIALS:
        return list(trials)
    order = np.random.default_rng(0).permutation(len(trials)).tolist()
    order.sort(key=lambda i: trials[i].role is not Role.CONFIRM and 0.0 < trials[i].extra_propagation < 1.0)
    return [trials[i] for i in sorted(order[:MAX_TRIALS])]


def _fitted(features: Array, group_sizes: tuple[int, ...], target: Array) -> Any:
    """Return the process with the kernel parameters of highest posterior density."""
    smooth = GroupedMatern((LENGTH,) * len(group_sizes), group_sizes)
    kernel = ConstantKernel(VARIANCE, (1e-2, 1e2)) * smooth + WhiteKernel(NOISE, (1e-3, 2.0))
    model = GaussianProcessRegressor(kernel, normalize_y=True, optimizer=_maximum_a_posteriori)
    # A parameter at its bound only says that the error is flat along that feature. One thread is several times faster
    # than many for matrices this small.
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(features, target)


def _maximum_a_posteriori(objective: Any, prior_mean: Array, bounds: Array) -> tuple[Array, float]:
    """Minimize the negative log likelihood plus that of a normal prior over the logarithms of the parameters."""

    def penalized(theta: Array) -> tuple[float, Array]:
        value, gradient = objective(theta)
        z = (theta - prior_mean) / PRIOR_SD
        return value + float(z @ z) / 2, gradient + z / PRIOR_SD

    found = minimize(penalized, prior_mean, jac=True, bounds=bounds.tolist(), method="L-BFGS-B")
    return found.x, found.fun


def _conditioned(kernel: Any, features: Array, target: Array) -> Any:
    """Return a process whose kernel parameters are given."""
    with threadpool_limits(1):
        return GaussianProcessRegressor(kernel, normalize_y=True, optimizer=None).fit(features, target)
