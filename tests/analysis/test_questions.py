"""Importance and the paper's questions, on searches whose truth is known."""

from dataclasses import replace

import pytest

from rst_tune.analysis import questions
from rst_tune.analysis.analysis import analyze
from rst_tune.analysis.importance import PARAMETERS, importance
from rst_tune.records import SchedulePreview, SearchStarted, load
from tests.analysis.builders import runs, search_of, trial
from tests.analysis.synthetic import make_config, make_preview, write_search


@pytest.fixture(scope="module")
def search(tmp_path_factory):
    return load(write_search(tmp_path_factory.mktemp("q"), trials=300, confirmed=10))


def test_cost_matters_most_and_the_rule_not_at_all(search):
    found = importance(search)
    assert next(iter(found.values)) == "extra_propagation"
    assert found.values["rule"] < 0.05
    assert sum(found.values.values()) == pytest.approx(1.0)
    assert set(found.values) == set(PARAMETERS) - {"rho", "policy", "horizon"}
    assert found.caveats == ("not varied: rho, policy, horizon",)


@pytest.mark.parametrize(
    ("trials", "said"),
    [
        ([], "needs 8"),
        ([trial(0.5, s, 3.0) for s in range(9)], "equal"),
        ([trial(0.5, s, 3 + s) for s in range(9)], "rho"),
    ],
)
def test_importance_says_what_is_missing(tmp_path, trials, said):
    found = importance(search_of(trials, tmp_path))
    assert found.values == {}
    assert any(said in note for note in found.caveats)


GRID = SearchStarted(experiment={"sampler": {"name": "grid"}})


def test_the_questions_are_answered_as_the_truth_has_them(search):
    ends, constant, gamma, half = analyze(replace(search, header=GRID)).questions
    assert ends.verdict == "yes"
    assert 0.1 < ends.effect < 0.4
    assert constant.effect < 0
    assert gamma.verdict == "yes"
    assert half.low < half.effect < half.high
    assert all(answer.verdict in answer.text for answer in (ends, constant, gamma, half))


def test_intervals_hold_the_true_effect_as_often_as_they_say(tmp_path):
    """Constant and step-up differ by 0.02 in truth, at all costs and gammas."""
    hits = []
    for seed in range(20):
        search = load(write_search(tmp_path / str(seed), trials=120, seed=seed, confirm_seeds=0, accidents=False))
        rows = [r for r in analyze(search).summaries if r.config.family in ("constant", "step-up")]
        answer = questions.constant_or_rest([r for r in rows if r.config.rule == "sam"])
        hits.append(answer.low <= 0.02 <= answer.high)
    assert sum(hits) >= 17


def test_half_the_cost_uses_paired_seeds_and_the_nearest_configuration(tmp_path):
    lift = (0.0, 0.5, 1.0, -0.5)
    sam = runs(1.0, [3.8 + x for x in lift])
    half = runs(0.5, [3.6 + x + 0.01 * k for k, x in enumerate(lift)])
    lucky = runs(0.45, [1.0], 1.4)
    answer = questions.half_cost(analyze(search_of([*sam, *half, *lucky], tmp_path)).baselines)
    # The mean difference is -0.185.
    assert -0.2 < answer.effect < -0.1
    assert answer.high - answer.low < 1.5
    assert "p = 0.5" in answer.text


def test_a_schedule_leans_by_its_curve_or_its_name():
    (row,) = analyze(search_of([trial(0.5, 0, 3.0)])).summaries
    for family, sign in (("step-up", 1), ("step-down", -1), ("constant", 0)):
        config = make_config(family, 0.5, 1.0)
        for preview in (make_preview(config), SchedulePreview()):
            weight = questions.end_weight(replace(row, config=config, preview=preview))
            assert (weight > 0) - (weight < 0) == sign


@pytest.mark.parametrize("trials", [[], [trial(0.5, 0, 3.0)], runs(0.0, [4.0, 4.1], 0.0) + runs(0.5, [3.0, 3.1])])
def test_questions_without_data_say_what_to_run(tmp_path, trials):
    for answer in analyze(search_of(trials, tmp_path, sampler={"name": "grid"})).questions:
        assert answer.verdict == "no data"
        assert answer.effect is answer.low is answer.high is None
        assert "run " in answer.text


@pytest.mark.parametrize("sampler", [{"name": "front"}, {"name": "tpe"}, None])
def test_a_sampler_that_follows_the_errors_asks_no_question(search, sampler):
    header = SearchStarted(experiment={"sampler": sampler})
    for answer in analyze(replace(search, header=header)).questions:
        assert answer.verdict == "not asked"
        assert answer.text.startswith("not answered by this search")
        assert answer.effect is answer.low is answer.high is None
