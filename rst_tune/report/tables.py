"""Tables of the smaller commands: what a search will cost, what one training came to, what there is, what is wrong."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Protocol

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from rst_tune.analysis.compare import Comparison

__all__ = ["checks_table", "comparison_rows", "estimate_table", "follow", "listing_table", "training_table"]


class Step(Protocol):
    """How far a training is."""

    @property
    def step(self) -> int:
        """Steps done."""

    @property
    def total_steps(self) -> int:
        """Steps in all."""

    @property
    def metrics(self) -> dict[str, float] | None:
        """The metrics of the epoch that just ended, if one did."""


def _pairs_of(rows: Iterable[tuple[str, str]], title: str = "") -> Table:
    table = Table(title=title or None, title_justify="left", title_style="bold", box=None, show_header=False)
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(name, escape(value))
    return table


def _hours(value: float | None) -> str:
    if value is None:
        return "unknown: nothing was measured"
    return f"{value * 60:.1f} minutes" if value < 2 else f"{value:,.1f} hours"


def estimate_table(made: Mapping[str, Any]) -> Table:
    """Return what a search will cost, beside what the paper's own grid would."""
    share = made["pairs_budget"] / made["paper_grid_pairs"]
    rungs = ", ".join(map(str, made["rungs"])) or "none"
    pair = made["seconds_a_pair"]
    rows = [
        ("search", made["search_id"]),
        ("one trial", f"{made['epochs']} epochs of {made['steps_per_epoch']} steps; rungs at epochs {rungs}"),
        ("configurations", f"{made['trials_unstopped']:,} if none is stopped, at most {made['trials_stopped']:,}"),
        ("propagation pairs", f"{made['pairs_search']:,.0f} to search, {made['pairs_confirm']:,.0f} to confirm"),
        ("time a pair", "not measured" if pair is None else f"{1000 * pair:.2f} ms, measured here"),
        ("device time", _hours(made["device_hours"])),
        ("wall time", f"{_hours(made['wall_hours'])} with {made['slots']} trials at a time"),
        ("the paper's grid", f"{made['paper_grid_pairs']:,.0f} pairs ({_hours(made['paper_grid_device_hours'])})"),
        ("against that grid", f"{100 * share:.1f} %"),
    ]
    return _pairs_of(rows, made["name"])


def training_table(result: Mapping[str, Any]) -> Table:
    """Return what one training came to."""
    names = {
        "validation_error": "validation error %",
        "realized_extra_propagation": "extra propagation, realized",
        "extra_propagation": "extra propagation, expected",
    }
    rows = [(names.get(name, name.replace("_", " ")), _text(value)) for name, value in result.items()]
    return _pairs_of(rows)


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else "–" if value is None else str(value)


def listing_table(entries: Sequence[Mapping[str, str]]) -> Table:
    """Return named things, one line each."""
    table = Table(box=None, header_style="dim", pad_edge=False)
    columns = [name for name in ("name", "used", "description", "citation") if any(e.get(name) for e in entries)]
    for name in columns:
        table.add_column(name, no_wrap=name in ("name", "used"), overflow="fold")
    for entry in entries:
        table.add_row(*(escape(entry.get(name, "")) for name in columns))
    return table


def checks_table(checks: Sequence[Mapping[str, Any]]) -> Table:
    """Return what `doctor` found, one line each, with what to do."""
    table = Table(box=None, header_style="dim", pad_edge=False)
    for name in ("", "check", "where", "found", "what to do"):
        table.add_column(name, overflow="fold")
    for check in checks:
        mark = "[green]ok[/]" if check["ok"] else "[bold red]no[/]"
        table.add_row(mark, *(escape(str(check[name])) for name in ("name", "where", "found", "remedy")))
    return table


def comparison_rows(made: Comparison) -> dict[str, Any]:
    """Return a comparison as plain data."""
    return {
        "reference": made.reference,
        "searches": [
            {"name": e.name, "hypervolume": e.hypervolume, "low": e.low, "high": e.high, "pairs": e.pairs,
             "front": e.front.rows()}
            for e in made.entries
        ],
        "differences": [asdict(d) for d in made.differences],
        "caveats": list(made.caveats),
    }  # fmt: skip


def follow(steps: Iterable[Step], console: Console, *, quiet: bool = False) -> None:
    """Show a training while it runs: a bar in a terminal, a line every few epochs elsewhere."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    live = console.is_terminal and not quiet
    with Progress(*columns, console=console, transient=True, disable=not live) as bar:
        task = bar.add_task("training", total=None)
        for step in steps:
            error = "" if step.metrics is None else f"error {step.metrics.get('validation_error', float('nan')):.2f} %"
            bar.update(task, completed=step.step, total=step.total_steps, description=error or None)
            if error and not live and not quiet:
                console.print(f"step {step.step} of {step.total_steps}: {error}", highlight=False)
