"""Building blocks of the terminal tables. Every cell is a `Text`, so no name in a record is read as markup."""

from collections.abc import Iterable, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from rst_tune.report.formatting import one_line

__all__ = ["add_row", "bullets", "column_table", "row_table", "text"]


def text(value: object, style: str = "") -> Text:
    """Return a value as literal text in one line."""
    return Text(one_line(value), style=style)


def column_table(*names: str, numbers: Sequence[str] = (), title: str = "") -> Table:
    """Return an empty table with named columns; those in `numbers` are aligned to the right."""
    table = Table(title=text(title) if title else None, title_justify="left", title_style="bold", box=None)
    table.pad_edge = False
    for name in names:
        justify = "right" if name in numbers else "left"
        table.add_column(text(name), justify=justify, overflow="fold", header_style="dim")  # type: ignore[arg-type]
    return table


def row_table(rows: Iterable[tuple[str, str]], title: str = "") -> Table:
    """Return a table of names and values."""
    table = column_table("", "", title=title)
    table.show_header = False
    for name, value in rows:
        add_row(table, text(name, style="dim"), value)
    return table


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
