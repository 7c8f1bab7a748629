"""Tables for the terminal. Each function returns a rich renderable, which the command line prints."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from rst_tune.analysis import labels, published
from rst_tune.analysis.analysis import Analysis
from rst_tune.analysis.compare import Comparison
from rst_tune.analysis.replicates import ConfigSummary
from rst_tune.records import PERCENT_ERROR, Metric
from rst_tune.report import formatting
from rst_tune.report.cost_axis import CostAxis
from rst_tune.report.rich_tables import FittedTable, add_row, bullets, column_table, row_table, text
from rst_tune.report.status import NOT_RUNNING, status_rows

TextTable = tuple[list[str], list[list[str]]]
"""The heads of the columns, and the rows."""
STYLES = {"confirmed": "bold green", "uncertain": "yellow", "single seed": "magenta", "dominated": "dim"}
NOTES = {
    "compute": "→: recommended; 1 ×: one plain training of the recipe",
    "time": "→: recommended; time: of the training steps; 1 ×: one plain training of the recipe",
    "extra": "extra: extra propagation; SAM has 100 %",
    "length": "length: share of the recipe's epochs",
    "expect": "expect: posterior mean of the surrogate, which defines the front",
    "P": "P: probability that no other configuration is both cheaper and better",
}


def front_table(analysis: Analysis, width: int | None = None, limit: int | None = 12) -> RenderableType:
    """Return the answer, the front and the caveats. Columns that do not fit into `width` are left out.

    `width` defaults to that of the console; `limit` is the number of rows (None: all).
    """
    parts: list[RenderableType] = [text(formatting.sentence(analysis.answer), style="bold")]
    points = table_points(analysis)
    if points:
        shown = _spread(points, analysis.recommended, limit)
        axis, metric = CostAxis.of(analysis.summaries), analysis.search.metric
        columns = _front_columns(shown, analysis.recommended, axis, metric)
        numbers = [name for name in columns if name not in ("verdict", "method")]
        notes = NOTES if axis.lengths_differ else NOTES | {axis.name: "→: recommended"}
        notes = notes | {metric.title: f"{metric.name}: measured mean ± standard error over seeds"}
        if any(p.diverged for p in shown):
            notes["seeds"] = "seeds: 2 of 3: one diverged, and counts with the error of guessing"
        extra = ["extra"] if axis.lengths_differ else []  # else it is the column of the cost
        drop = ["verdict", "seeds", *extra, "expect", _test_title(metric), "P", "ρ"]
        table = FittedTable(columns=columns, numbers=numbers, drop=drop, cut="method", notes=notes, width=width)
        parts += [Text(""), table]
        if len(shown) < len(points):
            part = f"{len(shown)} of {len(points)} points, evenly spaced"
            parts.append(text(f"{part}; all: rst-tune front --all, --json or --csv", style="dim"))
    return Group(*parts, *bullets(analysis.caveats))


def table_points(analysis: Analysis) -> list[ConfigSummary]:
    """Return the front by compute, with the recommended configuration: the base optimizer may not be on the front."""
    pick = analysis.recommended
    missing = [pick] if pick is not None and pick not in analysis.points else []
    return sorted([*analysis.points, *missing], key=lambda p: p.compute)


def _spread(
    points: Sequence[ConfigSummary], recommended: ConfigSummary | None, limit: int | None
) -> list[ConfigSummary]:
    """Return at most `limit` points, evenly along the front, with both ends and the recommended one."""
    if limit is None or len(points) <= limit:
        return list(points)
    last = len(points) - 1
    chosen = {round(k * last / max(limit - 1, 1)) for k in range(limit)}
    index = points.index(recommended) if recommended in points else 0
    if index not in chosen:
        # The nearest of the others makes room for it; the ends stay, unless there is no other.
        chosen.remove(min(chosen - {0, last} or chosen, key=lambda i: abs(i - index)))
        chosen.add(index)
    return [points[i] for i in sorted(chosen)]


def _front_columns(
    points: Sequence[ConfigSummary], recommended: ConfigSummary | None, axis: CostAxis, metric: Metric
) -> dict[str, list[Text]]:
    """Return the cells of each column, without columns that have no value; length and radius only where they differ."""
    columns = {
        axis.name: [text("→ " * (p is recommended) + axis.text(p.compute)) for p in points],
        "expect": [text(metric.text(p.error_posterior)) for p in points],
        metric.title: [text(_compact(p.error_mean, p.error_sem, metric)) for p in points],
        _test_title(metric): [text(_compact(p.test_error_mean, p.test_error_sem, metric)) for p in points],
        "seeds": [text(formatting.seeds(p.seeds, p.seeds_total)) for p in points],
        "P": [text(formatting.probability(p.p_nondominated), style=STYLES[p.verdict]) for p in points],
        "verdict": [text(p.verdict, style=STYLES[p.verdict]) for p in points],
    }
    if all(p.error_posterior_sd is None for p in points):
        del columns["expect"]  # without a surrogate it repeats the measured error
    if axis.lengths_differ:
        columns["length"] = [text(formatting.number(p.config.horizon, 3)) for p in points]
        columns["extra"] = [text(formatting.cost(p.extra_propagation)) for p in points]
    if len({p.config.rho for p in points if not p.config.is_base}) > 1:
        columns["ρ"] = [text(formatting.radius(p.config)) for p in points]
    columns["method"] = [text(labels.short(p.config)) for p in points]
    return {name: cells for name, cells in columns.items() if any(cell.plain != formatting.MISSING for cell in cells)}


def _test_title(metric: Metric) -> str:
    return "test %" if metric.unit == "%" else f"test {metric.title}"


def _compact(mean: float | None, sem: float | None, metric: Metric = PERCENT_ERROR) -> str:
    return metric.text(mean, sem).replace(" ", "")


def status_table(analysis: Analysis) -> RenderableType:
    """Return the state of a search, from the same rows as `status --json`."""
    status = status_rows(analysis)
    counts, volume = ", ".join(f"{n:,} {name}" for name, n in status["counts"].items()), status["hypervolume"]
    rows = [
        ("phase", status["phase"]),
        ("prior", status["prior"] or ""),
        ("note", "" if status["running"] or analysis.search.done else NOT_RUNNING),
        ("trials", counts or "none sampled yet"),
        ("trained to the end", f"{status['finished']:,}"),
        ("pairs spent", formatting.pairs(status["pairs"], status["plain_trainings"])),
        ("device-hours", formatting.number(status["device_hours"])),
        *(("budget", _budget_text(name, **budget)) for name, budget in status["budget"].items()),
        ("hypervolume", "none yet: no trial was trained to its end" if volume is None else formatting.number(volume)),
        ("best training", "" if status["best_error"] is None else analysis.search.metric.phrase(status["best_error"])),
        *((f"rung after {rung['share']}", _rung_text(rung)) for rung in status["rung_correlations"]),
        ("last failure", status["last_failure"] or ""),
        ("last event", formatting.timestamp(status["updated_at"])),
        ("time left", f"about {formatting.duration(status['eta'])}" if status["eta"] and status["running"] else ""),
        ("directory", status["directory"]),
    ]
    return row_table([(name, value) for name, value in rows if value], status["name"])


def _budget_text(name: str, limit: float, left: float) -> str:
    unit = {"trainings": "plain trainings", "epochs": "plain epochs"}.get(name, name.replace("_", "-"))
    return f"{formatting.number(limit)} {unit}, {formatting.number(left)} left"


def _rung_text(rung: Mapping[str, Any]) -> str:
    value = rung["correlation"]
    return f"rank correlation {'unknown yet' if value is None else f'{value:+.2f}'} ({rung['trials']} trials)"


def compare_table(comparison: Comparison) -> RenderableType:
    """Return searches side by side: hypervolume with its interval, and the lowest error within each compute."""
    (heads, volumes), (names, errors) = volume_table(comparison), error_table(comparison)
    first, second = column_table(*heads, numbers=heads[1:4]), column_table(*names, numbers=names)
    for table, rows in ((first, volumes), (second, errors)):
        for row in rows:
            add_row(table, *row)
    note = f"Other searches: difference from {names[1]} with a 95 % interval; {better_side(comparison)} 0 is better."
    return Group(first, Text(""), second, text(note, style="dim"), *bullets(comparison.caveats))


def volume_table(comparison: Comparison) -> TextTable:
    """Return the hypervolume of each search with its interval."""
    rows = [
        [e.name, *map(formatting.number, (len(e.analysis.points), e.pairs, e.hypervolume)),
         formatting.interval(e.low, e.high)]
        for e in comparison.entries
    ]  # fmt: skip
    return ["search", "points", "pairs", "hypervolume", "95 % interval"], rows


def better_side(comparison: Comparison) -> str:
    """Return on which side of 0 a difference from the first search is better than it."""
    return "above" if comparison.entries[0].analysis.search.metric.higher_is_better else "below"


def error_table(comparison: Comparison) -> TextTable:
    """Return rows of a compute, the lowest error of the first search within it, and the difference of every other.

    Where all trainings have one length, a compute is written as extra propagation.
    """
    first, *others = comparison.entries
    axis, metric, found = comparison_axis(comparison), first.analysis.search.metric, comparison.differences
    gaps = {(g.name, g.cost): formatting.difference(g.difference, g.low, g.high, metric) for g in found}
    rows = []
    for cost in sorted({gap.cost for gap in comparison.differences}):
        errors = [p.error_posterior for p in first.analysis.points if p.compute <= cost + 1e-9]
        cells = [gaps.get((entry.name, cost), formatting.MISSING) for entry in others]
        rows.append([axis.text(cost), metric.text(min(errors)), *cells])
    return [f"{metric.name} within {axis.name}", *(entry.name for entry in comparison.entries)], rows


def comparison_axis(comparison: Comparison) -> CostAxis:
    """Return the one axis on which the fronts of all searches are drawn."""
    return CostAxis.of(point for entry in comparison.entries for point in entry.analysis.points)


def paper_table(name: str, summaries: Sequence[ConfigSummary] = ()) -> RenderableType:
    """Return a table of the paper, beside the results of a search for the same configurations."""
    rows = published.table(name)
    ours = {id(pair.published): pair for pair in published.beside(rows, summaries)}
    remarks: dict[str, int] = {}
    for row in rows:
        for remark in _remarks(row):
            remarks.setdefault(remark, len(remarks) + 1)
    columns = _published_columns(rows)
    if ours:
        pairs = [ours.get(id(row)) for row in rows]
        gaps = [formatting.difference(p.difference, p.low, p.high) if p else "" for p in pairs]
        columns["yours %"] = [text(f"{PERCENT_ERROR.text(p.error)} {p.split}" if p else "") for p in pairs]
        columns["difference"] = [text(gap) for gap in gaps]
    numbers = list(columns)[4:]
    columns[""] = [text(", ".join(str(remarks[remark]) for remark in _remarks(row))) for row in rows]
    constant = [head for head in ("model", "data") if len({cell.plain for cell in columns[head]}) == 1]
    listed = [text(f"{number}: {remark}", style="dim") for remark, number in remarks.items()]
    return Group(
        text(published.TABLES[name], style="bold"),
        FittedTable(columns=columns, numbers=numbers, drop=(*constant, "extra", "yours %", "schedule"), cut="method"),
        text("Errors: mean ± standard deviation over the paper's seeds.", style="dim"),
        *listed,
    )


def _remarks(row: published.PublishedRow) -> list[str]:
    return [remark for remark in (f"suspect: {row.suspect}" if row.suspect else "", row.note) if remark]


def _published_columns(rows: Sequence[published.PublishedRow]) -> dict[str, list[Text]]:
    return {
        "model": [text(row.model) for row in rows],
        "data": [text(row.dataset) for row in rows],
        "method": [text(row.method) for row in rows],
        "schedule": [text(f"{row.schedule['family']} {formatting.parameters(row.schedule)}".strip()) for row in rows],
        "γ_gnr": [text(formatting.number(row.gamma_gnr, 3)) for row in rows],
        "extra": [text(formatting.cost(row.extra_propagation)) for row in rows],
        "error %": [text(_compact(row.error_mean, row.error_sd), "dim" if row.suspect else "") for row in rows],
    }
