"""A Gaussian process over everything that a search varies, with a prior mean that knows sharpness-aware training.

The logarithm of the error of a configuration x is

    y(x, seed) = b·φ(x; k) + f(x) + v(seed, x) + noise,

    φ = 1, L, L²                        L = log2 of the horizon: the base optimizer's own dependence on the length
        tanh(k·effect)/(1 + q)          the gain of regularization
        q/(1 + q)                       the loss of a training that breaks down
    q = (k·strain / (S·horizon^A))^6    short trainings break down at a smaller strain

with a normal prior over the coefficients b, a Matérn 5/2 process f with one length scale, and one scale k per task,
because radii are not comparable between tasks. The prior of b is wide enough to learn that sharpness-aware training
does not pay. Trainings of one seed share v (the split, the wrong labels, the initial weights), the more, the more alike
they are: most of the noise is common to them, so configurations that share seeds are compared more exactly.

Errors above the worst baseline's are clipped: such a training is of no use, and its exact error would only widen the
scale. So are those far above the lower quartile where no baseline was trained. All predictions are about the true mean
error over seeds.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, special
from scipy.optimize import minimize
from threadpoolctl import ThreadpoolController

from rst_tune.analysis import pareto
from rst_tune.analysis.features import FeatureEncoding, numbers_of
from rst_tune.errors import InputError
from rst_tune.records import Prior, Role, Trial, TrialConfig

Array = NDArray[np.float64]

MIN_TRIALS = 2
NO_SEED = -1  # one that no other training has
# The kernel parameters are fitted to at most this many trials (the time is the cube of it, some forty times), and the
# posterior is that of at most so many.
MAX_FITTED, MAX_TRIALS = 200, 1000
CLIP = 1.1  # times the worst baseline

# The shipped prior: that of a search without earlier ones. `mean` and `mean_sd` are the rounded mean and spread, over
# the tasks of the suite, of the coefficients b (1 about the median target, L, L², gain, loss); the seed's share was
# measured there, too: `python experiments/benchmarks/suite/prior.py`. One length of 3 to 4 delivers as good a front as
# seven learnt ones, one per kind of feature (docs/log.md).
PRIOR = Prior(
    mean=(0.0, 0.0, 0.05, 0.2, 0.5),
    mean_sd=(0.5, 0.3, 0.1, 0.4, 0.2),
    kernel=(0.15, 0.1, 1.0, 4.0, 0.9),  # amplitude, noise, scale, length, share of the seed
    kernel_sd=(0.6, 1.0, 0.5, 0.6, 1.0),
)
STRAIN_LIMIT, STRAIN_EXPONENT = 2.7, 0.4  # S and A
MAX_STRAIN_RATIO = 20.0  # its sixth power is finite; beyond it q/(1 + q) is 1
# The part of v that only similar configurations have in common: trainings of one seed and length share 0.68 to 0.97 of
# the noise, those of one seed and any length 0.30 to 0.75 (`prior.py`).
LOCAL_SEED_SHARE = 0.5
# Beyond this many standard deviations a configuration is taken never to be on the front, and of more contenders than
# this the most promising ones are compared: the time is the cube of their number.
CONTENDER_SDS, MAX_CONTENDERS = 3.0, 500
STEP, MIN_VARIANCE = 1e-5, 1e-12
MAX_LOG = 50.0  # of an error: its exponential is finite


@dataclass(frozen=True)
class KernelParams:
    """Standard deviation of the process, noise between seeds, scale of the task, length scale, and the share of the
    noise variance that is common to the trainings of one seed.
    """

    amplitude: float
    noise: float
    scale: float
    length: float
    seed_share: float


@dataclass(frozen=True, kw_only=True)
class _Design:
    """Configurations as arrays: computed once, whatever the kernel parameters."""

    columns: Array
    """Horizon, effect and strain."""
    features: Array

    def basis(self, scale: float) -> Array:
        """Return φ, one row per configuration."""
        horizon, effect, strain = self.columns.T
        octaves = np.log2(horizon)
        q = np.minimum(scale * strain / (STRAIN_LIMIT * horizon**STRAIN_EXPONENT), MAX_STRAIN_RATIO) ** 6
        gain = np.tanh(scale * effect) / (1 + q)
        return np.column_stack([np.ones(len(horizon)), octaves, octaves**2, gain, q / (1 + q)])

    def distances(self, other: "_Design") -> Array:
        """Return √5 times the distances of the features."""
        squares = (self.features**2).sum(axis=1)[:, None] + (other.features**2).sum(axis=1)[None, :]
        return np.asarray(np.sqrt(5 * np.maximum(squares - 2 * self.features @ other.features.T, 0.0)))


def _design(configs: Sequence[TrialConfig], encoding: FeatureEncoding | None = None) -> _Design:
    columns = numbers_of(configs)[:, :3]
    return _Design(columns=columns, features=columns[:, :0] if encoding is None else encoding.encode(configs))


def basis(configs: Sequence[TrialConfig], scale: float) -> Array:
    """Return φ of the prior mean with the task's scale k, one row per configuration: 1, L, L², gain, loss."""
    return _design(configs).basis(scale)


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
    prior: Prior = PRIOR

    @cached_property
    def design(self) -> _Design:
        """The trained configurations."""
        return _design(self.configs, self.encoding)

    @cached_property
    def df(self) -> float:
        """Degrees of freedom of the noise: the replicates, and what the prior of its logarithm is worth."""
        replicates = len(self.configs) - len({config.identity for config in self.configs})
        return replicates + 0.5 / self.prior.kernel_sd[1] ** 2

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
        """Return the prior mean of the true errors' logarithms.

        A mean over seeds lies above the exponential of the mean logarithm, by half of the variance between seeds.
        """
        return np.asarray(self.base + design.basis(self.params.scale) @ self.prior.mean + 0.5 * self.params.noise**2)

    @cached_property
    def lower(self) -> Array:
        """The Cholesky factor of the covariance of the targets. The bounds of the noise keep it well conditioned."""
        share, own = self.params.seed_share, self.design
        noise = share * _same_seed(self.seeds, own.distances(own)) + (1 - share) * np.eye(len(self.seeds))
        covariance = self._covariance(own, own) + self.params.noise**2 * noise
        return linalg.cholesky(covariance, lower=True, check_finite=False)

    @cached_property
    def weights(self) -> Array:
        """The covariance of the targets, inverted, times their deviations from the prior mean."""
        residual = self.target + 0.5 * self.params.noise**2 - self._mean(self.design)
        return np.asarray(linalg.cho_solve((self.lower, True), residual))

    def solved(self, cross: Array) -> Array:
        """Return the part of a covariance's square root that the targets explain, from the covariance with them."""
        return np.asarray(linalg.solve_triangular(self.lower, cross.T, lower=True, check_finite=False))

    def _half_solved(self, design: _Design) -> tuple[Array, Array]:
        cross = self._covariance(design, self.design)
        return np.asarray(self._mean(design) + cross @ self.weights), self.solved(cross)

    def log_errors(self, configs: Sequence[TrialConfig]) -> tuple[Array, Array]:
        """Return mean and standard deviation of the logarithm of each configuration's true error."""
        design = _design(configs, self.encoding)
        mean, half = self._half_solved(design)
        return mean, np.sqrt(np.maximum(self._variance(design) - (half**2).sum(axis=0), MIN_VARIANCE))

    def errors(self, configs: Sequence[TrialConfig]) -> Array:
        """Return the posterior mean error of each configuration."""
        return np.asarray(np.exp(self.log_errors(configs)[0]))

    def sample(self, configs: Sequence[TrialConfig], count: int) -> Array:
        """Return `count` joint samples of the true errors, one row per configuration, always the same ones.

        The logarithms have a t distribution: the noise is not known exactly.
        """
        design = _design(configs, self.encoding)
        mean, half = self._half_solved(design)
        covariance, rng = self._covariance(design, design) - half.T @ half, np.random.default_rng(0)
        away = rng.multivariate_normal(np.zeros(len(mean)), covariance, count, check_valid="ignore", method="eigh").T
        away *= np.sqrt(self.df / rng.chisquare(self.df, count))
        return np.exp(np.clip(mean[:, None] + away, -MAX_LOG, MAX_LOG))

    def contenders(self, configs: Sequence[TrialConfig]) -> NDArray[np.intp]:
        """Return the indices of those that may be on the front, by compute."""
        order = np.argsort([config.compute for config in configs], kind="stable")
        mean, sd = self.log_errors([configs[i] for i in order])
        able = np.flatnonzero(mean - CONTENDER_SDS * sd <= np.minimum.accumulate(mean + CONTENDER_SDS * sd))
        behind = (mean - np.minimum.accumulate(mean))[able] / sd[able]
        return order[np.sort(able[np.argsort(behind, kind="stable")[:MAX_CONTENDERS]])]

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
        rows, columns = (_design(configs, self.encoding) for configs in (delivered, candidates))
        mean, half = self._half_solved(rows)
        own_mean, own_half = self._half_solved(columns)
        outcome = own_half + self.solved(self._seed_noise(columns, seeds))
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
        design, numbers = _design(configs, self.encoding), np.array(seeds, dtype=np.int64)
        expected = self._half_solved(design)[0] - 0.5 * self.params.noise**2
        predicted = expected + self._seed_noise(design, numbers) @ self.weights
        return replace(
            self,
            configs=(*self.configs, *configs),
            seeds=np.append(self.seeds, numbers),
            target=np.append(self.target, predicted),
        )

    def _seed_noise(self, design: _Design, seeds: NDArray[np.int64]) -> Array:
        """Return the covariance of the noise of further trainings with that of the targets."""
        shared = _same_seed(seeds, design.distances(self.design), self.seeds)
        return np.asarray(self.params.noise**2 * self.params.seed_share * shared)

    def objective(self) -> Callable[[Array], tuple[float, Array]]:
        """Return the negative log posterior density of the kernel parameters, and its gradient, as a function.

        It takes them as `transformed` returns them. With K the covariance of the targets, r their residual and
        a = K⁻¹r, the derivative of (rᵀa + log|K|)/2 is tr((K⁻¹ - aaᵀ)·dK)/2 - aᵀ·dmean.
        """
        design, target, identity = self.design, self.target - self.base, np.eye(len(self.target))
        distances = design.distances(design)
        same_seed = _same_seed(self.seeds, distances)
        mean, spread = np.array(self.prior.mean), np.square(self.prior.mean_sd)
        centre, kernel_sd = transformed(self.prior.kernel), np.array(self.prior.kernel_sd)

        def objective(theta: Array) -> tuple[float, Array]:
            amplitude, noise, scale, length = np.exp(theta[:4])
            share = float(special.expit(theta[4]))
            noisy = share * same_seed + (1 - share) * identity
            scaled = distances / length
            smooth = amplitude**2 * _matern(scaled)
            slope = amplitude**2 * scaled**2 * (1 + scaled) / 3 * np.exp(-scaled)
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


