"""Tables for the terminal. Each function returns a rich renderable, which the command line prints."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rst_tune.analysis import published
from rst_tune.analysis.analysis import Analysis
from rst_tune.analysis.compare import Comparison
from rst_tune.analysis.replicates import ConfigSummary
from rst_tune.report import formatting
from rst_tune.report.front_view import FrontView
from rst_tune.report.rich_tables import add_row, bullets, column_table, row_table, text
from rst_tune.report.status import status_rows

__all__ = ["compare_table", "errors_by_cost", "front_table", "paper_table", "status_table"]


def front_table(analysis: Analysis, width: int | None = None, limit: int | None = 12) -> RenderableType:
    """Return the answer, the front and the caveats; columns that do not fit into `width` are dropped.

    `width` defaults to that of the console, `limit` is the number of rows (None: all).
    """
    return FrontView(analysis=analysis, width=width, limit=limit)


def status_table(analysis: Analysis, *, share: float | None = None, eta: float | None = None) -> Table:
    """Return the state of a search, from the same rows as `status --json`."""
    status = status_rows(analysis, share=share, eta=eta)
    counts = ", ".join(f"{n:,} {name}" for name, n in status["counts"].items())
    rows = [
        ("phase", status["phase"]),
        ("trials", counts or "none sampled yet"),
        ("trained to the end", f"{status['finished']:,}"),
        ("pairs spent", formatting.number(status["pairs"])),
        ("device-hours", formatting.number(status["device_hours"])),
        *(("budget", _budget_text(name, **budget)) for name, budget in status["budget"].items()),
        (
            "hypervolume",
            "none yet: no trial was trained to its end"
            if status["hypervolume"] is None
            else formatting.number(status["hypervolume"]),
        ),
        *((f"rung at epoch {rung['epoch']}", _rung_text(rung)) for rung in status["rung_correlations"]),
        ("last event", formatting.timestamp(status["updated_at"])),
        ("time left", f"about {formatting.duration(eta)}" if status["eta"] is not None else ""),
        ("directory", status["directory"]),
    ]
    return row_table([(name, value) for name, value in rows if value], status["name"])


def _budget_text(name: str, limit: float, left: float) -> str:
    return f"{formatting.number(limit)} {name.replace('_', '-')}, {formatting.number(left)} left"


def _rung_text(rung: Mapping[str, Any]) -> str:
    value = rung["correlation"]
    return f"rank correlation {'unknown yet' if value is None else f'{value:+.2f}'} ({rung['trials']} trials)"


def compare_table(comparison: Comparison) -> RenderableType:
    """Return searches side by side: hypervolume with its interval, and the lowest error within each cost."""
    numbers = ("points", "pairs", "hypervolume")
    volumes = column_table("search", *numbers, "95 % interval", numbers=numbers)
    for entry in comparison.entries:
        cells = (formatting.number(float(n)) for n in (len(entry.analysis.points), entry.pairs, entry.hypervolume))
        add_row(volumes, entry.name, *cells, formatting.interval(entry.low, entry.high))
    names = ("error within", *(entry.name for entry in comparison.entries))
    table = column_table(*names, numbers=names)
    for row in errors_by_cost(comparison):
        add_row(table, *row)
    note = f"Other searches: difference from {names[1]} with a 95 % interval; below 0 is better."
    return Group(volumes, Text(""), table, text(note, style="dim"), *bullets(comparison.caveats))


def errors_by_cost(comparison: Comparison) -> list[list[str]]:
    """Return rows of a cost, the lowest error of the first search within it, and the difference of every other."""
    first, *others = comparison.entries
    gaps = {(g.name, g.cost): formatting.difference(g.difference, g.low, g.high) for g in comparison.differences}
    rows = []
    for cost in sorted({gap.cost for gap in comparison.differences}):
        errors = [p.error_posterior for p in first.analysis.points if p.extra_propagation <= cost + 1e-9]
        cells = [gaps.get((entry.name, cost), formatting.MISSING) for entry in others]
        rows.append([formatting.cost(cost), formatting.error(min(errors)), *cells])
    return rows


def paper_table(name: str, summaries: Sequence[ConfigSummary] = (), dataset: str | None = None) -> RenderableType:
    """Return a table of the paper, beside the results of a search for the same configurations.

    With `dataset`, only rows of that data set are compared.
    """
    rows = published.table(name)
    same = [row for row in rows if dataset in (None, row.dataset)]
    ours = {id(pair.published): pair for pair in published.beside(same, summaries)}
    own = ("yours %", "difference") if ours else ()
    numbers = ("γ_gnr", "extra", "error %", *own)
    table = column_table(
        "model", "data", "method", "schedule", *numbers, "", numbers=numbers, title=published.TABLES[name]
    )
    notes: dict[str, int] = {}
    for row in rows:
        remarks = [f"suspect: {row.suspect}" if row.suspect else "", row.note]
        marks = [str(notes.setdefault(note, len(notes) + 1)) for note in remarks if note]
        add_row(table, *_published_cells(row), *(_own_cells(ours.get(id(row))) if ours else ()), ", ".join(marks))
    listed = [text(f"{number}: {note}", style="dim") for note, number in notes.items()]
    return Group(table, Text("Errors: mean ± standard deviation over the paper's seeds.", style="dim"), *listed)


def _published_cells(row: published.PublishedRow) -> list[Text | str]:
    schedule = f"{row.schedule.get('family', '')} {formatting.parameters(row.schedule)}".strip()
    error = text(formatting.error(row.error_mean, row.error_sd), style="dim" if row.suspect else "")
    extra = formatting.cost(row.extra_propagation)
    return [row.model, row.dataset, row.method, schedule, formatting.number(row.gamma_gnr, 3), extra, error]


def _own_cells(pair: published.Beside | None) -> tuple[str, str]:
    if pair is None:
        return "", ""
    mean = pair.ours.test_error_mean if pair.split == "test" else pair.ours.error_mean
    return f"{formatting.error(mean)} ({pair.split})", formatting.difference(pair.difference, pair.low, pair.high)
