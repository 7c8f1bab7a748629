"""The front in a terminal: columns are dropped until a row fits on one line, and at most a dozen rows are shown."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from rst_tune.analysis import labels
from rst_tune.analysis.analysis import Analysis
from rst_tune.analysis.replicates import ConfigSummary
from rst_tune.report import formatting
from rst_tune.report.rich_tables import add_row, bullets, column_table, text

__all__ = ["FrontView"]

STYLES = {"confirmed": "bold green", "uncertain": "yellow", "single seed": "magenta", "dominated": "dim"}
NUMBERS = ("extra", "expect", "error %", "test %", "seeds", "P")
# Dropped in this order while a row does not fit. The verdict follows from P and seeds, one seed from the missing ±.
DROP_ORDER = ("verdict", "seeds", "expect", "test %", "P")
NOTES = {
    "expect": "expect: posterior mean of the surrogate, which defines the front",
    "error %": "error: measured mean ± standard error over seeds",
    "P": "P: probability that no other configuration is both cheaper and better",
}


@dataclass(frozen=True, kw_only=True)
class FrontView:
    """The answer, the front and the caveats. `width` defaults to the console's; `limit` None shows every row."""

    analysis: Analysis
    width: int | None
    limit: int | None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render for the width of the console."""
        yield text(formatting.sentence(self.analysis.answer), style="bold")
        if self.analysis.points:
            yield Text("")
            yield from self._front(self.width or options.max_width)
        yield from bullets(self.analysis.caveats)

    def _front(self, width: int) -> Iterator[RenderableType]:
        shown = _spread(self.analysis.points, self.analysis.recommended, self.limit)
        columns = _columns(shown, self.analysis.recommended)
        hidden = _drop(columns, width)
        table = column_table(*columns, numbers=NUMBERS)
        table.padding = (0, 2 if _row_width(columns, 2) <= width else 1, 0, 0)
        for column in table.columns:
            column.no_wrap, column.overflow = True, "ellipsis"
        for row in zip(*columns.values(), strict=True):
            add_row(table, *row)
        yield table
        notes = ["→: recommended", *(note for name, note in NOTES.items() if name in columns)]
        if hidden:
            notes.append(f"hidden at {width} columns: {', '.join(name.removesuffix(' %') for name in hidden)}")
        if len(shown) < len(self.analysis.points):
            part = f"{len(shown)} of {len(self.analysis.points)} points, evenly spaced"
            notes.append(f"{part}; all of them: rst-tune front --all, --json or --csv")
        yield from (text(note, style="dim") for note in notes)


def _spread(
    points: Sequence[ConfigSummary], recommended: ConfigSummary | None, limit: int | None
) -> list[ConfigSummary]:
    """Return at most `limit` points, evenly along the front, with both ends and the recommended one."""
    if limit is None or len(points) <= limit:
        return list(points)
    last, steps = len(points) - 1, max(limit - 1, 1)
    chosen = [round(k * last / steps) for k in range(limit)]
    if recommended in points:
        index = points.index(recommended)
        inner = range(1, limit - 1) if index not in (0, last) else range(limit)
        nearest = min(inner, key=lambda k: abs(chosen[k] - index), default=0)
        chosen[nearest] = index
    return [points[i] for i in sorted(set(chosen))]


def _columns(points: Sequence[ConfigSummary], recommended: ConfigSummary | None) -> dict[str, list[Text]]:
    """Return the cells by column; a column without any value is left out."""
    columns = {
        "extra": [text("→ " * (p is recommended) + formatting.cost(p.extra_propagation)) for p in points],
        "expect": [text(formatting.error(p.error_posterior)) for p in points],
        "error %": [text(_compact(p.error_mean, p.error_sem)) for p in points],
        "test %": [text(_compact(p.test_error_mean, p.test_error_sem)) for p in points],
        "seeds": [text(p.seeds) for p in points],
        "P": [text(formatting.probability(p.p_nondominated), style=STYLES[p.verdict]) for p in points],
        "verdict": [text(p.verdict, style=STYLES[p.verdict]) for p in points],
        "method": [text(labels.short(p.config)) for p in points],
    }
    if all(p.error_posterior_sd is None for p in points):
        del columns["expect"]  # without a surrogate it repeats the measured error
    return {name: cells for name, cells in columns.items() if any(cell.plain != formatting.MISSING for cell in cells)}


def _compact(mean: float | None, sem: float | None) -> str:
    return formatting.error(mean, sem).replace(" ", "")


def _drop(columns: dict[str, list[Text]], width: int) -> list[str]:
    """Remove columns until a row fits, and return their names."""
    dropped = []
    for name in DROP_ORDER:
        if name in columns and _row_width(columns, gap=1) > width:
            del columns[name]
            dropped.append(name)
    return dropped


def _row_width(columns: Mapping[str, Sequence[Text]], gap: int) -> int:
    widths = (max(len(name), *(cell.cell_len for cell in cells)) for name, cells in columns.items())
    return sum(widths) + gap * (len(columns) - 1)
