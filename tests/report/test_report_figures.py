"""Figures: what each builder draws from known data, and what it says when there is nothing."""

import html
import shutil
from dataclasses import replace

import numpy as np
import pytest

from rst_tune.analysis.fronts import delivered
from rst_tune.analysis.pareto import hypervolume_history
from rst_tune.errors import InputError
from rst_tune.report import figures
from rst_tune.report.content import baselines
from rst_tune.report.figures.front import visible_range
from rst_tune.report.figures.space import MOST_LINES, thinned_indices
from rst_tune.report.figures.style import KINDS, kind


@pytest.fixture(scope="module")
def found(search):
    return delivered(search)


EMPTY = {
    "front": lambda: figures.front([]),
    "compare": lambda: figures.compare({"a": [], "b": []}),
    "hypervolume": lambda: figures.hypervolume([]),
    "timeline": lambda: figures.timeline([], 0.0),
    "rungs": lambda: figures.rungs([]),
    "schedules": lambda: figures.schedules([]),
    "landscape": lambda: figures.landscape([]),
    "importances": lambda: figures.importances({}),
    "parallel": lambda: figures.parallel([]),
    "attainment": lambda: figures.attainment(np.zeros((0, 5)), ("a", "b"), (5.0, 1.0)),
}


@pytest.mark.parametrize("name", EMPTY)
def test_nothing_to_draw_is_said_in_the_figure(name):
    fig = EMPTY[name]()
    assert fig.layout.meta["missing"] == html.unescape(fig.layout.annotations[0].text)
    assert len(fig.data) == 0


def test_every_configuration_is_drawn_once(found):
    fig = figures.front(found.summaries, found.recommended)
    drawn = [identity for trace in fig.data for identity in (trace.customdata if trace.customdata is not None else [])]
    assert sorted(drawn) == sorted(p.config_id for p in found.summaries)


def test_the_baselines_are_named(found):
    names = figures.front(found.summaries, named=baselines(found)).layout.annotations
    assert [(name.text, name.x) for name in names] == [("base optimizer", 0.0), ("SAM", 1.0)]


def test_what_is_sure_differs_in_colour_and_shape(found):
    fig = figures.front(found.summaries)
    kinds = {kind(p) for p in found.summaries}
    looks = {(t.marker.color, t.marker.symbol) for t in fig.data if t.mode == "markers"}
    assert len(looks) == len(kinds) >= 3
    assert len({color for color, _, _ in KINDS.values()}) >= 4
    assert len({shape for _, shape, _ in KINDS.values()}) == len(KINDS)


def test_error_bars_are_one_standard_error(found):
    trace = next(t for t in figures.front(found.summaries).data if (t.name or "").startswith("confirmed"))
    wanted = [p.error_sem for p in found.summaries if p.verdict == "confirmed"]
    assert trace.error_y.array == pytest.approx(wanted, rel=1e-4)


def test_an_outlier_does_not_flatten_the_front(found):
    worst = replace(found.points[0], error_mean=90.0, on_front=False)
    low, high = visible_range([*found.summaries, worst])
    assert high < 10
    assert low < min(p.error_mean for p in found.points)
    assert high > max(p.error_mean for p in found.points)


def test_a_constant_error_has_a_range(found):
    low, high = visible_range([replace(p, error_mean=4.0, error_sem=None) for p in found.points])
    assert low < 4.0 < high


def test_hypervolume_over_pairs(search):
    history = hypervolume_history(search)
    trace = figures.hypervolume(history).data[0]
    assert trace.x[-1] == pytest.approx(search.pairs, rel=1e-4)
    assert len(trace.y) == len(history)


def test_a_running_trial_lasts_until_now(search):
    running = replace(search.trials[0], status="running", started=100.0, ended=None)
    trace = figures.timeline([running], 160.0).data[0]
    assert (trace.base[0], trace.x[0]) == (0.0, 60.0)
    assert trace.name == "running (1)"


def test_a_schedule_shows_its_curve_and_its_heads(found):
    point = next(p for p in found.points if 0 < p.extra_propagation < 1)
    curve, coins = figures.schedule(point).data
    assert list(curve.y) == pytest.approx(point.config["curve"], abs=1e-3)
    assert len(coins.x) == sum(point.config["coins"])


def test_the_grid_of_schedules_has_one_panel_a_point(found):
    fig = figures.schedules(found.points)
    assert len(fig.data) == 2 * len(found.points)
    assert len(fig.layout.annotations) == len(found.points)


def test_the_map_has_a_surface_only_where_one_is_given(found):
    assert [t.type for t in figures.landscape(found.summaries).data] == ["scatter", "scatter"]
    fig = figures.landscape(found.summaries, lambda cost, gamma: 4 - cost)
    assert fig.data[0].type == "contour"
    assert fig.data[0].z[0][0] == pytest.approx(4 - fig.data[0].x[0], rel=1e-3)


def test_parallel_coordinates_leave_out_what_does_not_differ(found):
    fig = figures.parallel(found.summaries)
    assert "ρ" not in fig.layout.xaxis.ticktext
    assert list(fig.layout.xaxis.ticktext)[-1] == "error, %"
    assert fig.data[-1].name == f"front ({len(found.points)})"
    assert {y for t in fig.data for y in t.y if y is not None} <= set(np.round(np.linspace(0, 1, 1001), 3))


def test_a_crowd_is_thinned_evenly_and_keeps_the_front(found):
    crowd = [replace(found.summaries[0], error_mean=5 + i / 1e4, on_front=i == 1234) for i in range(5000)]
    kept = thinned_indices(crowd)
    assert 1234 in kept
    assert MOST_LINES <= len(kept) <= MOST_LINES + 1
    assert max(np.diff(kept)) <= 10


def test_rungs_are_drawn_for_trials_that_went_on(search):
    done = [t for t in search.trials if t.finished]
    early = [replace(t, rungs={7: t.error + 1, t.epochs: t.error}) for t in done]
    fig = figures.rungs(early)
    assert [t.name for t in fig.data] == [f"epoch 7 ({len(done)})"]


def test_attainment_says_whose_it_is():
    rectangles = np.array([[3.0, 0.1, 3.5, np.inf, 0.9], [3.6, 0.2, 3.7, 0.4, -0.3], [1.0, 0.0, 2.0, 1.0, 0.1]])
    fig = figures.attainment(rectangles, ("<b>", "second"), (4.0, 1.1))
    assert [t.name for t in fig.data] == ["&lt;b&gt; likelier by 80 % or more", "second likelier by 20 % or more"]
    assert max(x for x in fig.data[0].x if x is not None) == 1.1


def test_a_picture_without_a_browser_says_what_to_install(found, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(InputError, match="apt-get install chromium"):
        figures.write_png(figures.front(found.summaries), tmp_path / "front.png")
