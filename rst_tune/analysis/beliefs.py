"""What replicates say of the true mean errors, jointly for all configurations.

The model of an error: y(i, s) = mu(i) + b(s) + e(i, s), with i the configuration and s the seed.

- A seed that several configurations share moves them together (b): their difference is known better than either.
  The variance of b is the mean covariance between configurations over the seeds they share.
- The variance of one configuration is shrunk towards the pooled one, as if `PRIOR_DF` more replicates had shown
  it: five seeds alone say little about their own spread. Its mean then has a t distribution.
- A configuration with one seed was drawn among many, of which the luckiest look best. Its mean is shrunk towards
  a ridge regression over all configurations, by as much as that regression leaves unexplained.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rst_tune.errors import InputError

__all__ = ["PRIOR_DF", "Beliefs", "from_moments", "from_replicates", "nondominated_probability"]

Array = NDArray[np.float64]

PRIOR_DF = 4.0
DRAWS = 4000
# No more of the noise than this is put down to the seed: a perfect pairing is not to be believed.
MOST_SHARED = 0.9
# The pairwise covariances fill an n x n table; this many configurations are plenty to estimate one number.
MOST_PAIRED = 1000
# Above this many shared seeds their S x S system costs more than pairing gains.
MOST_SEEDS = 300
# A configuration beaten by a cheaper one by this many standard errors is not drawn: its probability is 0.
HOPELESS = 5.0


@dataclass(frozen=True, kw_only=True)
class Beliefs:
    """The joint belief mu = mean - weights @ b + scale * t(df), where b ~ N(seed_mean, seed_covariance)."""

    mean: Array
    scale: Array
    df: Array
    weights: Array
    seed_mean: Array
    seed_covariance: Array

    def take(self, index: NDArray[np.int_]) -> "Beliefs":
        """Return the beliefs of some configurations."""
        own = {name: getattr(self, name)[index] for name in ("mean", "scale", "df", "weights")}
        return replace(self, **own)

    def draws(self, count: int = DRAWS, seed: int = 0) -> Array:
        """Return `count` draws of all means, shape (configurations, count), the same for the same seed."""
        rng = np.random.default_rng(seed)
        mu: Array = rng.standard_t(self.df[:, None], size=(len(self.mean), count))
        mu *= self.scale[:, None]
        mu += self.mean[:, None]
        if self.weights.shape[1]:
            shared = rng.multivariate_normal(self.seed_mean, self.seed_covariance, size=count, method="eigh")
            mu -= self.weights @ shared.T
        return mu


def nondominated_probability(
    belief: Beliefs, costs: ArrayLike, rivals: ArrayLike | None = None, draws: int | None = None, seed: int = 0
) -> Array:
    """Return for each configuration the probability that no rival at most as dear has a lower true error.

    `rivals` tells who counts as one; all do unless it is given.
    """
    costs = np.asarray(costs, dtype=float)
    rival = np.ones(len(costs), dtype=bool) if rivals is None else np.asarray(rivals, dtype=bool)
    order = np.argsort(costs, kind="stable")
    order = order[~_hopeless(belief.mean[order], belief.scale[order], rival[order])]
    draws = draws or max(500, min(DRAWS, 2_000_000 // max(len(order), 1)))
    mu = belief.take(order).draws(draws, seed)
    lowest = np.where(rival[order, None], mu, np.inf)
    np.minimum.accumulate(lowest, axis=0, out=lowest)
    # Within one cost the last row of the group has seen them all.
    last = np.searchsorted(costs[order], costs[order], side="right") - 1
    result = np.zeros(len(costs))
    result[order] = (mu <= lowest[last]).mean(axis=1)
    return result


def _hopeless(mean: Array, scale: Array, rival: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which rows, sorted by cost, an earlier rival beats beyond doubt."""
    best = np.minimum.accumulate(np.where(rival, mean + HOPELESS * scale, np.inf))
    before = np.concatenate([[np.inf], best[:-1]])
    return np.asarray(mean - HOPELESS * scale > before)


def from_moments(means: ArrayLike, sds: ArrayLike, counts: ArrayLike) -> Beliefs:
    """Return the beliefs from printed means and standard deviations, as in a paper's table: nothing is paired."""
    mean, sd, n = (np.asarray(x, dtype=float) for x in (means, sds, counts))
    variance = _shrunk_variance((n - 1) * sd**2, n - 1)
    return _unpaired(mean, np.sqrt(variance / n), n - 1 + PRIOR_DF)


def _unpaired(mean: Array, scale: Array, df: Array) -> Beliefs:
    return Beliefs(
        mean=mean,
        scale=scale,
        df=df,
        weights=np.zeros((len(mean), 0)),
        seed_mean=np.zeros(0),
        seed_covariance=np.zeros((0, 0)),
    )


def _shrunk_variance(squares: Array, df: Array) -> Array:
    if df.sum() <= 0:
        raise InputError("noise is measured from replicates, but no configuration has two seeds: run more seeds")
    pooled = squares.sum() / df.sum()
    return np.asarray((squares + PRIOR_DF * pooled) / (df + PRIOR_DF))


