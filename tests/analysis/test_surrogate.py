"""The surrogate against the truth of synthetic searches."""

from dataclasses import replace

import numpy as np
import pytest

from rst_tune.analysis import surrogate
from rst_tune.analysis.analysis import analyze
from rst_tune.analysis.surrogate import fit_surrogate
from rst_tune.errors import InputError
from rst_tune.records import Role, load
from tests.analysis.interval_coverage import coverage
from tests.analysis.synthetic import make_config, true_error, write_search


def finished(directory, **options):
    return load(write_search(directory, **options)).finished()


def split(trials, seed=0):
    order = np.random.default_rng(seed).permutation(len(trials))
    cut = 7 * len(trials) // 10
    return [trials[i] for i in order[:cut]], [trials[i] for i in order[cut:]]


def test_the_interval_of_a_training_covers_held_out_ones(tmp_path):
    """Pooled over searches: one has too few held-out trials to tell 0.8 from 0.97."""
    inside = []
    for seed in range(5):
        train, held_out = split(finished(tmp_path / str(seed), trials=90, seed=seed, confirm_seeds=0))
        inside.append(coverage(fit_surrogate(train), held_out))
    assert 0.8 <= np.mean(inside) <= 0.97


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    return fit_surrogate(finished(tmp_path_factory.mktemp("p"), trials=250))


@pytest.mark.parametrize(
    ("family", "cost", "gamma"), [("constant", 0.4, 0.9), ("step-up", 0.7, 1.1), ("constant", 1, 1)]
)
def test_the_mean_is_near_the_truth_and_knows_how_near(fitted, family, cost, gamma):
    mean, sd = fitted.predict(family, cost, gamma)
    truth = true_error(make_config(family, cost, gamma))
    assert abs(mean - truth) < max(3 * sd, 0.1)
    assert 0 < sd < 0.15


def test_a_training_is_less_certain_than_the_mean(fitted):
    config = make_config("constant", 0.5, 0.9)
    (low,), (high,) = fitted.interval([config])
    _, (sd,) = fitted.log_errors([config])
    assert np.log(high / low) > 1.3 * 2 * 1.645 * sd


def test_families_are_one_at_the_ends_and_apart_in_between(fitted):
    ends = [fitted.predict(family, 1.0, 1.0)[0] for family in ("constant", "step-down")]
    middle = [fitted.predict(family, 0.4, 0.9)[0] for family in ("constant", "step-down")]
    assert ends[0] == pytest.approx(ends[1])
    assert middle[1] - middle[0] > 0.1


def test_an_unknown_family_lists_the_tried_ones(fitted):
    with pytest.raises(InputError, match="step-up"):
        fitted.predict("stepup", 0.5, 1.0)


def test_too_few_trials(tmp_path):
    search = load(write_search(tmp_path, trials=2, phase="search", baseline_seeds=1))
    assert analyze(search).surrogate is None
    with pytest.raises(InputError, match="needs 6 finished trials"):
        fit_surrogate(search.finished())


def test_a_large_search_keeps_its_ends_and_its_confirmed_ones(tmp_path):
    trials = finished(tmp_path, trials=400)
    used = surrogate._sample(trials)
    kept = {t.key for t in used}
    assert len(used) == surrogate.MAX_TRIALS
    assert all(t.key in kept for t in trials if t.role is Role.CONFIRM or t.extra_propagation in (0.0, 1.0))


def test_equal_errors_are_no_trouble(tmp_path):
    flat = [replace(t, error=3.0) for t in finished(tmp_path, trials=20)]
    mean, _ = fit_surrogate(flat).predict("constant", 0.5, 1.0)
    assert mean == pytest.approx(3.0)


def test_a_base_optimizer_far_behind_the_rest_is_predicted_as_bad_as_measured(tmp_path):
    trials = [replace(t, error=5.0 * t.error if t.extra_propagation == 0 else t.error) for t in finished(tmp_path)]
    measured = np.mean([t.error for t in trials if t.extra_propagation == 0])
    assert measured > surrogate.CLIP_QUARTILE * np.quantile([t.error for t in trials], 0.25)
    base = next(t.config for t in trials if t.extra_propagation == 0)
    fitted = fit_surrogate(trials)
    assert fitted.errors([base])[0] > 0.85 * measured
    assert measured < fitted.interval([base])[1] < 100, "a bad optimizer is not one that diverges"
