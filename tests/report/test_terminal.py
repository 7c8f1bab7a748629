"""Tables for the terminal, read as text of a given width."""

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from rst_tune.analysis import published
from rst_tune.analysis.analysis import analyze
from rst_tune.analysis.compare import compare
from rst_tune.files import file_lock
from rst_tune.records import LOCK_NAME, PERCENT_ERROR, Phase
from rst_tune.report import formatting, tables, terminal
from rst_tune.report.progress import ProgressView, snapshot
from rst_tune.report.status import NOT_RUNNING, status_rows
from tests.report import builders

INF = float("inf")
MARKUP = ("[/red]", "[bold", "[link=x]y", "\x1b[31mred\n", builders.SCRIPT)


def text_of(renderable, width: int = 160) -> str:
    console = Console(width=width, file=io.StringIO())
    console.print(renderable)
    return console.file.getvalue()


def front_lines(analysis, width: int, **options) -> tuple[list[str], list[str]]:
    """Return the head and the rows of the front's table."""
    lines = text_of(terminal.front_table(analysis, **options), width).splitlines()
    start = next(i for i, line in enumerate(lines) if " error %" in line)
    end = next(i for i, line in enumerate(lines) if line.startswith("→:"))
    return lines[start].split(), lines[start + 1 : end]


@pytest.fixture(scope="module")
def long_front(analysis):
    """An analysis whose front has 40 points, the recommended one in the middle."""
    first = analysis.points[0]
    points = tuple(
        replace(first, config_id=str(i), compute=1 + i / 40, error_mean=4 - i / 40, config=analysis.points[1].config)
        for i in range(40)
    )
    return replace(analysis, points=points, recommended=points[17])


def test_the_front_begins_with_the_answer_and_marks_the_recommended_point(analysis):
    text = text_of(terminal.front_table(analysis, limit=None))
    assert text.startswith("Train with ")
    assert sum(line.startswith("→ ") for line in text.splitlines()) == 1
    for point in analysis.points:
        assert PERCENT_ERROR.text(point.error_mean, point.error_sem).replace(" ", "") in text
        assert f" {point.error_posterior:.2f} " in text
    assert all(f"• {caveat}" in text for caveat in analysis.caveats)


@pytest.mark.parametrize("width", [60, 80, 160])
def test_every_point_of_the_front_has_one_line(analysis, width):
    _, rows = front_lines(analysis, width, limit=None)
    assert len(rows) == len(analysis.points)
    for row, point in zip(rows, analysis.points, strict=True):
        assert len(row) <= width
        assert "…" not in row
        assert formatting.cost(point.extra_propagation) in row
        assert f"{point.error_mean:.2f}" in row


def test_columns_are_dropped_by_width_and_named(analysis):
    heads = {width: front_lines(analysis, width)[0] for width in (60, 80, 160)}
    assert len(heads[60]) < len(heads[80]) < len(heads[160])
    assert {"verdict", "seeds", "P", "expect", "test"} <= set(heads[160])
    assert {"extra", "error", "method"} <= set(heads[60])
    assert "hidden at 80 columns: verdict" in text_of(terminal.front_table(analysis), 80)
    assert "hidden" not in text_of(terminal.front_table(analysis), 160)
    assert "hidden at 60 columns" in text_of(terminal.front_table(analysis, width=60), 160)


@pytest.mark.parametrize("width", [60, 80, 160])
def test_over_several_lengths_the_front_has_compute_length_and_radius(lengths, width):
    head, rows = front_lines(lengths, width)
    assert head[0] == "compute"
    assert {"length", "ρ", "method"} <= set(head)
    assert len(rows) == len(lengths.points)
    for row, point in zip(rows, lengths.points, strict=True):
        assert len(row) <= width
        assert "…" not in row
        assert formatting.multiple(point.compute) in row
    assert "extra" in head or width < 160


def test_a_column_without_values_is_left_out():
    found = analyze(builders.search(builders.trial(0), builders.trial(1, 3.0)))
    head, _ = front_lines(found, 160)
    assert not {"P", "test"} & set(head)


