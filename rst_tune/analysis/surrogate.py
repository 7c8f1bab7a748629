"""A Gaussian process over everything that a search varies, with a prior mean that knows sharpness-aware training.

The logarithm of the error of a configuration x is

    y(x, seed) = b·φ(x; k) + f(x) + v(seed, x) + noise,

    φ = 1, L, L²                        L = log2 of the horizon: the base optimizer's own dependence on the length
        tanh(k·effect)/(1 + q)          the gain of regularization
        q/(1 + q)                       the loss of a training that breaks down
    q = (k·strain / (S·horizon^A))^6    short trainings break down at a smaller strain

with a normal prior over the coefficients b, a Matérn 5/2 process f with one length scale per group of features (rough
where trainings are proposed, smooth where errors are predicted), and one scale k per task, because radii are not
comparable between tasks. The prior of b is wide enough to learn that sharpness-aware training does not pay. Trainings
of one seed share v (the split, the wrong labels, the initial weights), the more, the more alike they are: most of the
noise is common to them, so configurations that share seeds are compared more exactly.

Errors above the worst baseline's are clipped: such a training is of no use, and its exact error would only widen the
scale. `errors` and `log_errors` are about the true mean error; `interval` is about a single
training, with the noise between seeds that the same fit estimates.
"""

from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, special, stats
from scipy.optimize import minimize
from threadpoolctl import threadpool_limits

from rst_tune.analysis.features import FeatureEncoding, bounded
from rst_tune.errors import InputError
from rst_tune.records import Prior, Role, Trial, TrialConfig

__all__ = [
    "EXPLORING",
    "MIN_TRIALS",
    "NO_SEED",
    "PRIOR",
    "SMOOTHNESS",
    "KernelParams",
    "Surrogate",
    "basis",
    "fit_surrogate",
    "transformed",
]

Array = NDArray[np.float64]

MIN_TRIALS = 4
NO_SEED = -1  # one that no other training has
MAX_TRIALS = 200  # the fit costs the cube of this
MIN_RELATIVE_ERROR = 1e-4  # of the median: an error of 0 has no logarithm
CLIP = 1.1  # times the worst baseline

# The prior of the coefficients b: mean and standard deviation for 1 (about the median target), L, L², gain, loss.
# The rounded mean and spread over the seven tasks of the suite: `python experiments/benchmarks/suite/prior.py`.
MEAN_PRIOR = np.array([0.0, 0.0, 0.05, 0.2, 0.5])
MEAN_SD = np.array([0.5, 0.3, 0.1, 0.4, 0.2])
STRAIN_LIMIT, STRAIN_EXPONENT = 2.7, 0.4
MAX_STRAIN_RATIO = 20.0  # its sixth power is finite; beyond it q/(1 + q) is 1
# The prior of the kernel parameters, as logarithms with one standard deviation each.
AMPLITUDE, NOISE, SCALE, LENGTH = 0.2, 0.15, 1.0, 1.0
# The share of the noise variance that trainings of one seed have in common, and the part of it that only similar
# configurations have in common. On the suite's tasks trainings of one seed and length share 0.68 to 0.97, those of one
# seed and any length 0.30 to 0.75 (`python experiments/benchmarks/suite/prior.py`).
SEED_SHARE = 0.9
LOCAL_SEED_SHARE = 0.5
PRIOR_SD = np.array([0.4, 0.4, 0.5, 0.3, 1.0])
# The shipped prior: that of a search without earlier ones.
PRIOR = Prior.model_validate(
    {
        "mean": MEAN_PRIOR.tolist(),
        "mean_sd": MEAN_SD.tolist(),
        "kernel": [AMPLITUDE, NOISE, SCALE, LENGTH, SEED_SHARE],
        "kernel_sd": PRIOR_SD.tolist(),
    }
)
# One length per group, in units of its features: length, effect, strain, lateness, radius, kind, options.
LENGTHS = np.array([1.5, 1.5, 1.5, 1.0, 1.5, 1.2, 2.0])
# What multiplies the lengths of effect, strain, lateness and radius. Errors are predicted by a smooth process: the
# front that the same trainings deliver has 0.963 instead of 0.957 of the best known hypervolume, and its claim is
# nearer to the truth (worlds 300 to 307 of the suite; 5 and 10 have 0.962 and 0.964). Trainings are proposed, and
# chosen for replicates, by a rough one: a smooth process looks less far beyond what it has (docs/log.md).
SMOOTHNESS, EXPLORING = 3.0, 1.0
SMOOTHED = np.array([False, True, True, True, True, False, False])
# The number of stable trainings that the prior of the divergence model is worth, and its length scale.
DIVERGENCE_LENGTH, STABLE_PSEUDOCOUNT = 0.5, 10.0
MAX_ITERATIONS, STEP, MIN_VARIANCE = 15, 1e-5, 1e-12
CURVATURE_STEP = 1e-3


