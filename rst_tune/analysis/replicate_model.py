"""The joint posterior of the configurations' true mean errors, given replicates on partly shared seeds.

The model of the logarithm of an error: y(i, s) = mu(i) + b(s) + e(i, s), with i the configuration and s the seed. In
logarithms, because the noise of an error is proportional to it: a front may reach from 60 % to 3 %.

- A seed that several configurations share shifts them together (b), so their difference is known better than either
  mean. The variance of b is the mean covariance between configurations over the seeds that they share.
- The variance of one configuration is shrunk towards the pooled one, which counts as `PRIOR_DF` more replicates: five
  seeds alone say little about their own spread. Its mean then has a t distribution.
- A configuration with one seed was sampled among many, of which the luckiest look best. Its mean is shrunk towards
  a ridge regression over all configurations, by as much as that regression leaves unexplained.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rst_tune.errors import InputError

__all__ = ["MeanPosterior", "fit_means", "nondominated_probability", "pooled_variance"]

Array = NDArray[np.float64]

# The calibration of P(non-dominated) with 2 and 4 seeds is tested in tests/analysis/test_replicate_model.py.
PRIOR_DF = 4.0
SAMPLES = 4000
MAX_LOG = 700.0  # its exponential is finite
# At most this share of the noise is attributed to the seed; a share of 1 would make paired differences exact.
MAX_SEED_SHARE = 0.9
# The pairwise covariances fill an n x n table; this many configurations are enough to estimate one number.
MAX_PAIRED = 1000
# Above this many shared seeds their S x S system costs more than pairing gains.
MAX_SHARED_SEEDS = 300
# A configuration that a cheaper one beats by this many standard errors is not sampled: its probability is 0.
DOMINATED_SEMS = 5.0


@dataclass(frozen=True, kw_only=True)
class MeanPosterior:
    """The joint distribution mu = mean - weights @ b + scale * t(df), where b ~ N(seed_mean, seed_covariance).

    All of it is about logarithms; `sample` returns errors. `total` is the standard error of each mean by itself, the
    part that it shares with others through b included.
    """

    mean: Array
    scale: Array
    df: Array
    weights: Array
    seed_mean: Array
    seed_covariance: Array
    total: Array

    @classmethod
    def unpaired(cls, mean: Array, scale: Array, df: Array) -> "MeanPosterior":
        """Return the posterior of means that share no seed."""
        none = np.zeros((len(mean), 0))
        return cls(
            mean=mean, scale=scale, df=df, weights=none, seed_mean=np.zeros(0), seed_covariance=np.zeros((0, 0)),
            total=scale,
        )  # fmt: skip

    def subset(self, index: NDArray[np.int_]) -> "MeanPosterior":
        """Return the posterior of some configurations."""
        own = {name: getattr(self, name)[index] for name in ("mean", "scale", "df", "weights", "total")}
        return replace(self, **own)

    def sample(self, count: int = SAMPLES, seed: int = 0) -> Array:
        """Return `count` samples of all mean errors, shape (configurations, count), the same for the same seed."""
        rng = np.random.default_rng(seed)
        mu: Array = rng.standard_t(self.df[:, None], size=(len(self.mean), count))
        mu *= self.scale[:, None]
        mu += self.mean[:, None]
        if self.weights.shape[1]:
            shared = rng.multivariate_normal(self.seed_mean, self.seed_covariance, size=count, method="eigh")
            mu -= self.weights @ shared.T
        return np.exp(np.minimum(mu, MAX_LOG, out=mu), out=mu)


def nondominated_probability(
    posterior: MeanPosterior,
    costs: ArrayLike,
    rivals: ArrayLike | None = None,
    samples: int | None = None,
) -> Array:
    """Return for each configuration the probability that no rival of at most its cost has a lower true error.

    `rivals` masks the configurations that may dominate another one; by default all may.
    """
    costs = np.asarray(costs, dtype=float)
    rival = np.ones(len(costs), dtype=bool) if rivals is None else np.asarray(rivals, dtype=bool)
    order = np.argsort(costs, kind="stable")
    order = order[~_surely_dominated(posterior.mean[order], posterior.scale[order], rival[order])]
    # The table of samples holds at most about two million numbers.
    samples = samples or max(500, min(SAMPLES, 2_000_000 // max(len(order), 1)))
    mu = posterior.subset(order).sample(samples)
    lowest = np.where(rival[order, None], mu, np.inf)
    np.minimum.accumulate(lowest, axis=0, out=lowest)
    # Among equal costs, the last row holds the minimum over all of them.
    last = np.searchsorted(costs[order], costs[order], side="right") - 1
    result = np.zeros(len(costs))
    result[order] = (mu <= lowest[last]).mean(axis=1)
    return result


def _surely_dominated(mean: Array, scale: Array, rival: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which rows, sorted by cost, an earlier rival beats by `DOMINATED_SEMS` on both sides."""
    best = np.minimum.accumulate(np.where(rival, mean + DOMINATED_SEMS * scale, np.inf))
    before = np.concatenate([[np.inf], best[:-1]])
    return np.asarray(mean - DOMINATED_SEMS * scale > before)


