"""The page: one HTML file that needs no network, with the answer first."""

import base64
import gzip
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from plotly.offline import get_plotlyjs

from rst_tune.analysis import fronts
from rst_tune.analysis.noise import ConfigSummary
from rst_tune.analysis.records import Search
from rst_tune.report import content, words
from rst_tune.report.content import Panel
from rst_tune.report.words import escaped

__all__ = ["assemble", "caveat_list", "figures_json", "render", "section", "write"]


def write(search: Search, path: Path | str) -> Path:
    """Write the page of a search and return where it is."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(render(search), encoding="utf-8")
    return path


def render(search: Search) -> str:
    """Return the page of a search as one string."""
    front = fronts.delivered(search)
    panels = content.panels(search, front)
    name = str(search.header.get("name") or search.directory.name)
    head, *rest = panels
    sections = [_answer(search, front), section(head, _front_table(front))]
    sections += [section(panel) for panel in rest]
    sections += [_trials(search), _account(search, front)]
    links = [
        ("answer", "Answer"),
        *((p.name, p.name.capitalize()) for p in panels),
        ("trials", "Trials"),
        ("how", "How"),
    ]
    data = {"figures": figures_json(panels), "trials": content.trial_columns(search, front.points)}
    return assemble(name, links, sections, data)


def assemble(name: str, links: Sequence[tuple[str, str]], sections: Iterable[str], data: Mapping[str, Any]) -> str:
    """Put sections and their data into the frame that every page shares."""
    nav = "".join(f'<a href="#{target}">{escaped(title)}</a>' for target, title in links)
    return Template(_asset("page.html")).substitute(
        title=escaped(f"{name} · rst_tune"), name=escaped(name), nav=nav, body="\n".join(sections),
        css=_asset("page.css"), js=_asset("page.js"), data=_safe_json(data), plotly=_packed_plotly(),
    )  # fmt: skip


def _asset(name: str) -> str:
    return (files("rst_tune.report") / "assets" / name).read_text(encoding="utf-8")


def _safe_json(data: Any) -> str:
    """Return JSON that cannot end the script element it stands in."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


@cache
def _packed_plotly() -> str:
    """Return Plotly's script, compressed: the page unpacks it itself, and is a third as large."""
    return base64.b64encode(gzip.compress(get_plotlyjs().encode(), compresslevel=9, mtime=0)).decode()


def figures_json(panels: Sequence[Panel]) -> dict[str, Any]:
    """Return the figures of all panels by the names that their places on the page carry."""
    return {
        f"{panel.name}-{index}": content.figure_json(figure)
        for panel in panels
        for index, figure in enumerate((panel.plots or {}).values())
    }


def section(panel: Panel, after: str = "") -> str:
    """Return one section; where something is missing it says what."""
    note = f'<p class="note">{escaped(panel.note)}</p>' if panel.note else ""
    body = f'<p class="missing">{escaped(panel.missing)}</p>' if panel.missing else _plots(panel) + _texts(panel)
    return f'<section id="{panel.name}"><h2>{escaped(panel.title)}</h2>{note}{body}{after}</section>'


def _plots(panel: Panel) -> str:
    plots = panel.plots or {}
    items = []
    for index, (caption, figure) in enumerate(plots.items()):
        title = _caption(caption)
        named = escaped(caption or panel.title)
        style = f"height:{figure.layout.height}px"
        plot = f'<div class="plot" role="img" aria-label="{named}" data-figure="{panel.name}-{index}" style="{style}">'
        items.append(f"<div>{title}{plot}</div></div>")
    return f'<div class="grid">{"".join(items)}</div>' if len(items) > 1 else "".join(items)


def _texts(panel: Panel) -> str:
    items = (f"<dt>{escaped(head)}</dt><dd>{escaped(words.sentence(text))}</dd>" for head, text in panel.texts)
    return f'<dl class="texts">{"".join(items)}</dl>' if panel.texts else ""


def _caption(text: str) -> str:
    """Return the head of a small figure: what it is, and in softer ink what it reaches."""
    if not text:
        return ""
    name, _, result = text.partition("\n")
    return f"<h3>{escaped(name)}<br><span>{escaped(result)}</span></h3>"


def _answer(search: Search, front: fronts.Front) -> str:
    numbers = "".join(f"<div><dt>{escaped(k)}</dt><dd>{escaped(v)}</dd></div>" for k, v in content.facts(search, front))
    return (
        f'<section id="answer" class="answer"><h1>{escaped(words.sentence(front.answer))}</h1>'
        f'<dl class="facts">{numbers}</dl>{caveat_list(front.caveats)}</section>'
    )


