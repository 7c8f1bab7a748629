"""Tables for the terminal. Each function takes plain results and returns a rich renderable; the CLI prints it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from rst_tune.analysis import labels, pareto, published
from rst_tune.analysis.compare import Comparison
from rst_tune.analysis.fronts import Front
from rst_tune.analysis.noise import ConfigSummary
from rst_tune.analysis.records import Search, Trial
from rst_tune.analysis.rungs import rung_correlations
from rst_tune.report import words

__all__ = ["compare_table", "errors_by_cost", "front_table", "paper_table", "status_table", "trials_table"]

STYLES = {"confirmed": "bold green", "uncertain": "yellow", "single seed": "magenta", "dominated": "dim"}


def _table(*names: str, numbers: Sequence[str] = (), title: str = "") -> Table:
    table = Table(title=title or None, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for name in names:
        table.add_column(name, justify="right" if name in numbers else "left", overflow="fold", header_style="dim")
    return table


def front_table(front: Front) -> RenderableType:
    """Return the answer, the front and the caveats; what is missing is said in words."""
    parts: list[RenderableType] = [Text(words.sentence(front.answer), style="bold")]
    if front.points:
        parts += [Text(""), _front(front)]
    parts += [Text("")] if front.caveats else []
    return Group(*parts, *(Text(f"• {caveat}", style="dim") for caveat in front.caveats))


def _front(front: Front) -> Table:
    numbers = ("extra", "expect", "error %", "test %", "seeds", "P")
    table = _table("", *numbers, "verdict", "method", numbers=numbers)
    for column in table.columns[:-1]:  # only the method may be broken over lines
        column.no_wrap = True
    for point in front.points:
        table.add_row("→" if point == front.recommended else "", *_front_cells(point))
    table.caption = (
        "expect: the error that all trials together make believable, which makes the front; error: as measured\n"
        "P: probability that no other configuration is both cheaper and better; → the recommended one"
    )
    table.caption_justify = "left"
    return table


def _front_cells(point: ConfigSummary) -> list[RenderableType]:
    return [
        words.cost(point.extra_propagation),
        words.error(point.error_expected),
        words.error(point.error_mean, point.error_sem).replace(" ", ""),
        words.error(point.test_error_mean, point.test_error_sem).replace(" ", ""),
        str(point.seeds),
        words.probability(point.p_nondominated),
        Text(point.verdict, style=STYLES[point.verdict]),
        escape(labels.short(point.config)),
    ]


def status_table(search: Search, left: float | None = None) -> Table:
    """Return how a search stands. `left` is the time it will still take, in seconds, if the caller knows it."""
    table = _table("", "", title=str(search.header.get("name") or search.directory.name))
    table.show_header = False
    for name, value in _status(search, left):
        table.add_row(Text(name, style="dim"), value)
    return table


def _status(search: Search, left: float | None) -> list[tuple[str, str]]:
    counts = Counter(t.status for t in search.trials)
    history = pareto.hypervolume_history(search)
    rows = [
        ("phase", search.phase),
        ("trials", ", ".join(f"{n:,} {status}" for status, n in counts.most_common()) or "none drawn yet"),
        ("trained to the end", f"{len(search.finished()):,}"),
        ("pairs spent", words.number(search.pairs)),
        *_budget(search),
        (
            "hypervolume, as measured",
            words.number(history[-1][2]) if history else "none yet: no trial was trained to its end",
        ),
        *(("rung " + str(rung).split(":")[0], str(rung).split(": ")[1]) for rung in rung_correlations(search)),
        ("last news", words.moment(search.updated) if search.updated else words.MISSING),
    ]
    return [*rows, ("time left", f"about {words.duration(left)}")] if left is not None else rows


def _budget(search: Search) -> list[tuple[str, str]]:
    """Return what the experiment allows and what remains of it."""
    budget: Mapping[str, Any] = (search.header.get("experiment") or {}).get("budget") or {}
    spent = {
        "pairs": search.pairs,
        "trials": float(len({t.config_id for t in search.trials if t.role == "search"})),
        "device_hours": sum(t.seconds for t in search.trials) / 3600,
    }
    given = [(name, float(budget[name])) for name in spent if isinstance(budget.get(name), int | float)]
    return [
        (
            "budget",
            f"{words.number(total)} {name.replace('_', '-')}, {words.number(max(0.0, total - spent[name]))} left",
        )
        for name, total in given
    ]


def trials_table(trials: Sequence[Trial], limit: int | None = 30) -> Table:
    """Return trials, the best first; those without an error stand at the end."""
    ordered = sorted(trials, key=lambda t: (t.error is None, t.error or 0.0, t.number))
    shown = ordered[:limit]
    table = _table(
        "#", "status", "role", "seed", "epochs", "extra", "error %", "test %", "time", "method",
        numbers=("#", "seed", "epochs", "extra", "error %", "test %", "time"),
    )  # fmt: skip
    for t in shown:
        table.add_row(
            str(t.number), t.status, t.role, str(t.seed), str(t.epochs), words.cost(t.extra_propagation),
            words.error(t.error), words.error(t.test_error), words.duration(t.seconds),
            escape(labels.describe(t.config)),
        )  # fmt: skip
    if len(shown) < len(ordered):
        table.caption = f"{len(shown):,} of {len(ordered):,} trials"
    return table


def compare_table(comparison: Comparison) -> RenderableType:
    """Return searches beside each other: hypervolume with its interval, and the error each cost buys."""
    volumes = _table(
        "search", "points", "pairs", "hypervolume", "95 % interval", numbers=("points", "pairs", "hypervolume")
    )
    for entry in comparison.entries:
        cells = (str(len(entry.front.points)), words.number(entry.pairs), words.number(entry.hypervolume))
        volumes.add_row(escape(entry.name), *cells, words.interval(entry.low, entry.high))
    first, *others = (escape(entry.name) for entry in comparison.entries)
    table = _table("error within", first, *others, numbers=["error within", first, *others])
    for row in errors_by_cost(comparison):
        table.add_row(*(escape(cell) for cell in row))
    note = Text(f"Others: difference to {comparison.entries[0].name}, with a 95 % interval; below 0 is better.")
    caveats = [Text(f"• {caveat}", style="dim") for caveat in comparison.caveats]
    return Group(volumes, Text(""), table, note, *caveats)


def errors_by_cost(comparison: Comparison) -> list[list[str]]:
    """Return rows of a cost, the lowest error the first search has within it, and how far every other is from that."""
    first, *others = comparison.entries
    gaps = {(g.name, g.cost): words.difference(g.difference, g.low, g.high) for g in comparison.differences}
    rows = []
    for cost in sorted({gap.cost for gap in comparison.differences}):
        errors = [p.error_expected for p in first.front.points if p.extra_propagation <= cost + 1e-9]
        cells = [gaps.get((entry.name, cost), words.MISSING) for entry in others]
        rows.append([words.cost(cost), words.error(min(errors)), *cells])
    return rows


def paper_table(name: str, summaries: Sequence[ConfigSummary] = (), dataset: str | None = None) -> RenderableType:
    """Return a table of the paper, and beside it what one's own search reached with the same configuration.

    Only rows of `dataset` are compared where it is given: the same schedule on other data is another experiment.
    """
    rows = published.table(name)
    same = [row for row in rows if dataset in (None, row.dataset)]
    ours = {id(pair.published): pair for pair in published.beside(same, summaries)}
    own = ("yours %", "difference") if ours else ()
    table = _table(
        "model", "data", "method", "schedule", "γ_gnr", "extra", "error %", *own, "",
        numbers=("γ_gnr", "extra", "error %", *own), title=published.TABLES[name],
    )  # fmt: skip
    notes: dict[str, int] = {}
    for row in rows:
        marks = [str(notes.setdefault(note, len(notes) + 1)) for note in _remarks(row)]
        table.add_row(*_published_cells(row), *(_own_cells(ours.get(id(row))) if ours else []), ", ".join(marks))
    listed = [Text(f"{number}: {note}", style="dim") for note, number in notes.items()]
    return Group(table, Text("Errors: mean ± standard deviation over the paper's seeds.", style="dim"), *listed)


def _published_cells(row: published.PublishedRow) -> list[RenderableType]:
    schedule = f"{row.schedule.get('family', '')} {words.parameters(row.schedule)}".strip()
    extra = words.MISSING if row.extra_propagation is None else words.cost(row.extra_propagation)
    error = Text(words.error(row.error_mean, row.error_sd), style="dim" if row.suspect else "")
    return [row.model, row.dataset, row.method, schedule, words.number(row.gamma_gnr, 3), extra, error]


def _own_cells(pair: published.Beside | None) -> list[str]:
    if pair is None:
        return ["", ""]
    test = pair.split == "test"
    mean = pair.ours.test_error_mean if test else pair.ours.error_mean
    return [f"{words.error(mean)} ({pair.split})", escape(words.difference(pair.difference, pair.low, pair.high))]


def _remarks(row: published.PublishedRow) -> list[str]:
    return ([f"suspect: {row.suspect}"] if row.suspect else []) + ([row.note] if row.note else [])
