"""P(non-dominated) against simulated worlds whose truth is known, and against the paper's own tables."""

import numpy as np
import pytest
from scipy import stats

from rst_tune.analysis import pareto, published
from rst_tune.analysis.replicate_model import (
    PRIOR_DF,
    MeanPosterior,
    fit_means,
    nondominated_probability,
    pooled_variance,
)
from rst_tune.errors import InputError


def from_moments(means, sds, counts):
    """Return the posterior from printed means and standard deviations, as in a paper's table: nothing is paired."""
    mean, sd, n = (np.asarray(x, dtype=float) for x in (means, sds, counts))
    return MeanPosterior.unpaired(mean, np.sqrt(pooled_variance((n - 1) * sd**2, n - 1) / n), n - 1 + PRIOR_DF)


def world(rng, seeds, seed_effect):
    """Twelve configurations, their costs, true errors, replicates on shared seeds, and who is truly on the front."""
    cost = np.sort(rng.uniform(0, 1, 12))
    mu = 4 - (1 - np.exp(-3 * cost)) + rng.normal(0, 0.3, 12)
    y = mu[:, None] + rng.normal(0, seed_effect, seeds) + rng.normal(0, 0.1, (12, seeds))
    return cost, y, pareto.nondominated(np.column_stack([mu, cost]))


@pytest.mark.parametrize(("seeds", "seed_effect"), [(4, 0.0), (4, 0.2), (2, 0.2)])
def test_probability_is_the_frequency_of_being_right(seeds, seed_effect):
    rng = np.random.default_rng(1)
    chances, truths = [], []
    for _ in range(150):
        cost, y, truth = world(rng, seeds, seed_effect)
        posterior = fit_means([dict(enumerate(row)) for row in y])
        chances.extend(nondominated_probability(posterior, cost, samples=500))
        truths.extend(truth)
    chances, truths = np.array(chances), np.array(truths)
    for low, high in ((0.0, 0.05), (0.05, 0.35), (0.35, 0.65), (0.65, 0.95), (0.95, 1.01)):
        inside = (chances >= low) & (chances < high)
        count = inside.sum()
        margin = 0.03 + 3 * np.sqrt(0.25 / count) * (0.35 if high == 0.05 or low == 0.95 else 1.0)
        assert truths[inside].mean() == pytest.approx(chances[inside].mean(), abs=margin)


def test_two_configurations_agree_with_the_closed_form():
    posterior = from_moments([3.0, 3.1], [0.2, 0.2], [400, 400])
    chance = nondominated_probability(posterior, [0.2, 0.5], samples=200_000)
    assert chance[0] == 1.0
    assert chance[1] == pytest.approx(stats.norm.cdf(-0.1 / (0.2 * np.sqrt(2 / 400))), abs=0.002)


def test_equal_costs_compete_with_each_other():
    posterior = from_moments([3.0, 3.0], [0.2, 0.2], [5, 5])
    assert nondominated_probability(posterior, [0.5, 0.5]) == pytest.approx([0.5, 0.5], abs=0.05)


def test_shared_seeds_tell_more_than_separate_ones():
    rng = np.random.default_rng(0)
    b = rng.normal(0, 1.0, 5)
    rows = [mu + b + rng.normal(0, 0.05, 5) for mu in (3.0, 3.3, 3.6, 3.9)]
    paired = fit_means([dict(enumerate(row)) for row in rows])
    separate = fit_means([{5 * k + s: v for s, v in enumerate(row)} for k, row in enumerate(rows)])
    gaps = [np.std(np.subtract(*posterior.sample()[:2])) for posterior in (paired, separate)]
    assert gaps[0] < 0.5 * gaps[1]


def test_a_missing_seed_is_adjusted_for():
    """Seed 9 is hard for everyone; a configuration that only met seed 9 is not worse for it."""
    errors = [{0: 3.0, 1: 3.01, 9: 4.0}, {0: 3.2, 1: 3.21, 9: 4.21}, {0: 3.1, 1: 3.1, 9: 4.09}, {9: 3.9}]
    draws = fit_means(errors).sample()
    assert (draws[3] < draws[1]).mean() > 0.8


