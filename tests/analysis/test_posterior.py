"""The posterior against the truth of synthetic searches."""

from dataclasses import replace

import numpy as np
import pytest
from synthetic import make_config, true_error, write_search

from rst_tune.analysis import posterior, records
from rst_tune.errors import InputError


def finished(directory, **options):
    return records.load(write_search(directory, **options)).finished()


def split(trials, seed=0):
    order = np.random.default_rng(seed).permutation(len(trials))
    cut = 7 * len(trials) // 10
    return [trials[i] for i in order[:cut]], [trials[i] for i in order[cut:]]


def test_the_interval_of_a_training_covers_held_out_ones(tmp_path):
    """Pooled over searches: one has too few held-out trials to tell 0.8 from 0.97."""
    inside = []
    for seed in range(5):
        train, held_out = split(finished(tmp_path / str(seed), trials=90, seed=seed, confirm_seeds=0))
        inside.append(posterior.coverage(posterior.fit_trials(train), held_out))
    assert 0.8 <= np.mean(inside) <= 0.97


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    return posterior.fit_trials(finished(tmp_path_factory.mktemp("p"), trials=250))


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
    widths = [np.subtract(*fitted.interval(config, noise=noise)[::-1]) for noise in (True, False)]
    assert widths[0] > 1.3 * widths[1]


def test_families_are_one_at_the_ends_and_apart_in_between(fitted):
    ends = [fitted.predict(family, 1.0, 1.0)[0] for family in ("constant", "step-down")]
    middle = [fitted.predict(family, 0.4, 0.9)[0] for family in ("constant", "step-down")]
    assert ends[0] == pytest.approx(ends[1])
    assert middle[1] - middle[0] > 0.1


def test_the_recommended_front_is_truly_good(fitted):
    points = fitted.recommended_front()
    costs = [p.extra_propagation for p in points]
    errors = [p.error_mean for p in points]
    assert costs == sorted(costs)
    assert errors == sorted(errors, reverse=True)
    for point in points:
        best = true_error(make_config("step-up", point.extra_propagation, 0.9))
        truth = true_error(make_config(point.family, point.extra_propagation, point.gamma_rst))
        assert truth - best < 0.15


def test_an_unknown_family_lists_the_tried_ones(fitted):
    with pytest.raises(InputError, match="step-up"):
        fitted.predict("stepup", 0.5, 1.0)


def test_too_few_trials(tmp_path):
    search = records.load(write_search(tmp_path, trials=2, phase="search", baseline_seeds=1))
    assert posterior.fit(search) is None
    with pytest.raises(InputError, match="needs 6 finished trials"):
        posterior.fit_trials(search.finished())
    with pytest.raises(InputError, match="held-out"):
        posterior.coverage(None, [])


def test_a_large_search_keeps_its_ends_and_its_confirmed_ones(tmp_path):
    trials = finished(tmp_path, trials=400)
    used = posterior._sample(trials, 0)
    kept = {t.key for t in used}
    assert len(used) == posterior.MOST
    assert all(t.key in kept for t in trials if t.role == "confirm" or t.extra_propagation in (0.0, 1.0))


def test_equal_errors_are_no_trouble(tmp_path):
    flat = [replace(t, error=3.0) for t in finished(tmp_path, trials=20)]
    mean, _ = posterior.fit_trials(flat).predict("constant", 0.5, 1.0)
    assert mean == pytest.approx(3.0)


def test_a_base_optimizer_far_behind_the_rest_is_believed_to_be_as_bad_as_measured(tmp_path):
    trials = [replace(t, error=5.0 * t.error if t.extra_propagation == 0 else t.error) for t in finished(tmp_path)]
    measured = np.mean([t.error for t in trials if t.extra_propagation == 0])
    assert measured > posterior.BROKEN * np.quantile([t.error for t in trials], 0.25)
    base = next(t.config for t in trials if t.extra_propagation == 0)
    belief = posterior.fit_trials(trials)
    assert belief.errors([base])[0] > 0.85 * measured
    assert measured < belief.interval(base)[1] < 100, "to be bad is not to break down"