def test_a_dozen_rows_are_shown_and_the_rest_is_announced(long_front):
    text = text_of(terminal.front_table(long_front), 80)
    _, rows = front_lines(long_front, 80)
    assert len(rows) == 12
    assert "12 of 40 points" in text
    assert "--all, --json or --csv" in text
    assert sum(row.startswith("→") for row in rows) == 1
    assert rows[0].split()[0] == "0"
    assert "97.5 %" in rows[-1]
    last = replace(long_front, recommended=long_front.points[-1])
    assert len(front_lines(last, 80)[1]) == 12
    assert len(front_lines(long_front, 80, limit=None)[1]) == 40


def test_diverged_seeds_are_counted(lengths):
    first, *rest = lengths.points
    unstable = replace(first, seeds=2, seeds_total=3, diverged=1)
    text = text_of(terminal.front_table(replace(lengths, points=(unstable, *rest))))
    assert " 2 of 3 " in text
    assert "one diverged" in text
    assert "diverged" not in text_of(terminal.front_table(lengths))


def test_a_recommended_point_that_is_not_on_the_front_has_a_row(lengths):
    base = next(p for p in lengths.summaries if p.config.is_base and not p.on_front)
    _, rows = front_lines(replace(lengths, recommended=base), 80)
    assert len(rows) == len(lengths.points) + 1
    marked = next(row for row in rows if "→" in row)
    assert f"{base.error_mean:.2f}" in marked
    assert marked.rstrip().endswith("base optimizer")


def test_a_long_name_is_cut_rather_than_broken(long_front):
    wide = replace(long_front.points[0].config, family="x" * 200)
    point = replace(long_front.points[0], config=wide)
    _, rows = front_lines(replace(long_front, points=(point,), recommended=point), 60)
    assert len(rows) == 1
    assert rows[0].endswith("…")


def test_an_empty_search_has_tables_that_say_so():
    nothing = analyze(builders.search())
    assert "the search is empty" in text_of(terminal.front_table(nothing))
    status = text_of(terminal.status_table(nothing))
    assert "none sampled yet" in status
    assert "no trial was trained to its end" in status


def test_the_status_has_counts_budget_and_time_left(analysis, tmp_path):
    text = text_of(terminal.status_table(analysis))
    trials = analysis.search.trials
    for status in {t.status for t in trials}:
        assert f"{sum(t.status == status for t in trials)} {status}" in text
    assert "60 trials, 0 left" in text
    half = builders.search(
        builders.trial(pairs=300.0), phase=Phase.SEARCH, experiment={"budget": {"pairs": 400}}, time=40
    )
    half = replace(half, directory=tmp_path)
    with file_lock(tmp_path / LOCK_NAME):
        running = text_of(terminal.status_table(analyze(half)))
    assert "about 20 s" in running, "a quarter is left after 60 s"
    assert NOT_RUNNING not in running
    stopped = text_of(terminal.status_table(analyze(half)))
    assert NOT_RUNNING in stopped
    assert "about 20 s" not in stopped, "no time is left where nothing runs"


def test_status_and_its_json_are_the_same_numbers(analysis):
    rows = status_rows(analysis)
    assert rows == json.loads(json.dumps(rows, allow_nan=False))
    assert rows["hypervolume"] == analysis.hypervolume
    assert rows["reference"] == dict(zip(("error", "compute"), analysis.reference, strict=True))
    assert rows["device_hours"] == analysis.search.device_hours
    assert sum(rows["counts"].values()) == len(analysis.search.trials)
    assert (rows["phase"], rows["share"], rows["eta"]) == ("done", 1.0, None)
    text = text_of(terminal.status_table(replace(analysis, hypervolume=0.98765)))
    assert "0.9877" in next(line for line in text.splitlines() if line.startswith("hypervolume"))