def fit_surrogate(
    trials: Sequence[Trial],
    *,
    kernel_params: KernelParams | None = None,
    encoding: FeatureEncoding | None = None,
    prior: Prior = PRIOR,
) -> Surrogate:
    """Return the surrogate of finished trials; of too many it uses some (`thinned`).

    Args:
        trials: finished trials, at least `MIN_TRIALS`.
        kernel_params: those of an earlier surrogate; they are not fitted again.
        encoding: of everything that will be predicted; None: of the trials.
        prior: the shipped one, or one that was learnt from earlier searches.
    """
    if len(trials) < MIN_TRIALS:
        raise InputError(f"a surrogate needs {MIN_TRIALS} finished trials, but there are {len(trials)}: run more")
    used = thinned(trials, MAX_TRIALS)
    errors = np.array([float(t.error or 0.0) for t in used])
    # An error of 0 has no logarithm: no wrong answer counts as half of the fewest. Less would raise the noise of all.
    above = errors[errors > 0]
    errors = np.maximum(errors, max(0.5 * above.min(initial=np.inf), 1e-4 * np.median(above)) if len(above) else 1.0)
    baselines = [e for t, e in zip(used, errors, strict=True) if t.config.is_base]
    limit = CLIP * max(baselines) if baselines else 3 * float(np.quantile(errors, 0.25))
    target = np.log(np.minimum(errors, limit))
    surrogate = Surrogate(
        encoding=encoding or FeatureEncoding.of([t.config for t in trials]),
        params=kernel_params or KernelParams(*prior.kernel),
        configs=tuple(t.config for t in used),
        seeds=np.array([t.seed for t in used], dtype=np.int64),
        target=target,
        base=float(np.median(target)),
        prior=prior,
    )
    if kernel_params is not None:
        return surrogate
    if len(trials) > MAX_FITTED:
        few = fit_surrogate(thinned(trials, MAX_FITTED), encoding=surrogate.encoding, prior=prior)
        return replace(surrogate, params=few.params)
    centre = transformed(prior.kernel)
    bounds = [(c - 4 * s, c + 4 * s) for c, s in zip(centre, prior.kernel_sd, strict=True)]
    with threadpools().limit(limits=1):  # several times faster than many threads for matrices this small
        found = minimize(
            surrogate.objective(), centre, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 30}
        ).x
    amplitude, noise, scale, length = np.exp(found[:4]).tolist()
    return replace(surrogate, params=KernelParams(amplitude, noise, scale, length, float(special.expit(found[4]))))


