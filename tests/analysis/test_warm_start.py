"""Priors learnt from earlier searches, on tasks whose coefficients are known: alike, unlike, and uninformative."""

from dataclasses import replace

import numpy as np
import pytest

from rst_tune.analysis.analysis import analyze
from rst_tune.analysis.surrogate import PRIOR, basis, fit_surrogate
from rst_tune.analysis.warm_start import COMMON, coefficient_posterior, kernel_posterior, learn_prior
from rst_tune.errors import InputError
from rst_tune.records import load
from tests.analysis.builders import search_of, trial
from tests.analysis.synthetic import write_search

# 1, L, L², gain, loss: sharpness-aware training that helps, and long trainings that overfit; then the opposite.
HELPS = np.array([1.0, 0.35, 0.12, -0.4, 0.7])
HURTS = np.array([3.0, -0.4, 0.0, 0.8, 0.35])


def task(coefficients, *, count, seed=0, noise=0.08, factor=1.0):
    """Return the trials of a search of a task that follows the prior mean exactly, the base optimizer among them."""
    rng = np.random.default_rng(seed)
    made = []
    for k in range(count):
        horizon = round(2.0 ** rng.uniform(-2.5, 1), 3)
        rho, gamma = round(0.1 * 2.0 ** rng.uniform(-1.5, 2), 4), round(rng.uniform(0.3, 2), 3)
        cost = 0.0 if k % 4 == 0 else round(rng.uniform(0.1, 1), 3)
        one = trial(cost, k, 1.0, gamma=gamma if cost else 0.0, rho=rho, horizon=horizon)
        error = np.exp(float(basis([one.config], 1.0)[0] @ coefficients) + noise * rng.normal())
        made.append(replace(one, error=factor * error))
    return made


def earlier(coefficients, count=60, **options):
    return search_of(task(coefficients, count=count, **options))


def distance(trials, held_out, prior):
    """Return the error of the predicted logarithms, without their common level."""
    predicted = np.log(fit_surrogate(trials, prior=prior).errors([t.config for t in held_out]))
    gaps = predicted - np.log([t.error for t in held_out])
    return float(np.std(gaps))


def compare(coefficients, learnt, count):
    """Return the errors with the learnt and with the shipped prior, means over tasks of `count` trials."""
    pairs = []
    for seed in range(12):
        trials = task(coefficients, count=count, seed=100 + seed)
        held_out = task(coefficients, count=60, seed=200 + seed, noise=0.0)
        pairs.append([distance(trials, held_out, prior) for prior in (learnt, PRIOR)])
    return np.mean(pairs, axis=0)


def test_the_posterior_of_the_coefficients_is_near_the_truth_and_knows_how_near():
    mean, covariance = coefficient_posterior(fit_surrogate(task(HELPS, count=150)))
    sd = np.sqrt(np.diag(covariance))
    assert np.all(np.abs(mean[1:] - HELPS[1:]) < 3 * sd[1:])
    assert np.all(sd[1:] < np.array(PRIOR.mean_sd[1:]))


def test_the_curvature_is_that_of_the_objective():
    fitted = fit_surrogate(task(HELPS, count=40))
    theta, precision = kernel_posterior(fitted)
    assert np.linalg.eigvalsh(precision).min() > 0
    assert np.exp(theta[2]) == pytest.approx(fitted.params.scale)
    # At the maximum the trials add to what the prior says of the noise; few of them say much of the share.
    assert precision[1, 1] > 1 / PRIOR.kernel_sd[1] ** 2


def test_where_tasks_are_alike_a_few_trainings_predict_better():
    learnt = learn_prior([earlier(HELPS, seed=s) for s in range(2)])
    towards = (np.array(learnt.mean) - PRIOR.mean) * np.sign(HELPS - PRIOR.mean)
    assert np.all(towards[1:4] > 0), "length and gain; the loss is hidden where errors are clipped"
    warm, cold = compare(HELPS, learnt, count=6)
    assert warm < 0.9 * cold


def test_where_they_are_not_a_few_more_trainings_are_enough():
    learnt = learn_prior([earlier(HELPS, seed=s) for s in range(2)])
    warm, cold = compare(HURTS, learnt, count=24)
    assert warm < 1.1 * cold


def test_however_many_searches_there_are_the_prior_stays_wide():
    learnt = learn_prior([earlier(HELPS, seed=s, count=30) for s in range(25)])
    for name in ("mean_sd", "kernel_sd"):
        ratio = np.array(getattr(learnt, name)) / np.array(getattr(PRIOR, name))
        assert np.all(ratio >= np.sqrt(1 - COMMON) - 1e-3)
        assert np.all(ratio <= 1 + 1e-9)
    assert np.all(np.array(learnt.mean_sd[1:]) < np.array(PRIOR.mean_sd[1:]))
    assert len(learnt.searches) == 25


def test_level_and_unit_of_the_metric_are_not_transferred():
    percent, other = (learn_prior([earlier(HELPS, factor=factor)]) for factor in (1.0, 1e-3))
    assert percent.mean == pytest.approx(other.mean, abs=1e-3)
    assert percent.kernel == pytest.approx(other.kernel, rel=1e-2)
    assert (percent.mean[0], percent.mean_sd[0]) == (PRIOR.mean[0], PRIOR.mean_sd[0])


def test_what_a_search_did_not_vary_stays_as_it_was():
    flat = [trial(0.0, seed, 5.0 + 0.1 * (seed % 3), gamma=0.0) for seed in range(12)]
    learnt = learn_prior([search_of(flat)])
    assert learnt.mean == pytest.approx(PRIOR.mean, abs=1e-3)
    assert learnt.mean_sd == pytest.approx(PRIOR.mean_sd, rel=1e-2)
    assert learnt.kernel[1] < PRIOR.kernel[1], "it has little noise, which is learnt"


def test_two_searches_say_more_than_one_and_their_order_does_not_matter():
    one, two = earlier(HELPS), earlier(HELPS, seed=1)
    both = learn_prior([one, two])
    assert np.all(np.array(both.mean_sd[1:]) < np.array(learn_prior([one]).mean_sd[1:]))
    swapped = learn_prior([two, one])
    assert (both.mean, both.kernel) == (swapped.mean, swapped.kernel)


def test_a_search_with_too_few_trials_is_refused():
    with pytest.raises(InputError, match=r"needs 2 finished trials, but .* has 1"):
        learn_prior([earlier(HELPS, count=1)])


def test_the_analysis_uses_the_prior_that_the_log_records(tmp_path):
    learnt = learn_prior([earlier(HURTS)])
    cold = load(write_search(tmp_path, trials=8, confirm_seeds=0, accidents=False))
    header = replace(cold.header, experiment={**cold.header.experiment, "prior": learnt.model_dump(mode="json")})
    warm = replace(cold, header=header)
    assert analyze(warm).surrogate.prior == learnt
    assert analyze(cold).surrogate.prior == PRIOR
    errors = [[row.error_posterior for row in analyze(search).summaries] for search in (cold, warm)]
    assert errors[0] != pytest.approx(errors[1], rel=1e-4)
