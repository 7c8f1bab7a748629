"""The page of a comparison: the fronts of several searches in one figure, and where they differ."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from rst_tune.analysis.compare import SURFACES, Comparison
from rst_tune.files import write_text
from rst_tune.report import figures, formatting, terminal
from rst_tune.report.formatting import escape_html
from rst_tune.report.page import Content, answer_section, figure_data, html_table, section
from rst_tune.report.panels import FRONT_NOTE, Panel, better_note, figure_panel


def write(comparison: Comparison, path: Path) -> Path:
    """Write the page of a comparison and return its path."""
    write_text(path, render(comparison))
    return path


def render(comparison: Comparison) -> str:
    """Return the page as one string."""
    first, *rest = parts = panels(comparison)
    sections = [
        answer_section(verdict(comparison), comparison.caveats),
        section(first, _tables(comparison)),
        *(section(panel) for panel in rest),
    ]
    links = {"answer": "Answer", **{panel.name: panel.title for panel in parts}}
    name = " / ".join(entry.name for entry in comparison.entries)
    return Content(name=name, links=links, sections=sections, data={"figures": figure_data(parts)}).to_html()


def panels(comparison: Comparison) -> list[Panel]:
    """Return the fronts in one figure, and for each other search where it differs from the first."""
    fronts = {entry.name: entry.analysis.points for entry in comparison.entries}
    others = [entry.name for entry in comparison.entries[1:]]
    differences = [_difference(comparison, other, index) for index, other in enumerate(others)]
    metric = comparison.entries[0].analysis.search.metric
    note = better_note(metric) + FRONT_NOTE + terminal.comparison_axis(comparison).note
    return [figure_panel("fronts", "The fronts", note, figures.compare(fronts, metric)), *differences]


def _difference(comparison: Comparison, other: str, index: int) -> Panel:
    first = comparison.entries[0].name
    name, title = f"difference-{index}", f"Where {first} and {other} differ"
    rectangles = comparison.attainment.get(other)
    if rectangles is None or comparison.reference is None:
        return Panel(name=name, title=title, missing="One of the two has no front yet.")
    rectangles = rectangles / (1, 1, 1, 1, SURFACES)
    note = "Colour: the search with the higher probability of attaining a point or a better one, given the noise "
    note += "between seeds."
    axis, metric = terminal.comparison_axis(comparison), comparison.entries[0].analysis.search.metric
    figure = figures.attainment(rectangles, (first, other), comparison.reference, axis, metric)
    return figure_panel(name, title, note, figure)


def verdict(comparison: Comparison) -> str:
    """Return in one clause which search has the larger hypervolume, and whether the intervals overlap."""
    known = [entry for entry in comparison.entries if entry.analysis.points]
    if len(known) < 2:
        return "nothing to compare yet: fewer than two of these searches have a front"
    best, second, *_ = sorted(known, key=lambda entry: -entry.hypervolume)
    sizes = f"{formatting.number(best.hypervolume, 3)} against {formatting.number(second.hypervolume, 3)}"
    text = f"the search {best.name} has the larger hypervolume, {sizes} of {second.name}"
    if best.low is None or second.high is None:
        return f"{text}; with one seed per point the noise is unknown"
    return f"{text}; their 95 % intervals {'do not overlap' if best.low > second.high else 'overlap'}"


def _tables(comparison: Comparison) -> str:
    table = _text_table(*terminal.volume_table(comparison))
    (head, first, *others), rows = terminal.error_table(comparison)
    if not rows:
        return table
    note = f"Differences from the first search with 95 % intervals; {terminal.better_side(comparison)} 0 is better."
    heads = (head, first, *(f"{name}, difference" for name in others))
    return f'{table}{_text_table(heads, rows)}<p class="note under">{note}</p>'


def _text_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    cells = ("".join(f"<td>{escape_html(cell)}</td>" for cell in row) for row in rows)
    return html_table(heads, (f"<tr>{row}</tr>" for row in cells), heads[0])
