"""A metric of the user's own: its name, unit and direction in sentences, tables, figures and exports."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from rst_tune.analysis.analysis import analyze
from rst_tune.analysis.compare import compare
from rst_tune.analysis.export import trial_rows
from rst_tune.analysis.replicates import chance_error
from rst_tune.errors import InputError
from rst_tune.records import Metric, load
from rst_tune.report import comparison_page, figures, page, terminal
from rst_tune.report.status import status_rows
from tests.analysis.synthetic import write_search

RMSE = Metric(name="RMSE", unit="")
ACCURACY = Metric(name="accuracy", unit="", direction="maximize")


@pytest.fixture(scope="module")
def search(tmp_path_factory):
    return load(write_search(tmp_path_factory.mktemp("metric") / "search", trials=25, accidents=False))


def measured_by(search, metric, scale):
    """The same search with errors of another scale and metric."""
    trials = tuple(
        replace(
            t,
            error=None if t.error is None else scale * t.error,
            test_error=None if t.test_error is None else scale * t.test_error,
            rungs={epoch: scale * error for epoch, error in t.rungs.items()},
        )
        for t in search.trials
    )
    header = replace(search.header, metric=metric, data={})
    reference = None if search.reference is None else (scale * search.reference[0], search.reference[1])
    return replace(search, header=header, trials=trials, reference=reference)


@pytest.mark.parametrize(("metric", "scale"), [(RMSE, 1e-6), (RMSE, 1e4), (ACCURACY, 0.01)])
def test_the_front_does_not_depend_on_the_unit(search, metric, scale):
    percent, other = (analyze(measured_by(search, m, s)) for m, s in ((Metric(), 1.0), (metric, scale)))
    assert [p.config_id for p in other.points] == [p.config_id for p in percent.points]
    assert other.recommended.config_id == percent.recommended.config_id
    for mine, theirs in zip(other.points, percent.points, strict=True):
        assert mine.error_posterior == pytest.approx(scale * theirs.error_posterior, rel=1e-6)
        assert mine.p_nondominated == pytest.approx(theirs.p_nondominated, abs=0.03), "a share of 4,000 samples"


def test_everything_that_is_read_names_the_metric(search):
    found = analyze(measured_by(search, ACCURACY, 0.01))
    best = next(p for p in found.points if p.test_error_mean is not None)
    value = ACCURACY.text(best.error_mean, best.error_sem)
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(terminal.front_table(found, width=200))
    for text in (found.answer, console.export_text(), found._repr_html_(), page.render(found)):
        assert "accuracy" in text
        assert "error %" not in text
    assert value in page.render(found)
    assert "accuracy&gt;0.5" in page.render(found)
    assert status_rows(found)["best_value"] == 1 - status_rows(found)["best_error"]
    assert "test accuracy 0.9" in found.sentence(best)
    row = found.rows([best])[0]
    assert (row["metric"], row["value_mean"]) == ("accuracy", 1 - best.error_mean)
    trial = trial_rows(found.search)[0]
    assert (trial["metric"], trial["value"]) == ("accuracy", 1 - trial["error"])


def test_a_comparison_has_the_direction_of_the_metric(search):
    found = analyze(measured_by(search, ACCURACY, 0.01))
    made = compare([found, analyze(measured_by(search, ACCURACY, 0.012))])
    html = comparison_page.render(made)
    assert "accuracy within " in html
    assert "above 0 is better" in html
    assert "error within" not in html


def test_the_questions_of_the_paper_are_answered_in_the_metric(search):
    grid = replace(search.header, experiment={**search.header.experiment, "sampler": {"name": "grid"}})
    percent = analyze(replace(search, header=grid)).questions
    other = analyze(measured_by(replace(search, header=grid), ACCURACY, 0.01)).questions
    known = [(p, o) for p, o in zip(percent, other, strict=True) if p.effect is not None]
    assert known
    for mine, theirs in known:
        assert f"{mine.effect:+.2f} points of error" in mine.text
        assert theirs.effect == pytest.approx(0.01 * mine.effect)
        ends = ACCURACY.difference(theirs.effect, theirs.low, theirs.high).split(", ")[1]
        assert theirs.text.endswith(f"in accuracy (95 % interval {ends})")


def test_figures_draw_the_values_of_a_maximized_metric(search):
    found = analyze(measured_by(search, ACCURACY, 0.01))
    fig = figures.front(found.summaries, found.recommended, metric=ACCURACY)
    assert fig.layout.yaxis.title.text == "validation accuracy"
    drawn = [y for trace in fig.data for y in trace.y if y is not None]
    assert min(drawn) > 0.5
    assert fig.layout.yaxis.range[0] < fig.layout.yaxis.range[1]


def test_a_point_is_asked_for_in_the_unit_of_the_metric(search):
    found = analyze(measured_by(search, ACCURACY, 0.01))
    assert found.for_error(0.5) is found.points[0]
    with pytest.raises(InputError, match=r"accuracy of at least 0.9999.*ask for that or less"):
        found.for_error(0.9999)


def test_a_diverged_seed_counts_with_the_largest_error_that_was_seen(search):
    seen = [e for t in search.trials for e in (t.error, *t.rungs.values()) if e is not None]
    assert chance_error(measured_by(search, RMSE, 1e-4)) == pytest.approx(1e-4 * max(seen))


@pytest.mark.parametrize("wrong", [{"name": " "}, {"name": "a\n"}, {"best": float("inf")}])
def test_a_wrong_metric_is_refused(wrong):
    with pytest.raises(ValueError, match="metric"):
        Metric(**wrong)
