"""Tables of the smaller commands (plan, train, list, doctor), the JSON of `compare`, and the progress of `train`."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from rst_tune.analysis.compare import Comparison
from rst_tune.analysis.export import json_safe
from rst_tune.records import COST_WORDS
from rst_tune.report import formatting
from rst_tune.report.rich_tables import add_row, column_table, row_table


def _hours(value: float | None) -> str:
    if value is None or not math.isfinite(value):
        return "unknown: not measured"
    return f"{value * 60:.1f} minutes" if value < 2 else f"{value:,.1f} hours"


def estimate_table(estimate: Mapping[str, Any]) -> RenderableType:
    """Return what a search tries per axis and costs, beside the paper's grid. The keys are the fields of `Estimate`."""
    rungs = ", ".join(map(str, estimate["rungs"])) or "none"
    pair = estimate["seconds_per_pair"]
    pairs = {name: formatting.number(estimate[f"pairs_{name}"]) for name in ("search", "confirm")}
    grid_hours = estimate["paper_grid_device_hours"]
    grid_time = "" if grid_hours is None else f" ({_hours(grid_hours)})"
    share = estimate["pairs_budget"] / estimate["paper_grid_pairs"]
    mean = estimate["pairs_per_trial"] / (estimate["epochs"] * estimate["steps_per_epoch"])
    words = COST_WORDS[estimate["cost"]]
    rows = [
        ("search", estimate["search_id"]),
        ("prior", estimate.get("prior") or ""),
        ("plain training", f"{estimate['epochs']} epochs of {estimate['steps_per_epoch']} steps; "
         f"rungs at epochs {rungs}"),
        ("budget", f"{formatting.number(estimate['plain_trainings'])} plain trainings"),
        ("decided front", _decided(estimate)),
        ("mean trial", f"{formatting.multiple(mean)} {words.noun}"),
        ("configurations", _configurations(estimate["trials_unstopped"], estimate["trials_stopped"])),
        (words.amount, f"{pairs['search']} for the search, {pairs['confirm']} for the confirmation"),
        (f"time per {words.unit}", "not measured" if pair is None else f"{1000 * pair:.2f} ms, measured here"),
        ("device time", _hours(estimate["device_hours"])),
        ("wall time", _hours(estimate["wall_hours"])),
        ("concurrent trials", f"{estimate['slots'] or 'none: a trial asks for more than is here (resources)'}"),
        ("grid of the paper", f"{formatting.number(estimate['paper_grid_pairs'])} pairs{grid_time}"),
        ("share of that grid", f"{formatting.number(100 * share, 3)} %"),
    ]  # fmt: skip
    cost = row_table([(name, value) for name, value in rows if value], estimate["name"])
    axes = [(str(axis["name"]), _axis_text(axis["values"])) for axis in estimate["axes"]]
    return Group(cost, Text(""), row_table(axes, "What the search varies")) if axes else cost


def _configurations(unstopped: int, stopped: int) -> str:
    return f"{unstopped:,}" + (f" if none is stopped, at most {stopped:,}" if stopped > unstopped else "")


def _decided(estimate: Mapping[str, Any]) -> str:
    """Return what a replicated front takes.

    >>> _decided({"trainings_decided": 39.7, "front_points": 6, "front_seeds": 3, "plain_trainings": 20})
    'about 6 points of 3 seeds each take 40 plain trainings, more than the budget'
    """
    if (needed := estimate["trainings_decided"]) is None:
        return ""
    front = f"about {estimate['front_points']} points of {estimate['front_seeds']} seeds each"
    more = ", more than the budget" if needed > estimate["plain_trainings"] else ""
    return f"{front} take {needed:.0f} plain trainings{more}"


def _axis_text(values: Any) -> str:
    """Return the values of one axis.

    >>> _axis_text({"low": 0.15, "high": 2.0, "log": True}), _axis_text(["sam", "asam"]), _axis_text(1.0)
    ('0.15 … 2, logarithmic', 'sam, asam', '1')
    """
    if isinstance(values, Mapping) and {"low", "high"} <= set(values):
        scale = [name for key, name in (("log", "logarithmic"), ("integer", "whole numbers")) if values.get(key)]
        return ", ".join([f"{formatting.number(values['low'])} … {formatting.number(values['high'])}", *scale])
    return formatting.format_value(values)


def training_table(result: Mapping[str, Any]) -> RenderableType:
    """Return the result of one training."""
    names = {
        "validation_error": "validation error %",
        "realized_extra_propagation": "extra propagation, realized",
        "extra_propagation": "extra propagation, expected",
    }
    return row_table((names.get(n, n.replace("_", " ")), formatting.format_value(v)) for n, v in result.items())


def listing_table(entries: Sequence[Mapping[str, str]]) -> Table:
    """Return named entries, one per row; a column that is empty everywhere is left out."""
    columns = ("name", "used", "cost", "description", "options", "citation")
    names = [name for name in columns if any(e.get(name) for e in entries)]
    table = column_table(*names, numbers=["cost"])
    for column, name in zip(table.columns, names, strict=True):
        column.no_wrap = name in ("name", "used", "cost")
    for entry in entries:
        add_row(table, *(entry.get(name, "") for name in names))
    return table


def checks_table(checks: Sequence[Mapping[str, Any]]) -> Table:
    """Return the checks of `doctor`, one per row, with remedies."""
    table = column_table("", "check", "where", "found", "remedy")
    for check in checks:
        mark = Text("ok", style="green") if check["ok"] else Text("no", style="bold red")
        add_row(table, mark, *(str(check[name]) for name in ("name", "where", "found", "remedy")))
    return table


def comparison_rows(comparison: Comparison) -> dict[str, Any]:
    """Return a comparison as plain data for JSON."""
    rows = {
        "reference": comparison.reference,
        "searches": [
            {"name": e.name, "hypervolume": e.hypervolume, "low": e.low, "high": e.high, "pairs": e.pairs,
             "front": e.analysis.rows()}
            for e in comparison.entries
        ],
        "differences": [asdict(d) for d in comparison.differences],
        "caveats": list(comparison.caveats),
    }  # fmt: skip
    plain: dict[str, Any] = json_safe(rows)
    return plain


def follow(steps: Iterable[tuple[int, int, str]], console: Console, *, quiet: bool = False) -> None:
    """Show a training as a bar in a terminal, as one line per epoch elsewhere.

    `steps` trains as it is consumed: steps done, steps in all, and the result of the epoch that just ended, if one did.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    live = console.is_terminal and not quiet
    with Progress(*columns, console=console, transient=True, disable=not live) as bar:
        task = bar.add_task("training", total=None)
        for done, total, result in steps:
            bar.update(task, completed=done, total=total, description=result or None)
            if result and not live and not quiet:
                console.print(f"step {done} of {total}: {result}", highlight=False)