def caveat_list(caveats: Sequence[str]) -> str:
    """Return what a reader must know beside an answer."""
    items = "".join(f"<li>{escaped(words.sentence(caveat))}</li>" for caveat in caveats)
    return f'<ul class="caveats" aria-label="Caveats">{items}</ul>' if items else ""


_FRONT_HEADS = (
    "schedule",
    "extra",
    "expected, %",
    "measured, %",
    "test, %",
    "seeds",
    "P(non-dom.)",
    "verdict",
    "γ_gnr",
    "parameters",
    "",
)


def _front_table(front: fronts.Front) -> str:
    if not front.points:
        return ""
    heads = "".join(f'<th scope="col"{" class=act" if not h else ""}>{escaped(h)}</th>' for h in _FRONT_HEADS)
    rows = "".join(_front_row(point, point == front.recommended) for point in front.points)
    return (
        '<div class="scroll" role="region" aria-label="The front as a table" tabindex="0">'
        f'<table id="front-table"><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>'
    )


def _front_row(point: ConfigSummary, picked: bool) -> str:
    config = point.config
    name = escaped(config.get("family", "?")) + ("<small>recommended</small>" if picked else "")
    cells = [
        words.cost(point.extra_propagation), words.error(point.error_expected, point.error_expected_sd),
        words.error(point.error_mean, point.error_sem),
        words.error(point.test_error_mean, point.test_error_sem), str(point.seeds),
        words.probability(point.p_nondominated),
    ]  # fmt: skip
    shown = "".join(f"<td>{escaped(cell)}</td>" for cell in cells)
    verdict = f'<td><span class="tag {point.verdict.split()[0]}">{escaped(point.verdict)}</span></td>'
    gamma = f"<td>{words.number(config.get('gamma_gnr'), 3)}</td>"
    details = f'<td class="wide">{escaped(words.parameters(config.get("schedule", {})))}</td>'
    button = f'<button type="button" class="copy" data-key="{escaped(point.run_id)}">Copy YAML</button>'
    row = f'<td>{name}</td>{shown}{verdict}{gamma}{details}<td class="act">{button}</td>'
    return f"<tr{' class=pick' if picked else ''}>{row}</tr>"


def _trials(search: Search) -> str:
    head = '<section id="trials"><h2>All trials</h2><p id="say" class="quiet" role="status"></p>'
    if not search.trials:
        return f'{head}<p class="missing">The record holds no trial yet.</p></section>'
    states = "".join(f"<option>{escaped(s)}</option>" for s in sorted({t.status for t in search.trials}))
    return (
        f'{head}<p class="note">Every training of this search. Words are searched for; '
        "<code>error&lt;4</code>, <code>extra&lt;=0.5</code> or <code>gamma_rst&gt;1</code> compare a column.</p>"
        '<div class="filters"><label>Filter<input type="search" id="filter" autocomplete="off"></label>'
        f'<label>Status<select id="only"><option value="">all</option>{states}</select></label>'
        '<label class="check"><input type="checkbox" id="front-only"> only the front</label></div>'
        '<p class="count" id="count" role="status"></p>'
        '<div class="scroll" role="region" aria-label="All trials" tabindex="0">'
        '<table id="table"><thead><tr id="heads"></tr></thead><tbody id="rows"></tbody></table></div>'
        '<button type="button" id="more" hidden>Show 200 more</button></section>'
    )


def _account(search: Search, front: fronts.Front) -> str:
    groups = {"the trials": content.account(search, front), **content.header_groups(search.header)}
    if not search.header:
        groups["the search"] = [("missing", "the record has no head: nothing is known of the task, split and versions")]
    parts = [_details(name, rows, opened=index < 2) for index, (name, rows) in enumerate(groups.items())]
    return f'<section id="how"><h2>How this was obtained</h2>{"".join(parts)}</section>'


def _details(name: str, rows: Sequence[tuple[str, str]], opened: bool) -> str:
    body = "".join(f"<tr><td>{escaped(key)}</td><td>{escaped(value)}</td></tr>" for key, value in rows)
    state = " open" if opened else ""
    return (
        f"<details{state}><summary>{escaped(name.capitalize())}</summary><table><tbody>{body}</tbody></table></details>"
    )