@dataclass(frozen=True)
class KernelParams:
    """Standard deviation of the process, noise between seeds, scale of the task, a factor on all lengths, and the share
    of the noise variance that is common to the trainings of one seed.
    """

    amplitude: float = AMPLITUDE
    noise: float = NOISE
    scale: float = SCALE
    length: float = LENGTH
    seed_share: float = SEED_SHARE


@dataclass(frozen=True, kw_only=True)
class _Design:
    """Configurations as arrays: computed once, whatever the kernel parameters."""

    horizon: Array
    effect: Array
    strain: Array
    features: Array
    """Divided by the lengths of their groups."""

    def __len__(self) -> int:
        return len(self.horizon)

    def basis(self, scale: float) -> Array:
        """Return φ, one row per configuration."""
        return _basis(self.horizon, self.effect, self.strain, scale)

    def distances(self, other: "_Design") -> Array:
        """Return √5 times the distances of the features, in units of the length scales."""
        squares = (self.features**2).sum(axis=1)[:, None] + (other.features**2).sum(axis=1)[None, :]
        return np.asarray(np.sqrt(5 * np.maximum(squares - 2 * self.features @ other.features.T, 0.0)))


def _basis(horizon: Array, effect: Array, strain: Array, scale: float) -> Array:
    octaves = np.log2(horizon)
    q = np.minimum(scale * strain / (STRAIN_LIMIT * horizon**STRAIN_EXPONENT), MAX_STRAIN_RATIO) ** 6
    gain = np.tanh(scale * effect) / (1 + q)
    return np.column_stack([np.ones(len(horizon)), octaves, octaves**2, gain, q / (1 + q)])


def basis(configs: Sequence[TrialConfig], scale: float) -> Array:
    """Return φ of the prior mean with the task's scale k, one row per configuration: 1, L, L², gain, loss."""
    rows = np.array([(c.horizon, bounded(c.effect), bounded(c.strain)) for c in configs]).reshape(-1, 3)
    return _basis(rows[:, 0], rows[:, 1], rows[:, 2], scale)


def _matern(distance: Array) -> Array:
    return np.asarray((1 + distance + distance**2 / 3) * np.exp(-distance))