def test_the_status_counts_plain_trainings(lengths):
    rows = status_rows(lengths)
    spent = sum(t.compute for t in lengths.search.trials)
    assert rows["plain_trainings"] == pytest.approx(spent)
    assert rows["budget"]["trainings"] == pytest.approx({"limit": 40.0, "left": 40.0 - spent})
    assert f"40 plain trainings, {40 - spent:.4g} left" in text_of(terminal.status_table(lengths))


def test_infinite_numbers_are_no_json_but_null():
    trials = [builders.trial(i, 4.0 + i, pairs=INF, seconds=float("nan"), rungs={3: INF}) for i in range(9)]
    rows = status_rows(analyze(builders.search(*trials, experiment={"budget": {"pairs": INF}})))
    json.dumps(rows, allow_nan=False)
    assert (rows["pairs"], rows["device_hours"], rows["eta"]) == (None, None, None)


@pytest.mark.parametrize("name", MARKUP)
def test_names_of_a_record_are_no_markup(name):
    bad = builders.hostile(name)
    shown = formatting.one_line(name)
    assert shown in text_of(terminal.front_table(bad), 400)
    assert shown in text_of(terminal.status_table(bad), 400)
    assert shown in text_of(terminal.compare_table(compare([bad, bad], [name, "b"])), 400)
    entry = {"name": name, "description": name, "citation": name}
    assert shown in text_of(tables.listing_table([entry]), 400)
    assert shown in text_of(
        tables.checks_table([{"ok": False, "name": name, "where": name, "found": name, "remedy": ""}]), 400
    )
    assert shown in text_of(tables.training_table({"status": name}), 400)


def test_progress_shows_measured_numbers_and_says_so(analysis):
    snap = snapshot(analysis.search, share=0.25, eta=90)
    line = snap.line()
    assert line.startswith("done: ")
    assert "25 % of the budget" in line
    assert line.endswith("about 90 s left")
    assert f"measured: best error {min(t.error for t in analysis.search.finished()):.2f} %, hypervolume " in line
    console = Console(file=io.StringIO(), width=80)
    view = ProgressView(console)
    assert view.due()
    with view:
        view.show(snap)
    assert console.file.getvalue().strip() == line
    assert not view.due()


def test_progress_estimates_the_time_left_by_the_pace_so_far(analysis):
    console = Console(file=io.StringIO(), width=80)
    view = ProgressView(console)
    for spent, limit in ((10.0, 100.0), (60.0, 100.0), (60.0, INF)):
        view.period = 0.0
        view.update(lambda: analysis.search, spent, limit)
    view.period = 20.0
    view.update(lambda: pytest.fail("the next one is not due"), 70.0, 100.0)
    first, second, unlimited = console.file.getvalue().splitlines()
    assert "10 % of the budget" in first
    assert not first.endswith("left"), "the pace is not known yet"
    assert "60 % of the budget" in second
    assert second.endswith("left")
    assert "of the budget" not in unlimited


def test_live_progress_fits_80_columns(analysis):
    console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None)
    with ProgressView(console) as view:
        view.show(snapshot(analysis.search, share=0.25, eta=90))
    lines = [line for line in console.file.getvalue().splitlines() if "trials ended" in line or "pairs" in line]
    assert "pairs" not in lines[0]
    assert "hypervolume" in lines[1]  # all numbers in one line


def test_searches_are_compared_with_the_first(analysis, other):
    comparison = compare([analysis, other], ["first", "second"])
    text = text_of(terminal.compare_table(comparison))
    first, second = comparison.entries
    assert f"{first.hypervolume:.4g}" in text
    assert f"{second.low:.4g} … {second.high:.4g}" in text
    gap = comparison.differences[0]
    assert f"{gap.difference:+.2f} [{gap.low:+.2f}, {gap.high:+.2f}]" in text
    json.dumps(tables.comparison_rows(comparison), allow_nan=False)


