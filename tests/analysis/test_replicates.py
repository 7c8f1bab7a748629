"""Summaries: which trials are scored, which configurations may be on the front, what one seed shows."""

from dataclasses import replace

import numpy as np
import pytest

from rst_tune.analysis.analysis import analyze
from rst_tune.analysis.pareto import nondominated
from rst_tune.records import Status, load
from tests.analysis.builders import runs, search_of, trial
from tests.analysis.synthetic import true_error, write_search


def summaries(search):
    return analyze(search).summaries


def test_mean_sem_and_test_error(tmp_path):
    runs = [trial(0.5, s, e, test=e + 1) for s, e in enumerate([3.0, 3.2, 3.4])]
    (row,) = summaries(search_of(runs, tmp_path))
    assert (row.error_mean, row.seeds, row.seed_ids) == (pytest.approx(3.2), 3, (0, 1, 2))
    assert row.error_sem == pytest.approx(0.2 / np.sqrt(3))
    assert (row.test_error_mean, row.test_error_sem) == (pytest.approx(4.2), pytest.approx(0.2 / np.sqrt(3)))
    assert (row.p_nondominated, row.verdict, row.on_front) == (1.0, "confirmed", True)


def test_the_searching_run_stops_counting_once_two_confirm(tmp_path):
    first, fresh = trial(0.5, 0, 2.0), [trial(0.5, 100 + s, 3.0 + 0.1 * s, "confirm") for s in range(2)]
    (one,) = summaries(search_of([first, fresh[0]], tmp_path))
    (two,) = summaries(search_of([first, *fresh], tmp_path))
    assert one.errors == (2.0, 3.0)
    assert two.errors == (3.0, 3.1)


def test_one_seed_claims_nothing(tmp_path):
    rows = summaries(search_of([trial(0.0, 0, 4.0), trial(0.5, 0, 3.0)], tmp_path))
    assert [row.verdict for row in rows] == ["single seed"] * 2
    assert [(row.p_nondominated, row.error_sem) for row in rows] == [(None, None)] * 2
    assert all(row.on_front for row in rows)


def test_a_lucky_single_run_does_not_displace_a_replicated_point_and_no_answer_is_about_it(tmp_path):
    runs = [trial(c, 100 + s, 3.5 - c + 0.1 * s, "confirm") for c in (0.5, 0.0) for s in range(3)]
    runs.append(trial(0.4, 0, 2.5))
    rows = {row.extra_propagation: row for row in summaries(search_of(runs, tmp_path, "confirm"))}
    assert rows[0.5].on_front
    assert rows[0.5].settled
    assert rows[0.5].p_nondominated > 0.95
    assert not rows[0.4].settled
    assert rows[0.4].verdict == "single seed"


def test_fewer_seeds_than_the_experiment_asks_for_are_not_enough_for_an_answer(tmp_path):
    runs = [trial(c, 100 + s, 3.5 - c + 0.1 * s, "confirm") for c in (0.5, 0.0) for s in range(3)]
    runs += [trial(0.4, 100 + s, 2.5 + 0.1 * s, "confirm") for s in range(2)]
    for least, cheap_is_settled in ((3, False), (2, True)):
        rows = summaries(search_of(runs, tmp_path, "done", confirm={"min_seeds": least}))
        assert {row.extra_propagation: row.settled for row in rows}[0.4] == cheap_is_settled


def test_one_replicated_configuration_is_no_front_by_itself(tmp_path):
    runs = [trial(0.0, 100, 13.0, "confirm"), trial(0.0, 0, 13.5), trial(0.5, 0, 5.0)]
    assert [row.on_front for row in summaries(search_of(runs, tmp_path, "done"))] == [True, True]


def test_replicated_baselines_do_not_shut_out_the_searched_ones(tmp_path):
    runs = [trial(0.0, s, 4.0 + 0.1 * s) for s in range(3)] + [trial(0.5, 0, 3.0)]
    rows = summaries(search_of(runs, tmp_path, "done"))
    assert [row.on_front for row in rows] == [True, True]


@pytest.mark.parametrize(
    "bad", [{"status": Status.STOPPED}, {"status": Status.DIVERGED}, {"error": None}, {"error": float("nan")}]
)
def test_only_finished_and_finite_trials_count(tmp_path, bad):
    good, other = trial(0.5, 0, 3.0), replace(trial(0.3, 0, 1.0), **bad)
    assert [row.extra_propagation for row in summaries(search_of([good, other], tmp_path))] == [0.5]


def test_short_horizons_are_no_replicates(tmp_path):
    short = replace(trial(0.5, 1, 9.0), full_horizon=False)
    (row,) = summaries(search_of([trial(0.5, 0, 3.0), short], tmp_path))
    assert row.errors == (3.0,)


def test_the_truth_is_not_ruled_out_in_a_synthetic_search(tmp_path):
    search = load(write_search(tmp_path, trials=150, confirmed=8, confirm_seeds=6))
    rows = [row for row in summaries(search) if row.seeds > 1]
    truth = nondominated([(true_error(row.config), row.compute) for row in rows])
    assert truth.sum() > 3
    assert all(
        row.p_nondominated > 0.01 if best else row.p_nondominated < 0.99 for row, best in zip(rows, truth, strict=True)
    )


def test_p_nondominated_is_calibrated_over_synthetic_searches(tmp_path):
    """Of the replicated configurations with a probability near p, about that share is truly not dominated."""
    found = []
    for seed in range(8):
        search = load(write_search(tmp_path / str(seed), trials=60, confirmed=8, confirm_seeds=3, seed=seed))
        rows = [row for row in summaries(search) if row.settled]
        truth = nondominated([(true_error(row.config), row.compute) for row in rows])
        found += [(row.p_nondominated, best) for row, best in zip(rows, truth, strict=True)]
    chance, best = np.array(found, dtype=float).T
    assert np.mean(chance) == pytest.approx(np.mean(best), abs=0.15)
    assert np.mean(best[chance > 0.8]) > np.mean(best[chance < 0.3]) + 0.2
    assert np.mean((chance - best) ** 2) < 0.2, "a constant of 0.5 has 0.25"


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_replicates_without_any_wrong_answer_have_no_relative_noise_and_break_nothing(tmp_path):
    perfect = [t for cost in (0.3, 0.6, 0.9) for t in runs(cost, [0.0, 0.0, 0.0])]
    found = analyze(search_of([*runs(0.0, [2.0, 2.2, 2.1], 0.0), *perfect], tmp_path))
    assert all(np.isfinite(row.error_posterior) for row in found.summaries)
    assert found.points[-1].error_mean == 0.0


def test_a_point_of_equal_compute_is_dominated_however_many_seeds_the_better_one_has(tmp_path):
    short = {"horizon": 0.2}  # 0.3 three times has a mean of 0.30000000000000004
    worse, better = runs(0.5, [6.5], 1.0, **short), runs(0.5, [4.0, 4.2, 4.4], 1.0, rho=0.3, **short)
    assert worse[0].config_id != better[0].config_id
    found = analyze(search_of([*runs(0.0, [9.0, 9.2], 0.0), *worse, *better], tmp_path))
    assert [p.config_id for p in found.points if p.compute == pytest.approx(0.3)] == [better[0].config_id]