@dataclass(frozen=True, kw_only=True)
class Surrogate:
    """The posterior given `configs`, `seeds` and `target` (log errors, whose median is `base`).

    `NO_SEED` stands for one that no other training has.
    """

    encoding: FeatureEncoding
    params: KernelParams
    configs: tuple[TrialConfig, ...]
    seeds: NDArray[np.int64]
    target: Array
    base: float
    errors_seen: Array
    outlier: float
    prior: Prior = PRIOR
    smoothness: float = SMOOTHNESS

    @property
    def kernel_params(self) -> KernelParams:
        """What was fitted: given to `fit_surrogate`, it is not fitted again."""
        return self.params

    @property
    def noise_sd(self) -> float:
        """The standard deviation of log error between seeds."""
        return self.params.noise

    def _design(self, configs: Sequence[TrialConfig], smoothness: float | None = None) -> _Design:
        lengths = LENGTHS * np.where(SMOOTHED, smoothness or self.smoothness, 1.0)
        return _Design(
            horizon=np.array([c.horizon for c in configs]),
            effect=np.array([bounded(c.effect) for c in configs]),
            strain=np.array([bounded(c.strain) for c in configs]),
            features=self.encoding.encode(configs) / lengths[list(self.encoding.groups)],
        )

    @cached_property
    def _own(self) -> _Design:
        return self._design(self.configs)

    def _covariance(self, left: _Design, right: _Design) -> Array:
        """Return the prior covariance of the true log errors."""
        rows, columns = (design.basis(self.params.scale) * self.prior.mean_sd for design in (left, right))
        smooth = _matern(left.distances(right) / self.params.length)
        return np.asarray(self.params.amplitude**2 * smooth + rows @ columns.T)

    def _variance(self, design: _Design) -> Array:
        """Return the diagonal of the prior covariance."""
        rows = design.basis(self.params.scale) * self.prior.mean_sd
        return np.asarray(self.params.amplitude**2 + (rows**2).sum(axis=1))

    def _mean(self, design: _Design) -> Array:
        return np.asarray(self.base + design.basis(self.params.scale) @ self.prior.mean)

    @cached_property
    def _lower(self) -> Array:
        """The Cholesky factor of the covariance of the targets. The bounds of the noise keep it well conditioned."""
        share = self.params.seed_share
        noise = share * _same_seed(self.seeds, self._own.distances(self._own)) + (1 - share) * np.eye(len(self.seeds))
        covariance = self._covariance(self._own, self._own) + self.params.noise**2 * noise
        return linalg.cholesky(covariance, lower=True, check_finite=False)

    @cached_property
    def _weights(self) -> Array:
        return np.asarray(linalg.cho_solve((self._lower, True), self.target - self._mean(self._own)))

    def _half_solved(self, design: _Design) -> tuple[Array, Array]:
        """Return the posterior mean, and the part of the covariance's square root that the targets explain."""
        cross = self._covariance(design, self._own)
        half = linalg.solve_triangular(self._lower, cross.T, lower=True, check_finite=False)
        return np.asarray(self._mean(design) + cross @ self._weights), half

    def posterior(self, configs: Sequence[TrialConfig]) -> tuple[Array, Array]:
        """Return mean and covariance of the true log errors, diverged seeds not included."""
        design = self._design(configs)
        mean, half = self._half_solved(design)
        return mean, np.asarray(self._covariance(design, design) - half.T @ half)

    def marginals(self, configs: Sequence[TrialConfig]) -> tuple[Array, Array]:
        """Return mean and standard deviation of each true log error, diverged seeds not included."""
        design = self._design(configs)
        mean, half = self._half_solved(design)
        return mean, np.sqrt(np.maximum(self._variance(design) - (half**2).sum(axis=0), MIN_VARIANCE))

    def coefficients(self) -> tuple[Array, Array]:
        """Return the posterior mean and covariance of the coefficients b."""
        spread = np.diag(np.square(self.prior.mean_sd))
        cross = spread @ self._own.basis(self.params.scale).T
        half = linalg.solve_triangular(self._lower, cross.T, lower=True, check_finite=False)
        return np.asarray(self.prior.mean + cross @ self._weights), np.asarray(spread - half.T @ half)

    def kernel_posterior(self) -> tuple[Array, Array]:
        """Return the fitted kernel parameters (logarithms, and the logit of the share) and their posterior precision.

        The precision is the curvature of the objective, by differences of its gradient.
        """
        theta = transformed(astuple(self.params))
        objective = _objective(self)
        steps = CURVATURE_STEP * np.eye(len(theta))
        rows = [(objective(theta + h)[1] - objective(theta - h)[1]) / (2 * CURVATURE_STEP) for h in steps]
        return theta, np.asarray((np.array(rows) + np.array(rows).T) / 2)

    def log_errors(self, configs: Sequence[TrialConfig]) -> tuple[Array, Array]:
        """Return mean and standard deviation of the logarithm of each configuration's true mean error.

        A mean over seeds lies above the exponential of the mean logarithm, by half of the variance between seeds.
        """
        mean, sd = self.marginals(configs)
        return mean + 0.5 * self.noise_sd**2, sd

    def errors(self, configs: Sequence[TrialConfig]) -> Array:
        """Return the posterior mean error of each configuration."""
        return np.asarray(np.exp(self.log_errors(configs)[0]))

    def interval(self, configs: Sequence[TrialConfig], level: float = 0.9) -> tuple[Array, Array]:
        """Return lower and upper ends of the interval of the error of one training of each configuration.

        Where a training diverges with more than half of the remaining probability, the upper end is infinite.
        """
        mean, sd = self.marginals(configs)
        half = float(stats.norm.ppf(0.5 + level / 2)) * np.hypot(sd, self.noise_sd)
        diverges = self.divergence_probability(configs) > (1 - level) / 2
        return np.exp(mean - half), np.where(diverges, np.inf, np.exp(mean + half))

    def lookahead(
        self,
        delivered: Sequence[TrialConfig],
        candidates: Sequence[TrialConfig],
        seeds: NDArray[np.int64],
        *,
        repeats: float = 1.0,
    ) -> tuple[Array, Array, Array, Array]:
        """Return how trainings of each candidate on its seed move the posterior means of the log errors.

        Returned are the means of `delivered` and of the candidates now, and the changes per standard deviation of the
        outcome: those of `delivered`, one row per candidate, and the candidate's own. An outcome on a seed that other
        configurations were trained with says more, because most of its noise is known from them. Of `repeats` trainings
        the noise of the mean is that much smaller in variance.
        """
        rows, columns = self._design(delivered), self._design(candidates)
        mean, half = self._half_solved(rows)
        own_mean, own_half = self._half_solved(columns)
        shared = _same_seed(seeds, columns.distances(self._own), self.seeds)
        noise = self.params.noise**2 * self.params.seed_share * shared
        outcome = own_half + linalg.solve_triangular(self._lower, noise.T, lower=True, check_finite=False)
        prior = self._variance(columns)
        variance = prior + self.params.noise**2 - (outcome**2).sum(axis=0)
        without_noise = prior - (own_half**2).sum(axis=0)
        sd = np.sqrt(np.maximum(without_noise + (variance - without_noise) / repeats, MIN_VARIANCE))
        shift = (self._covariance(columns, rows) - outcome.T @ half) / sd[:, None]
        return mean, own_mean, shift, (prior - (own_half * outcome).sum(axis=0)) / sd

    def condition_on(self, configs: Sequence[TrialConfig], seeds: Sequence[int]) -> "Surrogate":
        """Return the surrogate as if each had been trained on its seed, with the predicted error as the result."""
        if not configs:
            return self
        design, numbers = self._design(configs), np.array(seeds, dtype=np.int64)
        shared = _same_seed(numbers, design.distances(self._own), self.seeds)
        noise = self.params.noise**2 * self.params.seed_share * shared
        predicted = self._half_solved(design)[0] + noise @ self._weights
        return replace(
            self,
            configs=(*self.configs, *configs),
            seeds=np.append(self.seeds, numbers),
            target=np.append(self.target, predicted),
            errors_seen=np.append(self.errors_seen, np.exp(predicted)),
        )

    def divergence_probability(self, configs: Sequence[TrialConfig]) -> Array:
        """Return the probability that a training diverges."""
        diverged = np.asarray(self.errors_seen > self.outlier, dtype=np.float64)
        near, seen = (self._design(c, smoothness=1.0) for c in (configs, self.configs))
        weight = _matern(near.distances(seen) / DIVERGENCE_LENGTH)
        return np.asarray(weight @ diverged / (STABLE_PSEUDOCOUNT + weight.sum(axis=1)))


