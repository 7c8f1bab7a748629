"""Figures: what each builder draws from known data, and its text when there are no data."""

import html
from dataclasses import replace

import numpy as np
import plotly.graph_objects as go
import pytest

from rst_tune.records import Metric, Status
from rst_tune.report import figures
from rst_tune.report.cost_axis import CostAxis
from rst_tune.report.figures.front import set_cost_axis, visible_range
from rst_tune.report.figures.space import MAX_LINES, thinned_indices
from rst_tune.report.figures.style import KINDS, STATUS, hover
from rst_tune.report.panels import baselines, front_figure
from tests.report.builders import trial

EMPTY = {
    "front": lambda: figures.front([]),
    "compare": lambda: figures.compare({"a": [], "b": []}),
    "hypervolume": lambda: figures.hypervolume([]),
    "timeline": lambda: figures.timeline([], 0.0),
    "rungs": lambda: figures.rungs([]),
    "running": lambda: figures.running([]),
    "landscape": lambda: figures.landscape([]),
    "importances": lambda: figures.importances({}),
    "parallel": lambda: figures.parallel([]),
    "attainment": lambda: figures.attainment(np.zeros((0, 5)), ("a", "b"), (5.0, 2.0), CostAxis(1.0)),
}


@pytest.mark.parametrize("name", EMPTY)
def test_nothing_to_draw_is_said_in_the_figure(name):
    fig = EMPTY[name]()
    assert fig.layout.meta["missing"] == html.unescape(fig.layout.annotations[0].text)
    assert len(fig.data) == 0


def test_every_configuration_is_drawn_once(analysis):
    fig = figures.front(analysis.summaries, analysis.recommended)
    drawn = [identity for trace in fig.data for identity in (trace.customdata if trace.customdata is not None else [])]
    assert sorted(drawn) == sorted(p.config_id for p in analysis.summaries)


def test_the_baselines_are_named(analysis):
    names = figures.front(analysis.summaries, named=baselines(analysis)).layout.annotations
    assert [(name.text, name.x) for name in names] == [("base optimizer", 0.0), ("SAM", 1.0)]


def test_at_one_length_the_axis_is_extra_propagation(analysis):
    fig = figures.front(analysis.summaries)
    assert (fig.layout.xaxis.type, fig.layout.xaxis.tickformat) == (None, ".0%")
    assert "base optimizer" not in {t.name for t in fig.data}
    drawn = {i: x for t in fig.data if t.customdata is not None for i, x in zip(t.customdata, t.x, strict=True)}
    assert drawn == pytest.approx({p.config_id: p.extra_propagation for p in analysis.summaries}, rel=1e-4)


def test_over_several_lengths_the_axis_is_compute_in_octaves(lengths):
    fig = figures.front(lengths.summaries, lengths.recommended, baselines(lengths))
    axis = fig.layout.xaxis
    assert axis.type == "log"
    assert list(axis.ticktext) == ["0.25 ×", "0.5 ×", "1 ×", "2 ×"]
    assert 10 ** axis.range[0] < 0.25 < 2.0 < 10 ** axis.range[1]
    drawn = {i: x for t in fig.data if t.customdata is not None for i, x in zip(t.customdata, t.x, strict=True)}
    assert drawn == pytest.approx({p.config_id: p.compute for p in lengths.summaries})
    places = {name.text: 10**name.x for name in fig.layout.annotations}
    assert places == pytest.approx({"base optimizer": 1.0, "SAM": 2.0})


def test_the_base_optimizer_and_sam_have_curves_over_the_length(lengths):
    curves = {t.name: t for t in figures.front(lengths.summaries).data}
    base, sam = curves["base optimizer"], curves["SAM"]
    assert (list(base.x), list(base.y)) == ([0.25, 1.0, 2.0], [6.2, 12.8, 18.1])
    assert base.error_y.array == pytest.approx([0.1] * 3, rel=1e-3)
    # One line per radius: the gap keeps them apart.
    assert (list(sam.x), list(sam.y)) == ([1.0, 2.0, None, 2.0], [4.7, 5.2, None, 4.5])


def test_the_recipe_is_in_sight_unless_it_compresses_the_rest(lengths):
    assert visible_range(lengths.summaries)[1] > 12.8
    broken = [replace(p, error_mean=90.0) if p.config.is_recipe else p for p in lengths.summaries]
    assert visible_range(broken)[1] < 90


