"""The page of several searches: their fronts on one picture, and who is better where."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rst_tune.analysis.compare import SURFACES, Comparison, Entry, compare
from rst_tune.analysis.records import Search
from rst_tune.report import figures, words
from rst_tune.report.content import Panel, one_figure
from rst_tune.report.page import assemble, caveat_list, figures_json, section
from rst_tune.report.terminal import errors_by_cost
from rst_tune.report.words import escaped

__all__ = ["panels", "render", "verdict", "write"]


def write(searches: Mapping[str, Search], path: Path | str) -> Path:
    """Write the page that compares named searches and return where it is."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(render(searches), encoding="utf-8")
    return path


def render(searches: Mapping[str, Search]) -> str:
    """Return the page as one string."""
    comparison = compare(list(searches.values()), list(searches))
    head, *rest = panels(comparison)
    sections = [_head(comparison), section(head, _tables(comparison)), *(section(panel) for panel in rest)]
    links = [("answer", "Answer"), *((panel.name, panel.title) for panel in (head, *rest))]
    return assemble(" / ".join(searches), links, sections, {"figures": figures_json([head, *rest]), "trials": {}})


def panels(comparison: Comparison) -> list[Panel]:
    """Return the fronts on one picture, and for each other search where it differs from the first."""
    fronts = {entry.name: entry.front.points for entry in comparison.entries}
    note = (
        "Left is cheaper, down is better. Bars are one standard error over seeds. The line is at the expected errors, "
        "which make the front: all trials together make them believable, where a single one may be lucky."
    )
    first, *others = comparison.entries
    differences = [_difference(comparison, first.name, other.name, i) for i, other in enumerate(others)]
    return [one_figure("fronts", "The fronts", note, figures.compare(fronts)), *differences]


def _difference(comparison: Comparison, first: str, other: str, index: int) -> Panel:
    name, title = f"difference-{index}", f"Where {first} and {other} differ"
    rectangles = comparison.attainment.get(other)
    if rectangles is None or comparison.reference is None:
        return Panel(name=name, title=title, missing="One of the two has no front yet.")
    rectangles = rectangles.copy()
    rectangles[:, 4] /= SURFACES
    note = "The colour tells whose front is likelier to reach a point or better, given the noise between seeds."
    return one_figure(name, title, note, figures.attainment(rectangles, (first, other), comparison.reference))


def _head(comparison: Comparison) -> str:
    head = escaped(words.sentence(verdict(comparison)))
    return f'<section id="answer" class="answer"><h1>{head}</h1>{caveat_list(comparison.caveats)}</section>'


def verdict(comparison: Comparison) -> str:
    """Return in one clause which search has the larger hypervolume, and whether the noise allows to say so."""
    known = [entry for entry in comparison.entries if entry.front.points]
    if len(known) < 2:
        return "nothing to compare yet: fewer than two of these searches have a front"
    best, second, *_ = sorted(known, key=lambda entry: -entry.hypervolume)
    sizes = f"{words.number(best.hypervolume, 3)} against {words.number(second.hypervolume, 3)} of {second.name}"
    text = f"{best.name} has the larger hypervolume, {sizes}"
    if best.low is None or second.high is None:
        return f"{text}; without two seeds a point nobody knows whether that is noise"
    return f"{text}; their 95 % intervals {'do not overlap' if best.low > second.high else 'overlap'}"


def _tables(comparison: Comparison) -> str:
    first, *others = (entry.name for entry in comparison.entries)
    volumes = _table(("search", "points", "pairs", "hypervolume", "95 % interval"), map(_volume, comparison.entries))
    rows = errors_by_cost(comparison)
    heads = ("error within", first, *(f"{name}, difference" for name in others))
    return volumes + (_table(heads, rows) + _NOTE if rows else "")


_NOTE = '<p class="note">Differences to the first search with their 95 % interval; below 0 is better.</p>'


def _volume(entry: Entry) -> tuple[str, ...]:
    numbers = (len(entry.front.points), entry.pairs, entry.hypervolume)
    return (entry.name, *(words.number(float(n)) for n in numbers), words.interval(entry.low, entry.high))


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col">{escaped(name)}</th>' for name in heads)
    body = "".join("<tr>" + "".join(f"<td>{escaped(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    region = f'<div class="scroll" role="region" aria-label="{escaped(heads[0])}" tabindex="0">'
    return f"{region}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
