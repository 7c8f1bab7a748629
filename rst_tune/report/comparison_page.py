"""The page of several searches: their fronts on one picture, and who is better where."""

from collections.abc import Mapping
from pathlib import Path

import plotly.graph_objects as go

from rst_tune.analysis import pareto
from rst_tune.analysis.records import Search
from rst_tune.report import figures, words
from rst_tune.report.comparison import Comparison, Entry, Level, compare, drawn_fronts
from rst_tune.report.content import Panel, one_figure
from rst_tune.report.page import assemble, figures_json, section
from rst_tune.report.words import escaped

__all__ = ["attainment_figure", "render", "write"]

FRONTS_FOR_ATTAINMENT, INTERVALS = 60, 10


def write(searches: Mapping[str, Search], path: Path | str) -> Path:
    """Write the page that compares named searches and return where it is."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(render(searches), encoding="utf-8")
    return path


def render(searches: Mapping[str, Search]) -> str:
    """Return the page as one string."""
    comparison = compare(searches)
    fronts = {entry.name: entry.front.points for entry in comparison.entries}
    note = "Left is cheaper, down is better. Bars are one standard error over seeds."
    panels = [one_figure("fronts", "The fronts", note, figures.compare(fronts)), *_differences(comparison)]
    sections = [_head(comparison), section(panels[0], _tables(comparison)), *(section(panel) for panel in panels[1:])]
    links = [("answer", "Answer"), *((panel.name, panel.title) for panel in panels)]
    data = {"figures": figures_json(panels), "trials": {}}
    return assemble(" / ".join(searches), links, sections, data)


def _differences(comparison: Comparison) -> list[Panel]:
    first, *others = comparison.entries
    return [_difference(first, other, comparison.reference, i) for i, other in enumerate(others)]


def _difference(left: Entry, right: Entry, corner: tuple[float, float] | None, index: int) -> Panel:
    title = f"Where {left.name} and {right.name} differ"
    note = "The colour tells whose front is likelier to reach a point or better, given the noise between seeds."
    figure = attainment_figure(left, right, corner)
    if figure is None:
        return Panel(name=f"difference-{index}", title=title, missing="Both need a front with two seeds a point.")
    return one_figure(f"difference-{index}", title, note, figure)


def attainment_figure(left: Entry, right: Entry, corner: tuple[float, float] | None) -> go.Figure | None:
    """Return the picture of the attainment difference of two searches, None where the noise is not known."""
    drawn = [drawn_fronts(entry.front.points, FRONTS_FOR_ATTAINMENT) for entry in (left, right)]
    if corner is None or not all(drawn):
        return None
    rectangles = pareto.attainment_difference(drawn[0], drawn[1], INTERVALS)
    rectangles[:, 4] /= INTERVALS
    return figures.attainment(rectangles, (left.name, right.name), corner)


def _head(comparison: Comparison) -> str:
    return f'<section id="answer" class="answer"><h1>{escaped(words.sentence(verdict(comparison)))}</h1></section>'


def verdict(comparison: Comparison) -> str:
    """Return in one clause which search has the larger hypervolume, and whether the noise allows to say so."""
    known = [entry for entry in comparison.entries if entry.hypervolume is not None]
    if len(known) < 2:
        return "nothing to compare yet: fewer than two of these searches have a front"
    best, second, *_ = sorted(known, key=lambda entry: -(entry.hypervolume or 0.0))
    sizes = f"{words.number(best.hypervolume, 3)} against {words.number(second.hypervolume, 3)} of {second.name}"
    text = f"{best.name} has the larger hypervolume, {sizes}"
    if best.interval is None or second.interval is None:
        return f"{text}; without two seeds a point nobody knows whether that is noise"
    apart = best.interval[0] > second.interval[1]
    return f"{text}; their 90 % intervals {'do not overlap' if apart else 'overlap'}"


def _tables(comparison: Comparison) -> str:
    volumes = "".join(_volume_row(entry) for entry in comparison.entries)
    heads = "".join(f'<th scope="col">{escaped(entry.name)}</th>' for entry in comparison.entries)
    levels = "".join(_level_row(level) for level in comparison.by_cost)
    return (
        '<div class="scroll" role="region" aria-label="Hypervolumes" tabindex="0"><table><thead><tr>'
        '<th scope="col">search</th><th scope="col">points</th><th scope="col">hypervolume</th>'
        f'<th scope="col">90 % interval</th></tr></thead><tbody>{volumes}</tbody></table></div>'
        '<div class="scroll" role="region" aria-label="Error by cost" tabindex="0"><table><thead><tr>'
        f'<th scope="col">error within</th>{heads}</tr></thead><tbody>{levels}</tbody></table></div>'
        '<p class="note">In brackets the difference to the first search with its 95 % interval.</p>'
    )


def _volume_row(entry: Entry) -> str:
    span = words.MISSING if entry.interval is None else " … ".join(words.number(v) for v in entry.interval)
    cells = (entry.name, len(entry.front.points), words.number(entry.hypervolume), span)
    return "<tr>" + "".join(f"<td>{escaped(cell)}</td>" for cell in cells) + "</tr>"


def _level_row(level: Level) -> str:
    cells = [f"{words.error(c.error, c.sem)}{words.difference(c.difference, c.half_width)}" for c in level.cells]
    shown = "".join(f"<td>{escaped(cell)}</td>" for cell in cells)
    return f"<tr><td>{escaped(words.cost(level.extra_propagation))}</td>{shown}</tr>"