@pytest.mark.parametrize("computes", [[1e-9, 1e9], [1.0], [1.0, 1.0001], [0.9, 1.1], [0.0, float("inf")]])
def test_any_range_of_compute_has_a_few_ticks(computes):
    fig = set_cost_axis(go.Figure(), CostAxis(None), computes)
    assert 1 <= len(fig.layout.xaxis.tickvals) <= 17
    assert fig.layout.xaxis.range[0] < fig.layout.xaxis.range[1]


def test_what_is_sure_differs_in_colour_and_shape(analysis):
    fig = figures.front(analysis.summaries)
    kinds = {p.verdict for p in analysis.points}
    looks = {(t.marker.color, t.marker.symbol) for t in fig.data if t.mode == "markers"}
    assert len(looks) == len(kinds) + 1 >= 2
    assert len({color for color, _, _ in KINDS.values()}) >= 4


def test_everything_beside_the_front_is_one_faint_trace_below_it(analysis):
    (candidates, *front) = [t for t in figures.front(analysis.summaries).data if t.customdata is not None]
    others = [p.config_id for p in analysis.summaries if not p.on_front]
    assert list(candidates.customdata) == others
    assert candidates.name == f"candidate ({len(others)})"
    assert candidates.marker.opacity < 1
    assert {trace.marker.opacity for trace in front} == {1.0}


@pytest.mark.parametrize("name", ["analysis", "lengths"])
def test_a_front_becomes_a_picture_without_a_browser(name, request, tmp_path):
    path = figures.write_picture(front_figure(request.getfixturevalue(name)), tmp_path / "front.png", scale=2)
    head = path.read_bytes()[:24]
    assert head.startswith(b"\x89PNG")
    assert (int.from_bytes(head[16:20]), int.from_bytes(head[20:24])) == (1800, 920)


def test_a_picture_writes_names_as_they_are(analysis, tmp_path):
    names = {"$x_1$ <b>": analysis.base, "$": analysis.sam}
    figures.write_picture(figures.front(analysis.summaries, named=names), tmp_path / "front.png")
    figures.write_picture(figures.front([]), tmp_path / "empty.png")


def test_running_trainings_are_drawn_over_those_that_ended():
    epochs = {"validation_error": [40.0, 9.0, 6.0]}
    trials = [trial(0, history=epochs), trial(1, None, Status.RUNNING, history=epochs), trial(2, None, Status.RUNNING)]
    ended, now = figures.running(trials).data
    assert (ended.name, now.name) == ("ended (1)", "#1")
    assert list(now.x) == [0.05, 0.1, 0.15, None]
    assert list(now.y) == [40.0, 9.0, 6.0, None]
    accuracy = Metric(name="accuracy", unit="", direction="maximize")
    assert list(figures.running(trials, accuracy).data[1].y)[:3] == [-39.0, -8.0, -5.0]


def test_error_bars_are_one_standard_error(analysis):
    trace = next(t for t in figures.front(analysis.summaries).data if (t.name or "").startswith("confirmed"))
    wanted = [p.error_sem for p in analysis.points if p.verdict == "confirmed"]
    assert trace.error_y.array == pytest.approx(wanted, rel=1e-4)


def test_the_hover_text_counts_diverged_seeds(lengths):
    point = replace(lengths.points[0], seeds=2, seeds_total=3, diverged=1)
    assert "(2 of 3 seeds, 1 diverged)" in hover(point)


def test_an_outlier_does_not_flatten_the_front(analysis):
    worst = replace(analysis.points[0], error_mean=90.0, on_front=False)
    low, high = visible_range([*analysis.summaries, worst])
    assert high < 10
    assert low < min(p.error_mean for p in analysis.points)
    assert high > max(p.error_mean for p in analysis.points)


def test_a_constant_error_has_a_range(analysis):
    low, high = visible_range([replace(p, error_mean=4.0, error_sem=None) for p in analysis.points])
    assert low < 4.0 < high


def test_hypervolume_over_pairs_ends_at_that_of_the_analysis(analysis):
    trace = figures.hypervolume(analysis.hypervolume_history).data[0]
    assert trace.x[-1] == pytest.approx(analysis.search.pairs, rel=1e-4)
    assert trace.y[-1] == pytest.approx(analysis.hypervolume, rel=1e-4)
    assert len(trace.y) == len(analysis.hypervolume_history)