def test_single_runs_are_drawn_towards_the_rest_and_replicated_ones_are_not():
    rng = np.random.default_rng(0)
    errors = [{0: 3.0 + rng.normal(0, 0.1)} for _ in range(40)]
    errors += [{s: 3.0 + rng.normal(0, 0.1) for s in range(1, 6)} for _ in range(2)]
    errors[0] = {0: 2.7}
    features = rng.normal(size=(42, 2))
    posterior = fit_means(errors, features)
    assert posterior.mean[0] > 2.8
    assert posterior.mean[41] == pytest.approx(np.mean(list(errors[41].values())))


def test_a_lucky_single_run_counts_for_less_than_its_value():
    """Forty equal configurations with one run each: the luckiest must not be best beyond doubt."""
    rng = np.random.default_rng(3)
    lucky = []
    for _ in range(20):
        errors = [{0: 3.0 + rng.normal(0, 0.1)} for _ in range(40)]
        errors += [{s: 3.0 + rng.normal(0, 0.1) for s in range(1, 5)} for _ in range(3)]
        posterior = fit_means(errors, rng.normal(size=(43, 2)))
        costs = np.linspace(1, 0, 43)
        lucky.append(max(nondominated_probability(posterior, costs)[:35]))
    assert np.mean(np.array(lucky) >= 0.95) < 0.1


def test_no_noise_at_all_is_no_trouble():
    posterior = fit_means([{0: 3.0, 1: 3.0}, {0: 2.5, 1: 2.5}, {0: 2.7}], np.zeros((3, 1)))
    assert nondominated_probability(posterior, [0.0, 0.5, 0.6]).tolist() == pytest.approx([1.0, 1.0, 0.0], abs=0.01)


def test_hopeless_ones_are_left_out_without_changing_the_rest():
    means, costs = np.array([4.0, 3.0, 2.95, 9.0]), [0.0, 0.3, 0.6, 0.9]
    posterior = from_moments(means, [0.1] * 4, [5] * 4)
    chance = nondominated_probability(posterior, costs)
    assert chance[3] == 0.0
    assert chance[1] == pytest.approx(1.0, abs=0.01)
    assert 0.5 < chance[2] < 0.95


def test_only_rivals_can_dominate():
    posterior = from_moments([3.0, 3.5], [0.1, 0.1], [5, 5])
    assert nondominated_probability(posterior, [0.1, 0.2], rivals=[False, True])[1] == 1.0
    assert nondominated_probability(posterior, [0.1, 0.2])[1] < 0.01


def test_without_replicates_there_is_an_error_that_says_so():
    with pytest.raises(InputError, match="no configuration has two seeds"):
        fit_means([{0: 3.0}, {0: 4.0}])


# SGD, SAM, nine constants, nine piecewise of group 1, nine linear of group 1: WRN-28-10 with cutout, five seeds.
@pytest.mark.parametrize(("dataset", "printed", "sure"), [("cifar10", 10, 1), ("cifar100", 9, 2)])
def test_the_papers_fronts_are_mostly_noise(dataset, printed, sure):
    tables = ("app-cf-res", "app-pf-res-ap-0", "app-lf-group-1")
    rows = [row for name in tables for row in published.table(name) if row.dataset == dataset]
    rows = list({(r.method, tuple(r.schedule.items())): r for r in rows}.values())
    assert len(rows) == 29
    costs = [row.extra_propagation for row in rows]
    posterior = from_moments([r.error_mean for r in rows], [r.error_sd for r in rows], [r.seeds for r in rows])
    chance = nondominated_probability(posterior, costs, samples=50_000)
    front = pareto.nondominated([(row.error_mean, cost) for row, cost in zip(rows, costs, strict=True)])
    assert front.sum() == printed
    assert (chance[front] >= 0.95).sum() == sure