def fit_surrogate(
    trials: Sequence[Trial],
    *,
    kernel_params: KernelParams | None = None,
    known: Sequence[TrialConfig] = (),
    prior: Prior = PRIOR,
    smoothness: float = SMOOTHNESS,
) -> Surrogate:
    """Return the surrogate of finished trials; of more than 200 it uses the baselines, the replicates and a sample.

    Args:
        trials: finished trials, at least `MIN_TRIALS`.
        kernel_params: those of an earlier surrogate; they are not fitted again.
        known: configurations that will be predicted although no trial of their rule may have finished.
        prior: the shipped one, or one that was learnt from earlier searches.
        smoothness: of the process in the numbers of the ascents; `EXPLORING` to propose trainings.
    """
    if len(trials) < MIN_TRIALS:
        raise InputError(f"a surrogate needs {MIN_TRIALS} finished trials, but there are {len(trials)}: run more")
    used = _sample(trials)
    errors = np.array([float(t.error or 0.0) for t in used])
    errors = np.maximum(errors, MIN_RELATIVE_ERROR * (float(np.median(errors)) or 1.0))
    outlier = 3.0 * float(np.quantile(errors, 0.25))
    worst = max((e for t, e in zip(used, errors, strict=True) if t.config.is_base), default=outlier / CLIP)
    target = np.log(np.minimum(errors, CLIP * worst))
    surrogate = Surrogate(
        encoding=FeatureEncoding.of([*(t.config for t in trials), *known]),
        params=kernel_params or KernelParams(*prior.kernel),
        configs=tuple(t.config for t in used),
        seeds=np.array([t.seed for t in used], dtype=np.int64),
        target=target,
        base=float(np.median(target)),
        errors_seen=errors,
        outlier=max(outlier, CLIP * worst),
        prior=prior,
        smoothness=smoothness,
    )
    if kernel_params is not None:
        return surrogate
    with threadpool_limits(1):  # several times faster than many threads for matrices this small
        return replace(surrogate, params=_maximum_a_posteriori(surrogate))