def pooled_variance(squares: Array, df: Array) -> Array:
    """Return each configuration's variance, from its sum of squares, shrunk towards the pooled one."""
    if df.sum() <= 0:
        raise InputError("noise is measured from replicates, but no configuration has two seeds: run more seeds")
    pooled = squares.sum() / df.sum()
    return np.asarray((squares + PRIOR_DF * pooled) / (df + PRIOR_DF))


def fit_means(errors: Sequence[Mapping[int, float]], features: Array | None = None) -> MeanPosterior:
    """Return the posterior from the logarithms of each configuration's errors by seed.

    `features` (one row per configuration) are those of the regression towards which single runs are shrunk.
    """
    counts = np.array([len(e) for e in errors], dtype=float)
    mean = np.array([fmean(e.values()) for e in errors])
    squares = np.array([sum((y - m) ** 2 for y in e.values()) for e, m in zip(errors, mean, strict=True)])
    total = pooled_variance(squares, counts - 1)
    table, member = _residual_table(errors, mean)
    share = _seed_share(table, member, squares.sum() / (counts - 1).sum())
    unpaired = (counts - member.sum(axis=1)) / counts
    # The noise of a shared seed is split into b and e; that of a seed of its own is not.
    scale = np.sqrt(total * (1 - share * (1 - unpaired)) / counts)
    posterior = MeanPosterior.unpaired(mean, scale, counts - 1 + PRIOR_DF)
    posterior = replace(posterior, total=np.sqrt(total / counts))
    if share > 0:
        posterior = _paired(posterior, table, member, counts, total * (1 - share), float(np.median(total)) * share)
    return posterior if features is None else _shrink_single_runs(posterior, counts, features)


def _residual_table(errors: Sequence[Mapping[int, float]], mean: Array) -> tuple[Array, Array]:
    """Return residuals and membership, (configurations, shared seeds); two replicated ones must share a seed."""
    uses = Counter(seed for row in errors if len(row) > 1 for seed in row)
    shared = sorted(seed for seed, n in uses.items() if n > 1)
    column = {seed: k for k, seed in enumerate(shared if len(shared) <= MAX_SHARED_SEEDS else [])}
    table, member = np.zeros((2, len(errors), len(column)))
    for i, row in enumerate(errors):
        for seed, value in row.items():
            if seed in column:
                table[i, column[seed]], member[i, column[seed]] = value - mean[i], 1.0
    return table, member


def _seed_share(table: Array, member: Array, pooled: float) -> float:
    """Return the share of the variance that the seed explains: covariance over shared seeds, all pairs pooled."""
    rows = np.flatnonzero(member.sum(axis=1) > 1)[:MAX_PAIRED]
    y, m = table[rows], member[rows]
    common = m @ m.T
    sums = y @ m.T
    products = y @ y.T - np.divide(sums * sums.T, common, out=np.zeros_like(common), where=common > 0)
    pairs = np.triu(common >= 2, k=1)
    weight = float((common[pairs] - 1).sum())
    if weight == 0 or pooled <= 0:
        return 0.0
    return float(np.clip(products[pairs].sum() / weight / pooled, 0.0, MAX_SEED_SHARE))


def _paired(
    posterior: MeanPosterior, table: Array, member: Array, counts: Array, own: Array, shared: float
) -> MeanPosterior:
    """Add the effects of the seeds: their posterior given all residuals, with a flat prior on the means."""
    precision = member / own[:, None]
    system = np.diag(1 / shared + precision.sum(axis=0)) - precision.T @ (member / counts[:, None])
    covariance: Array = np.asarray(np.linalg.inv(system), dtype=np.float64)
    effect = covariance @ (table / own[:, None]).sum(axis=0)
    return replace(posterior, weights=member / counts[:, None], seed_mean=effect, seed_covariance=covariance)


def _shrink_single_runs(posterior: MeanPosterior, counts: Array, features: Array) -> MeanPosterior:
    """Shrink the configurations with one seed towards a regression, by the spread it leaves beyond the noise."""
    adjusted = posterior.mean - posterior.weights @ posterior.seed_mean
    expected, residual = _ridge(features, adjusted)
    noise = np.maximum(posterior.scale**2, 1e-12)
    # A regression is never exact: at least a quarter of the noise variance is left to the configuration.
    spread = max(float(np.mean(residual**2 - noise)), 0.25 * float(np.mean(noise)))
    keep = np.where(counts > 1, 1.0, spread / (spread + noise))
    mean = keep * posterior.mean + (1 - keep) * expected
    weights = posterior.weights * keep[:, None]
    return replace(posterior, mean=mean, scale=posterior.scale * np.sqrt(keep), weights=weights)


def _ridge(features: Array, target: Array, penalty: float = 1.0) -> tuple[Array, Array]:
    """Return the fitted values and the leave-one-out residuals of a ridge regression on standardized features."""
    centred = features - features.mean(axis=0)
    x = centred / np.where(centred.std(axis=0) > 0, centred.std(axis=0), 1.0)
    solve = np.linalg.solve(x.T @ x + penalty * np.eye(x.shape[1]), x.T)
    fitted = target.mean() + x @ (solve @ (target - target.mean()))
    leverage = np.einsum("ij,ji->i", x, solve) + 1 / len(target)
    return fitted, (target - fitted) / np.maximum(1 - leverage, 0.05)
