import dataclasses
import math

import pytest

from rst_tune.analysis.analysis import analyze
from rst_tune.analysis.rungs import MIN_FINISHED, RungRegression, expected_finals, rung_correlations
from rst_tune.records import Role, Status, Trial, TrialConfig
from tests.analysis.builders import search_of

CONFIG = TrialConfig(family="constant", schedule={}, extra_propagation=0.5, gamma_gnr=1.0, gamma_rst=0.5, rho=0.1)


def trial(number: int, early: float, final: float | None) -> Trial:
    return Trial(
        key=str(number), number=number, role=Role.SEARCH, config_id=f"c{number}", config=CONFIG,
        seed=0, epochs=9, full_horizon=True, sampled_at=0.0, error=final, rungs={3: early},
        status=Status.COMPLETE if final is not None else Status.STOPPED,
    )  # fmt: skip


def test_a_rung_that_ranks_backwards_has_correlation_minus_one(tmp_path):
    (found,) = rung_correlations(search_of([trial(i, 10.0 + i, 9.0 - i) for i in range(8)], tmp_path))
    assert (found.level, found.trials) == (3, 8)
    assert found.correlation == -1.0
    assert str(found) == "after 35 % of a training: -1.00 (8 trials)"


def test_stopped_trials_say_nothing_and_few_are_not_enough(tmp_path):
    few = [trial(i, 10.0 + i, 5.0 + i) for i in range(MIN_FINISHED - 1)] + [trial(9, 80.0, None)]
    (found,) = rung_correlations(search_of(few, tmp_path))
    assert (found.trials, found.correlation) == (MIN_FINISHED - 1, None)


def test_a_short_training_of_the_same_configuration_and_seed_is_a_rung_too(tmp_path):
    short = [
        dataclasses.replace(trial(i, 10.0 + i, 10.0 + i), key=f"s{i}", full_horizon=False, epochs=3) for i in range(8)
    ]
    whole = [dataclasses.replace(trial(i, 0.0, 5.0 + i), rungs={}) for i in range(8)]
    (found,) = rung_correlations(search_of(short + whole, tmp_path))
    assert found.correlation == 1.0


def test_a_stopped_trial_is_expected_to_end_where_its_rung_points(tmp_path):
    finished = [trial(i, math.exp(1 + i / 4), 0.5 * math.exp(1 + i / 4)) for i in range(8)]
    (found,) = expected_finals(search_of([*finished, trial(9, math.exp(2.1), None)], tmp_path))
    assert found.finished
    assert found.error == pytest.approx(0.5 * math.exp(2.1))


def test_what_is_expected_stays_between_the_best_end_and_the_rung(tmp_path):
    finished = [trial(i, math.exp(1 + i / 4), 3.0 + i) for i in range(8)]
    lucky, hopeless = trial(8, 0.1, None), trial(9, 11.0, None)
    ends = {t.number: t.error for t in expected_finals(search_of([*finished, lucky, hopeless], tmp_path))}
    assert ends[8] == 3.0
    assert ends[9] <= 11.0


def test_too_few_that_finished_say_nothing_of_the_stopped(tmp_path):
    finished = [trial(i, 10.0 + i, 3.0 + i) for i in range(MIN_FINISHED - 1)]
    assert expected_finals(search_of([*finished, trial(9, 12.0, None)], tmp_path)) == []


def test_the_surrogate_counts_the_seeds_that_were_stopped(tmp_path):
    """Where some seeds diverge, the rungs stop those: the others alone have a lower mean error."""
    others = [trial(i, math.exp(1 + i / 4), 3.0 + i) for i in range(8)]
    broken = [trial(20 + i, math.exp(2.75), None) for i in range(6)]
    predicted = [analyze(search_of(t, tmp_path)).surrogate.errors([CONFIG])[0] for t in (others, others + broken)]
    assert predicted[1] > predicted[0] + 0.5


def test_a_hopeless_trial_is_not_taken_for_a_good_one():
    """Good trials predict nothing about one with a far higher error at the rung."""
    regression = RungRegression()
    for rung_error, final in ((16, 5.0), (20, 5.2), (25, 4.8), (30, 5.1), (35, 4.9)) * 2:
        regression.add(rung_error, 0.5, final)
    assert regression.expected(30, 0.5) < 6
    assert regression.expected(90, 0.5) == 90