def _maximum_a_posteriori(surrogate: Surrogate) -> KernelParams:
    """Return the kernel parameters of highest posterior density."""
    centre = transformed(surrogate.prior.kernel)
    bounds = [(c - 4 * s, c + 4 * s) for c, s in zip(centre, surrogate.prior.kernel_sd, strict=True)]
    objective = _objective(surrogate)
    found = minimize(objective, centre, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": MAX_ITERATIONS})
    amplitude, noise, scale, length = (float(value) for value in np.exp(found.x[:4]))
    return KernelParams(amplitude, noise, scale, length, float(special.expit(found.x[4])))


def transformed(kernel: Sequence[float]) -> Array:
    """Return the logarithms of kernel parameters, and the logit of the share."""
    return np.append(np.log(kernel[:4]), special.logit(kernel[4]))


def _objective(surrogate: Surrogate) -> Callable[[Array], tuple[float, Array]]:
    return _negative_log_posterior(
        surrogate._own,
        _same_seed(surrogate.seeds, surrogate._own.distances(surrogate._own)),
        surrogate.target - surrogate.base,
        surrogate.prior,
    )


def _same_seed(seeds: NDArray[np.int64], distances: Array, others: NDArray[np.int64] | None = None) -> Array:
    """Return the correlation of v between trainings: 0 for different seeds, and 1 for one configuration and seed."""
    columns = seeds if others is None else others
    same = (seeds[:, None] == columns[None, :]) & (seeds >= 0)[:, None]
    same = same | np.eye(len(seeds), dtype=bool) if others is None else same
    return np.asarray(same * (1 - LOCAL_SEED_SHARE + LOCAL_SEED_SHARE * _matern(distances)))


def _negative_log_posterior(
    design: _Design, same_seed: Array, target: Array, prior: Prior
) -> Callable[[Array], tuple[float, Array]]:
    """Return the function from the logarithms of the kernel parameters (and the logit of the share) to the objective
    and its gradient.

    With K the covariance of the targets, r their residual and a = K⁻¹r, the derivative of (rᵀa + log|K|)/2 is
    tr((K⁻¹ - aaᵀ)·dK)/2 - aᵀ·dmean.
    """
    distances, identity = design.distances(design), np.eye(len(design))
    mean, spread = np.array(prior.mean), np.square(prior.mean_sd)
    centre, kernel_sd = transformed(prior.kernel), np.array(prior.kernel_sd)

    def objective(theta: Array) -> tuple[float, Array]:
        amplitude, noise, scale, length = np.exp(theta[:4])
        share = float(special.expit(theta[4]))
        noisy = share * same_seed + (1 - share) * identity
        scaled = distances / length
        smooth, slope = amplitude**2 * _matern(scaled), amplitude**2 * scaled**2 * (1 + scaled) / 3 * np.exp(-scaled)
        basis = design.basis(scale)
        change = (design.basis(scale * np.exp(STEP)) - design.basis(scale * np.exp(-STEP))) / (2 * STEP)
        lower = linalg.cholesky(smooth + (basis * spread) @ basis.T + noise**2 * noisy, lower=True)
        residual = target - basis @ mean
        inverse = linalg.cho_solve((lower, True), identity, check_finite=False)
        weights = inverse @ residual
        outer = inverse - np.outer(weights, weights)
        by_scale = float(np.sum((outer @ change) * basis * spread) - weights @ change @ mean)
        gradient = [float(np.sum(outer * smooth)), noise**2 * float(np.sum(outer * noisy)), by_scale]
        gradient.append(0.5 * float(np.sum(outer * slope)))
        gradient.append(0.5 * noise**2 * share * (1 - share) * float(np.sum(outer * (same_seed - identity))))
        away = (theta - centre) / kernel_sd
        value = 0.5 * float(residual @ weights) + float(np.log(np.diag(lower)).sum()) + 0.5 * float(away @ away)
        return value, np.array(gradient) + away / kernel_sd

    return objective


def _sample(trials: Sequence[Trial]) -> list[Trial]:
    """Return at most `MAX_TRIALS` trials: baselines and replicates first, the others at random."""
    if len(trials) <= MAX_TRIALS:
        return list(trials)
    order = np.random.default_rng(0).permutation(len(trials)).tolist()
    order.sort(key=lambda i: trials[i].role is not Role.CONFIRM and not trials[i].config.is_baseline)
    return [trials[i] for i in sorted(order[:MAX_TRIALS])]