def test_searches_over_several_lengths_are_compared_at_equal_compute(lengths, analysis):
    comparison = compare([lengths, analysis], ["lengths", "one length"])
    text = text_of(terminal.compare_table(comparison))
    assert "error within compute" in text
    for gap in comparison.differences:
        row = next(line for line in text.splitlines() if line.lstrip().startswith(formatting.multiple(gap.cost)))
        lowest = min(p.error_posterior for p in lengths.points if p.compute <= gap.cost + 1e-9)
        assert f"{lowest:.2f}" in row
    assert "error within extra" in text_of(terminal.compare_table(compare([analysis, analysis], ["a", "b"])))


@pytest.mark.parametrize("name", published.TABLES)
def test_every_table_of_the_paper_is_whole(name):
    text = text_of(terminal.paper_table(name), 220)
    assert published.TABLES[name] in text
    for row in published.table(name):
        assert f"{row.error_mean:.2f}±{row.error_sd:.2f}" in text
        assert not row.suspect or f"suspect: {row.suspect}" in text


@pytest.mark.parametrize("name", published.TABLES)
def test_every_row_of_the_paper_takes_one_line(name, analysis):
    text = text_of(terminal.paper_table(name, analysis.summaries), 80)
    lines = text.splitlines()[2:]
    for line, row in zip(lines, published.table(name), strict=False):
        assert f"{row.error_mean:.2f}±{row.error_sd:.2f}" in line


def test_own_results_are_beside_every_row_of_their_configuration(analysis):
    text = text_of(terminal.paper_table("sgd-and-sam", analysis.summaries), 200)
    rows = published.table("sgd-and-sam")
    lines = text.splitlines()[2 : 2 + len(rows)]
    known = [any(row.matches(s.config) for s in analysis.summaries) for row in rows]
    assert any(known)
    assert [" validation " in line for line in lines] == known


def test_an_estimate_without_measured_time_has_no_nan():
    estimate = {
        "name": "[/red]", "search_id": "0", "epochs": 2, "steps_per_epoch": 3, "rungs": [], "slots": 1,
        "pairs_budget": float("nan"), "pairs_search": float("nan"), "pairs_confirm": 0.0, "trials_unstopped": 1,
        "trials_stopped": 2, "seconds_per_pair": None, "device_hours": float("nan"), "wall_hours": None,
        "paper_grid_pairs": 450.0, "paper_grid_device_hours": None, "pairs_per_trial": 9.0, "axes": [],
        "plain_trainings": float("nan"), "trainings_decided": None, "cost": "compute",
    }  # fmt: skip
    text = text_of(tables.estimate_table(estimate))
    assert "[/red]" in text
    assert "nan" not in text


def test_an_estimate_lists_every_axis_and_counts_plain_trainings():
    estimate = {
        "name": "digits", "search_id": "0", "epochs": 20, "steps_per_epoch": 15, "rungs": [7], "slots": 2,
        "pairs_budget": 12000.0, "pairs_search": 9000.0, "pairs_confirm": 3000.0, "trials_unstopped": 30,
        "trials_stopped": 90, "seconds_per_pair": 0.001, "device_hours": 0.1, "wall_hours": 0.05,
        "paper_grid_pairs": 135000.0, "paper_grid_device_hours": 1.0, "pairs_per_trial": 360.0,
        "plain_trainings": 40.0, "trainings_decided": None, "cost": "compute",
        "axes": [
            {"name": "horizon", "values": {"low": 0.15, "high": 2.0, "log": True, "integer": False}},
            {"name": "rule", "values": ["sam", "[/red]"]},
            {"name": "rho of sam", "values": "0.06 … 0.8, logarithmic"},
            {"name": "cap", "values": float("inf")},
        ],
    }  # fmt: skip
    text = text_of(tables.estimate_table(estimate))
    assert "40 plain trainings" in text
    assert "1.2 × compute" in text
    for name, values in (
        ("horizon", "0.15 … 2, logarithmic"),
        ("rule", "sam, [/red]"),
        ("rho of sam", "0.06 … 0.8, logarithmic"),
        ("cap", "–"),
    ):
        assert any(line.startswith(name) and line.rstrip().endswith(values) for line in text.splitlines())
