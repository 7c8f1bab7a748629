"""Building blocks of the terminal tables. Every cell is a `Text`, so no name in a record is read as markup."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from rst_tune.report.formatting import one_line

MIN_CUT = 8


def text(value: object, style: str = "") -> Text:
    """Return a value as literal text in one line."""
    return Text(one_line(value), style=style)


def column_table(*names: str, numbers: Sequence[str] = ()) -> Table:
    """Return an empty table with named columns; those in `numbers` are aligned to the right."""
    table = Table(box=None, pad_edge=False)
    for name in names:
        justify = "right" if name in numbers else "left"
        table.add_column(text(name), justify=justify, overflow="fold", header_style="dim")  # type: ignore[arg-type]
    return table


def row_table(rows: Iterable[tuple[str, str]], title: str = "") -> RenderableType:
    """Return a table of names and values under a title."""
    table = column_table("", "")
    table.show_header = False
    for name, value in rows:
        add_row(table, text(name, style="dim"), value)
    return Group(text(title, style="bold"), table) if title else table


def add_row(table: Table, *cells: Text | str) -> None:
    """Add a row of literal texts."""
    table.add_row(*(text(cell) if isinstance(cell, str) else cell for cell in cells))


def bullets(items: Sequence[str]) -> list[RenderableType]:
    """Return a list with hanging indents, after an empty line; nothing if there are no items."""
    if not items:
        return []
    grid = Table.grid(padding=(0, 1))
    for item in items:
        grid.add_row("•", text(item), style="dim")
    return [Text(""), grid]


@dataclass(frozen=True, kw_only=True)
class FittedTable:
    """A table in which every row takes one line.

    Attributes:
        columns: the cells of each column.
        numbers: the columns aligned to the right.
        drop: the columns to leave out while a row does not fit, in this order; a note below names them.
        cut: the column to shorten if that is not enough.
        notes: explanations of columns, shown below the table for the columns that are left.
        width: the available width, by default that of the console.
    """

    columns: Mapping[str, Sequence[Text]]
    numbers: Sequence[str]
    drop: Sequence[str]
    cut: str
    notes: Mapping[str, str] = field(default_factory=dict)
    width: int | None = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render for the available width."""
        width = self.width or options.max_width
        columns, hidden = dict(self.columns), []
        for name in self.drop:
            if name in columns and _row_width(columns, gap=1) > width:
                del columns[name]
                hidden.append(name.removesuffix(" %"))
        columns[self.cut] = _shortened(columns[self.cut], _row_width(columns, gap=1) - width)
        table = column_table(*columns, numbers=self.numbers)
        table.padding = (0, 2 if _row_width(columns, gap=2) <= width else 1, 0, 0)
        for column in table.columns:
            column.no_wrap = True
        for row in zip(*columns.values(), strict=True):
            add_row(table, *row)
        yield table
        notes = [note for name, note in self.notes.items() if name in columns]
        notes += [f"hidden at {width} columns: {', '.join(hidden)}"] if hidden else []
        yield from (text(note, style="dim") for note in notes)


def _row_width(columns: Mapping[str, Sequence[Text]], gap: int) -> int:
    widths = (max(len(name), *(cell.cell_len for cell in cells)) for name, cells in columns.items())
    return sum(widths) + gap * (len(columns) - 1)


def _shortened(cells: Sequence[Text], excess: int) -> list[Text]:
    """Return copies of the cells of which the longest is shorter by `excess`, if that is positive."""
    copies = [cell.copy() for cell in cells]
    longest = max(cell.cell_len for cell in cells)
    for cell in copies:
        cell.truncate(max(longest - max(excess, 0), MIN_CUT), overflow="ellipsis")
    return copies