def test_a_running_trial_lasts_until_now(analysis):
    running = replace(analysis.search.trials[0], status=Status.RUNNING, started_at=100.0, ended_at=None)
    trace = figures.timeline([running], 160.0).data[0]
    assert (trace.base[0], trace.x[0]) == (0.0, 60.0)
    assert trace.name == "running (1)"


def test_a_schedule_shows_its_curve_and_its_heads(analysis):
    point = next(p for p in analysis.points if 0 < p.extra_propagation < 1)
    curve, coins = figures.schedule(point).data
    assert list(curve.y) == pytest.approx(point.preview.curve, abs=1e-3)
    assert len(coins.x) == sum(point.preview.coins)


def test_the_map_has_a_surface_only_where_one_is_given(analysis):
    assert [t.type for t in figures.landscape(analysis.summaries).data] == ["scatter", "scatter"]
    computes, gammas = np.linspace(1.05, 2.0, 5), np.array([0.5, 1.0])
    fig = figures.landscape(analysis.summaries, (computes, gammas, np.tile(6 - computes, (2, 1))))
    assert fig.data[0].type == "contour"
    assert list(fig.data[0].x) == pytest.approx(computes - 1)
    assert fig.data[0].z[1][0] == pytest.approx(6 - 1.05)


def test_over_several_lengths_the_map_is_over_compute(lengths):
    fig = figures.landscape(lengths.summaries, (np.array([0.6, 1.0]), np.array([0.5, 1.0]), np.ones((2, 2))))
    assert fig.layout.xaxis.type == "log"
    assert list(fig.data[0].x) == [0.6, 1.0]


def test_parallel_coordinates_leave_out_what_does_not_differ(analysis):
    fig = figures.parallel(analysis.summaries)
    assert "ρ" not in fig.layout.xaxis.ticktext
    assert list(fig.layout.xaxis.ticktext)[-1] == "error %"
    assert fig.data[-1].name == f"front ({len(analysis.points)})"
    assert {y for t in fig.data for y in t.y if y is not None} <= set(np.round(np.linspace(0, 1, 1001), 3))


def test_parallel_coordinates_have_length_radius_and_compute(lengths):
    names = list(figures.parallel(lengths.summaries).layout.xaxis.ticktext)
    assert {"horizon", "compute", "ρ", "extra propagation"} <= set(names)


def test_a_crowd_is_thinned_evenly_and_keeps_the_front(analysis):
    crowd = [replace(analysis.summaries[0], error_mean=5 + i / 1e4, on_front=i == 1234) for i in range(5000)]
    kept = thinned_indices(crowd)
    assert 1234 in kept
    assert MAX_LINES <= len(kept) <= MAX_LINES + 1
    assert max(np.diff(kept)) <= 10


def test_every_status_has_a_colour():
    assert set(STATUS) == set(Status)
    assert len(set(STATUS.values())) == len(STATUS)


def test_rungs_are_drawn_for_trials_that_went_on(analysis):
    done = [t for t in analysis.search.trials if t.finished]
    early = [replace(t, rungs={7: t.error + 1, t.epochs: t.error}) for t in done]
    fig = figures.rungs(early)
    assert [t.name for t in fig.data] == [f"epoch 7 ({len(done)})"]


def test_rungs_of_different_lengths_are_grouped_by_the_share_of_the_training(lengths):
    done = [replace(t, rungs={round(0.35 * t.epochs): 9.0}) for t in lengths.search.trials if t.epochs >= 20]
    assert len({t.epochs for t in done}) == 2
    assert [t.name for t in figures.rungs(done).data] == [f"after 35 % ({len(done)})"]


def test_attainment_names_the_search():
    rectangles = np.array([[3.0, 1.1, 3.5, np.inf, 0.9], [3.6, 1.2, 3.7, 1.4, -0.3], [1.0, 1.0, 2.0, 2.0, 0.1]])
    fig = figures.attainment(rectangles, ("<b>", "second"), (4.0, 2.1), CostAxis(1.0))
    assert [t.name for t in fig.data] == ["&lt;b&gt;: higher by 80 % or more", "second: higher by 20 % or more"]
    assert max(x for x in fig.data[0].x if x is not None) == 1.1


def test_attainment_over_several_lengths_is_drawn_over_compute():
    rectangles = np.array([[3.0, 0.25, 3.5, np.inf, 0.9]])
    fig = figures.attainment(rectangles, ("a", "b"), (4.0, 4.3), CostAxis(None))
    assert fig.layout.xaxis.type == "log"
    assert {x for x in fig.data[0].x if x is not None} == {0.25, 4.3}