def from_replicates(errors: Sequence[Mapping[int, float]], features: Array | None = None) -> Beliefs:
    """Return the beliefs from each configuration's errors by seed.

    `features` (one row a configuration) feed the regression towards which single runs are shrunk.
    """
    counts = np.array([len(e) for e in errors], dtype=float)
    mean = np.array([fmean(e.values()) for e in errors])
    squares = np.array([sum((y - m) ** 2 for y in e.values()) for e, m in zip(errors, mean, strict=True)])
    total = _shrunk_variance(squares, counts - 1)
    table, member = _residual_table(errors, mean)
    share = _shared_part(table, member, squares.sum() / (counts - 1).sum())
    unpaired = (counts - member.sum(axis=1)) / counts
    # A seed of its own keeps its share of the noise; a shared one gives it to b.
    scale = np.sqrt(total * (1 - share * (1 - unpaired)) / counts)
    belief = _unpaired(mean, scale, counts - 1 + PRIOR_DF)
    if share > 0:
        belief = _paired(belief, table, member, counts, total * (1 - share), float(np.median(total)) * share)
    return belief if features is None else _shrink_single_runs(belief, counts, features)


def _residual_table(errors: Sequence[Mapping[int, float]], mean: Array) -> tuple[Array, Array]:
    """Return residuals and membership, (configurations, shared seeds); a seed is shared by two replicated ones."""
    replicated = [e for e in errors if len(e) > 1]
    uses: dict[int, int] = {}
    for row in replicated:
        for seed in row:
            uses[seed] = uses.get(seed, 0) + 1
    shared = sorted(seed for seed, n in uses.items() if n > 1)
    column = {seed: k for k, seed in enumerate(shared if len(shared) <= MOST_SEEDS else [])}
    table, member = np.zeros((2, len(errors), len(column)))
    for i, row in enumerate(errors):
        for seed, value in row.items():
            if seed in column:
                table[i, column[seed]], member[i, column[seed]] = value - mean[i], 1.0
    return table, member


def _shared_part(table: Array, member: Array, pooled: float) -> float:
    """Return which part of the variance the seed explains: covariance over shared seeds, all pairs pooled."""
    rows = np.flatnonzero(member.sum(axis=1) > 1)[:MOST_PAIRED]
    y, m = table[rows], member[rows]
    common = m @ m.T
    sums = y @ m.T
    products = y @ y.T - np.divide(sums * sums.T, common, out=np.zeros_like(common), where=common > 0)
    pairs = np.triu(common >= 2, k=1)
    weight = float((common[pairs] - 1).sum())
    if weight == 0 or pooled <= 0:
        return 0.0
    return float(np.clip(products[pairs].sum() / weight / pooled, 0.0, MOST_SHARED))


def _paired(belief: Beliefs, table: Array, member: Array, counts: Array, own: Array, shared: float) -> Beliefs:
    """Add the seeds' effects: their posterior given all residuals, with a flat prior on the means."""
    precision = member / own[:, None]
    system = np.diag(1 / shared + precision.sum(axis=0)) - precision.T @ (member / counts[:, None])
    covariance: Array = np.asarray(np.linalg.inv(system), dtype=np.float64)
    effect = covariance @ (table / own[:, None]).sum(axis=0)
    return replace(belief, weights=member / counts[:, None], seed_mean=effect, seed_covariance=covariance)


def _shrink_single_runs(belief: Beliefs, counts: Array, features: Array) -> Beliefs:
    """Draw the configurations with one seed towards a regression, by the spread it leaves beyond the noise."""
    adjusted = belief.mean - belief.weights @ belief.seed_mean
    expected, left = _ridge(features, adjusted)
    noise = np.maximum(belief.scale**2, 1e-12)
    # A regression is never exact, however little its residuals seem to leave.
    spread = max(float(np.mean(left**2 - noise)), 0.25 * float(np.mean(noise)))
    keep = np.where(counts > 1, 1.0, spread / (spread + noise))
    mean = keep * belief.mean + (1 - keep) * expected
    return replace(belief, mean=mean, scale=belief.scale * np.sqrt(keep), weights=belief.weights * keep[:, None])


def _ridge(features: Array, target: Array, penalty: float = 1.0) -> tuple[Array, Array]:
    """Return the fitted values and the leave-one-out residuals of a ridge regression on scaled features."""
    centred = features - features.mean(axis=0)
    x = centred / np.where(centred.std(axis=0) > 0, centred.std(axis=0), 1.0)
    solve = np.linalg.solve(x.T @ x + penalty * np.eye(x.shape[1]), x.T)
    fitted = target.mean() + x @ (solve @ (target - target.mean()))
    leverage = np.einsum("ij,ji->i", x, solve) + 1 / len(target)
    return fitted, (target - fitted) / np.maximum(1 - leverage, 0.05)