@cache
def threadpools() -> ThreadpoolController:
    """Return the thread pools of the numeric libraries. To find them takes milliseconds, so it is done once."""
    return ThreadpoolController()


def transformed(kernel: Sequence[float]) -> Array:
    """Return the logarithms of kernel parameters, and the logit of the share."""
    return np.append(np.log(kernel[:4]), special.logit(kernel[4]))


def _same_seed(seeds: NDArray[np.int64], distances: Array, others: NDArray[np.int64] | None = None) -> Array:
    """Return the correlation of v between trainings: 0 for different seeds, and 1 for one configuration and seed."""
    columns = seeds if others is None else others
    same = (seeds[:, None] == columns[None, :]) & (seeds >= 0)[:, None]
    same = same | np.eye(len(seeds), dtype=bool) if others is None else same
    return np.asarray(same * (1 - LOCAL_SEED_SHARE + LOCAL_SEED_SHARE * _matern(distances / PRIOR.kernel[3])))


def thinned(trials: Sequence[Trial], count: int) -> list[Trial]:
    """Return at most `count` trials: the front as measured, baselines and replicates first, then the latest.

    Proposals concentrate where the front is, so the latest trials are near it.
    """
    if len(trials) <= count:
        return list(trials)
    front = pareto.nondominated([(float(t.error or 0.0), t.compute) for t in trials])
    first = [f or t.config.is_baseline or t.role is Role.CONFIRM for f, t in zip(front, trials, strict=True)]
    order = sorted(range(len(trials)), key=lambda i: (not first[i], -i))
    return [trials[i] for i in sorted(order[:count])]
