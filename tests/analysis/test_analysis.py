"""The delivered answer, and what is said where there is none."""

import json
from dataclasses import replace

import pytest

from rst_tune.analysis import surrogate
from rst_tune.analysis.analysis import analyze
from rst_tune.analysis.compare import compare
from rst_tune.records import load
from tests.analysis.builders import runs, search_of, trial
from tests.analysis.synthetic import write_search

# The means and standard errors of the paper's ResNet18 on CIFAR-10, spread over three seeds.
PAPER = [*runs(0.0, [4.38, 4.48, 4.58], 0.0), *runs(0.5, [3.55, 3.65, 3.75]), *runs(1.0, [3.74, 3.81, 3.88])]


def test_the_answer_is_one_sentence(tmp_path):
    found = analyze(search_of(PAPER, tmp_path, "done"))
    assert found.answer == (
        "train with G-RST, constant p = 0.5, gamma 2: error 3.65 % (90 % interval 3.56 to 3.74, 3 seeds) at 50 % extra "
        "compute; SAM gives 3.81 ± 0.05 % at 100 % (this point is better: -0.16, 95 % interval -0.21 to -0.11); "
        "the base optimizer gives 4.48 ± 0.06 % (this point is better: -0.83, 95 % interval -0.92 to -0.73)"
    )
    assert [p.extra_propagation for p in found.points] == [0.0, 0.5]
    assert found.base.error_mean == pytest.approx(4.48)
    assert found.sam.error_mean == pytest.approx(3.81)


def test_the_recommended_one_is_the_cheapest_within_a_standard_error(tmp_path):
    spread = (-0.1, 0.0, 0.1)
    search = search_of(
        [
            *runs(0.0, [4.5 + s for s in spread], 0.0),
            *runs(0.3, [3.64 + s for s in reversed(spread)]),
            *runs(0.6, [3.61 + s for s in spread]),
            *runs(0.9, [3.60 + s for s in reversed(spread)]),
        ],
        tmp_path,
    )
    assert analyze(search).recommended.extra_propagation == 0.3


def test_a_point_of_which_nearly_nothing_is_known_is_not_recommended(tmp_path):
    """Two seeds that lie far apart are within any standard error of anything."""
    wild = runs(0.1, [3.5, 16.0])
    good = [*runs(0.0, [13.0, 13.4, 13.2], 0.0), *runs(0.5, [4.0, 4.1, 4.2]), *runs(0.9, [3.9, 4.0, 4.1])]
    assert analyze(search_of([*wild, *good], tmp_path)).recommended.extra_propagation == 0.5


def test_without_replicates_the_knee_is_recommended_and_the_front_called_lucky(tmp_path):
    search = search_of([*runs(0.0, [5.0], 0.0), *runs(0.3, [3.1]), *runs(1.0, [3.0])], tmp_path)
    found = analyze(search)
    assert found.recommended.extra_propagation == 0.3
    assert "3.10 % (one seed)" in found.answer
    assert any("one seed per configuration" in note for note in found.caveats)
    assert found.confirmed == ()


def test_confirmed_and_uncertain(tmp_path):
    near = [*runs(0.0, [4.4, 4.5, 4.6], 0.0), *runs(0.5, [3.4, 3.5, 3.6]), *runs(0.52, [3.39, 3.5, 3.62])]
    found = analyze(search_of(near, tmp_path, "done"))
    assert [p.extra_propagation for p in found.confirmed] == [0.0, 0.5]
    assert [p.extra_propagation for p in found.summaries if p.verdict == "uncertain"] == [0.52]


def test_rows_are_json_with_the_promised_names(tmp_path):
    found = analyze(load(write_search(tmp_path, trials=20)))
    promised = {"family", "schedule", "rule", "gamma_gnr", "gamma_rst", "extra_propagation", "error_mean", "error_sem"}
    promised |= {
        "seeds",
        "p_nondominated",
        "test_error_mean",
        "test_error_sem",
        "trial_key",
        "horizon",
        "compute",
        "error_posterior",
    }
    rows = json.loads(json.dumps(found.rows(), allow_nan=False))
    assert rows
    assert all(promised <= set(row) for row in rows)
    costs = [row["extra_propagation"] for row in rows]
    assert costs == sorted(costs)


def test_names_from_files_are_text_in_a_notebook(tmp_path):
    (run,) = runs(0.5, [3.0])
    evil = replace(run, config=replace(run.config, family="<script>alert(1)</script>", rule="<img>"))
    page = analyze(search_of([evil], tmp_path))._repr_html_()
    assert "<script>" not in page
    assert "<img>" not in page
    assert "&lt;script&gt;" in page


def test_a_state_is_analysed_with_one_fit(tmp_path, monkeypatch):
    """Front, map, history, importances, questions and comparisons share the surrogate of the state."""
    fits = []
    fit = surrogate.minimize
    monkeypatch.setattr(surrogate, "minimize", lambda *args, **options: fits.append(1) or fit(*args, **options))
    found = analyze(load(write_search(tmp_path, trials=30)))
    none = analyze(search_of([]))
    assert found.rows()
    assert found.hypervolume_history[-1][2] == pytest.approx(found.hypervolume)
    assert found.importance.values
    assert found.questions
    assert found.rung_correlations == []
    assert found.surrogate.errors([found.recommended.config])[0] > 0
    assert compare([found, none]).entries[0].hypervolume == found.hypervolume
    assert found._repr_html_()
    assert len(fits) == 1


NAN = float("nan")


@pytest.mark.parametrize(
    ("trials", "phase", "said"),
    [
        ([], "search", "the search is empty"),
        ([trial(0.5, 0, None, status="running")], "search", "no trial was trained to its end"),
        ([trial(0.5, s, None, status="diverged") for s in range(3)], "done", "3 of 3 trials diverged"),
        ([trial(0.5, 0, NAN)], "done", "no finite error"),
        ([trial(0.5, 0, 3.0)], "done", "one configuration only"),
        ([*runs(0.5, [3.0], 1.0), *runs(0.5, [3.1], 0.9)], "done", "all configurations cost the same"),
        ([*runs(0.5, [3.0, 3.0]), *runs(0.6, [3.0, 3.0])], "done", "the same error"),
        ([*runs(0.5, [3.0, 3.1]), trial(0.2, 0, None, status="failed")], "confirm", "not done (phase confirm"),
        ([trial(0.5, 0, None, status="out of memory")], "done", "1 of 1 trials ran out of memory"),
        ([trial(0.5, 0, None, status="lost")], "done", "1 of 1 trials were lost"),
        ([trial(NAN, 0, 3.0)], "done", "no finite cost"),
    ],
)
def test_what_is_missing_is_said(tmp_path, trials, phase, said):
    found = analyze(search_of(trials, tmp_path, phase))
    assert any(said in note for note in found.caveats), found.caveats
    assert found.answer
    assert said.split()[0] in found._repr_html_()
    json.dumps(found.rows(), allow_nan=False)
    assert (found.hypervolume is None) == (found.reference is None)
