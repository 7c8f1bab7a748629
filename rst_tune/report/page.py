"""The page: one HTML file that needs no network, with the answer first."""

import base64
import gzip
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from plotly.offline import get_plotlyjs

from rst_tune.analysis import labels
from rst_tune.analysis.analysis import Analysis
from rst_tune.analysis.export import json_safe
from rst_tune.analysis.replicates import ConfigSummary
from rst_tune.files import write_text
from rst_tune.records import Metric, Search, Status
from rst_tune.report import formatting, page_data
from rst_tune.report.cost_axis import CostAxis
from rst_tune.report.formatting import escape_html
from rst_tune.report.panels import Panel, panels
from rst_tune.report.status import budget_progress
from rst_tune.report.terminal import table_points

MAX_RUNNING = 12


@dataclass(frozen=True, kw_only=True)
class Content:
    """What a page shows: all that changes while a search runs. `links` maps a section to its title in the navigation.

    Section by section it is a whole page, or the JSON by which an open page is updated.
    """

    name: str
    links: Mapping[str, str]
    sections: Sequence[str]
    data: Mapping[str, Any]

    @property
    def nav(self) -> str:
        """The links as HTML."""
        return "".join(f'<a href="#{target}">{escape_html(title)}</a>' for target, title in self.links.items())

    def to_html(self, *, live: bool = False, version: int = 0) -> str:
        """Return one HTML file. With `live` it asks the server that it came from for what is newer than `version`."""
        page = Template(_asset("page.html")).substitute(
            title=escape_html(f"{self.name} · rst_tune"), name=escape_html(self.name), nav=self.nav,
            body="\n".join(self.sections), css=_asset("page.css"), js=_asset("page.js"), plotly=_packed_plotly(),
            data=script_json({**self.data, "version": version}), connect="; connect-src 'self'" if live else "",
            live='<span id="live" role="status">live</span>' if live else "",
        )  # fmt: skip
        return page.encode("utf-8", "replace").decode()  # JSON may hold lone surrogates, which no file can


def write(analysis: Analysis, path: Path) -> Path:
    """Write the page of a search and return its path."""
    write_text(path, render(analysis))
    return path


def render(analysis: Analysis) -> str:
    """Return the page of a search as one string."""
    return content(analysis).to_html()


def content(analysis: Analysis) -> Content:
    """Return what the page of a search shows."""
    parts = panels(analysis)
    caveats = [formatting.sentence(caveat) for caveat in analysis.caveats]
    # The first clause is the heading; the baselines follow below it.
    heading, _, details = analysis.answer.partition("; ")
    tables = {"front": _front_table(analysis), "running": _running_table(analysis.search)}
    share = None if analysis.search.done else budget_progress(analysis.search)["share"]
    sections = [
        answer_section(heading, caveats, page_data.key_figures(analysis), details, share),
        *(section(panel, tables.get(panel.name, "")) for panel in parts),
        _trials(analysis.search),
        _account(analysis),
    ]
    links = {"answer": "Answer", **{p.name: p.name.capitalize() for p in parts}}
    links |= {"trials": "Trials", "how": "Provenance"}
    metric = analysis.search.metric
    named = {
        "name": metric.name.lower(),
        "title": metric.title,
        "percent": metric.unit == "%",
        "up": not metric.higher_is_better,
    }
    trials, cost = page_data.trial_columns(analysis), analysis.baselines.noun
    data = {"figures": figure_data(parts), "trials": trials, "metric": named, "cost": cost}
    return Content(name=analysis.search.name, links=links, sections=sections, data=data)


def _asset(name: str) -> str:
    return (files("rst_tune.report") / "assets" / name).read_text(encoding="utf-8")


def script_json(data: Mapping[str, Any]) -> str:
    """Return JSON that cannot end the script element around it."""
    text = json.dumps(json_safe(data), separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


@cache
def _packed_plotly() -> str:
    """Return Plotly's script, compressed to a third: the page decompresses it."""
    return base64.b64encode(gzip.compress(get_plotlyjs().encode(), compresslevel=9, mtime=0)).decode()


def figure_data(parts: Sequence[Panel]) -> dict[str, Any]:
    """Return the figures of all panels as plain data, by the names of their places on the page."""
    found = {f"{p.name}-{i}": f for p in parts for i, f in enumerate((p.plots or {}).values())}
    data: dict[str, Any] = {name: json.loads(figure.to_json()) for name, figure in found.items()}
    for figure in data.values():
        figure["layout"].pop("template", None)
    return data


def section(panel: Panel, after: str = "") -> str:
    """Return one section as HTML, with the HTML `after` at its end."""
    note = f'<p class="note">{escape_html(panel.note)}</p>' if panel.note else ""
    body = f'<p class="missing">{escape_html(panel.missing)}</p>' if panel.missing else _plots(panel) + _texts(panel)
    half = " class=half" if panel.half else ""
    return f'<section id="{panel.name}"{half}><h2>{escape_html(panel.title)}</h2>{note}{body}{after}</section>'


def _plots(panel: Panel) -> str:
    items = []
    for index, (caption, figure) in enumerate((panel.plots or {}).items()):
        name, _, result = map(escape_html, formatting.unbroken(caption).partition("\n"))
        head = f"<h3>{name}<br><span>{result}</span></h3>" if caption else ""
        place = f'data-figure="{panel.name}-{index}" style="height:{figure.layout.height}px"'
        label = escape_html(caption or panel.title)
        items.append(f'<div>{head}<div class="plot" role="img" aria-label="{label}" {place}></div></div>')
    return f'<div class="grid">{"".join(items)}</div>' if len(items) > 1 else "".join(items)


def _texts(panel: Panel) -> str:
    sentences = ((head, formatting.sentence(text)) for head, text in panel.texts)
    items = (f"<dt>{escape_html(head)}</dt><dd>{escape_html(text)}</dd>" for head, text in sentences)
    return f'<dl class="texts">{"".join(items)}</dl>' if panel.texts else ""


def answer_section(
    answer: str,
    caveats: Sequence[str],
    numbers: Sequence[tuple[str, str]] = (),
    details: str = "",
    share: float | None = None,
) -> str:
    """Return the first section: the answer as the heading, its details, key figures, the spent share, caveats."""
    head = f"<h1>{escape_html(formatting.sentence(answer))}</h1>"
    if details:
        head += f'<p class="details">{escape_html(formatting.sentence(details))}</p>'
    facts = "".join(f"<div><dt>{escape_html(k)}</dt><dd>{escape_html(v)}</dd></div>" for k, v in numbers)
    facts = f'<dl class="facts">{facts}</dl>' if facts else ""
    facts += f'<progress value="{share:.4f}" aria-label="Share of the budget"></progress>' if share is not None else ""
    notes = "".join(f"<li>{escape_html(caveat)}</li>" for caveat in caveats)
    notes = f'<ul class="caveats" aria-label="Caveats">{notes}</ul>' if notes else ""
    return f'<section id="answer" class="answer">{head}{facts}{notes}</section>'


def html_table(heads: Sequence[str], rows: Iterable[str], label: str, name: str = "") -> str:
    """Return a table that scrolls sideways; `rows` are HTML, an empty head stands above the buttons."""
    head = "".join(f'<th scope="col"{"" if h else " class=act"}>{escape_html(h)}</th>' for h in heads)
    place = f" id={name}" if name else ""
    table = f"<table{place}><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    return f'<div class="scroll" role="region" aria-label="{escape_html(label)}" tabindex="0">{table}</div>'


def _front_table(analysis: Analysis) -> str:
    points = table_points(analysis)
    if not points:
        return ""
    columns = _front_columns(points, CostAxis.of(analysis.summaries), analysis.search.metric)
    cells = zip(*columns.values(), strict=True)
    rows = [_front_row(p, own, p is analysis.recommended) for p, own in zip(points, cells, strict=True)]
    return html_table(["method", *columns, "verdict", ""], rows, "The front as a table", "front-table")


def _running_table(search: Search) -> str:
    trials = [t for t in search.trials if t.status is Status.RUNNING]
    rows = []
    for trial in trials[:MAX_RUNNING]:
        values = trial.values(search.metric)
        epoch = f"{len(values)} of {trial.epochs}"
        error = search.metric.text(search.metric.error(values[-1]) if values else None)
        passed = formatting.duration(max(0.0, search.updated_at - (trial.started_at or search.updated_at)))
        cells = (f"#{trial.number}", labels.short(trial.config), trial.seed, epoch, error, passed)
        rows.append(f"<tr>{''.join(f'<td>{escape_html(cell)}</td>' for cell in cells)}</tr>")
    more = f'<p class="note under">{len(trials) - MAX_RUNNING} more.</p>' if len(trials) > MAX_RUNNING else ""
    heads = ("trial", "method", "seed", "epoch", search.metric.title, "time")
    return html_table(heads, rows, "Running trainings") + more if trials else ""


def _front_columns(points: Sequence[ConfigSummary], axis: CostAxis, metric: Metric) -> dict[str, list[str]]:
    """Return the numbers of the front's table by column; length and radius only where they differ."""
    unit = ", %" if metric.unit == "%" else f" {metric.title}"
    columns = {axis.name: [axis.text(p.compute) for p in points]}
    if axis.lengths_differ:
        columns["length"] = [formatting.multiple(p.config.horizon) for p in points]
        columns["extra"] = [formatting.cost(p.extra_propagation) for p in points]
    columns |= {
        f"posterior{unit}": [metric.text(p.error_posterior, p.error_posterior_sd) for p in points],
        f"measured{unit}": [metric.text(p.error_mean, p.error_sem) for p in points],
        f"test{unit}": [metric.text(p.test_error_mean, p.test_error_sem) for p in points],
        "seeds": [formatting.seeds(p.seeds, p.seeds_total) for p in points],
        "P(non-dom.)": [formatting.probability(p.p_nondominated) for p in points],
    }
    if len({p.config.rho for p in points if not p.config.is_base}) > 1:
        columns["ρ"] = [formatting.radius(p.config) for p in points]
    return columns


def _front_row(point: ConfigSummary, cells: Sequence[str], recommended: bool) -> str:
    mark = "recommended" + ("" if point.on_front else ", not on the front")
    details = [formatting.parameters(point.config.schedule), mark if recommended else ""]
    return (
        f"<tr{' class=pick' if recommended else ''}><td class=wide>{escape_html(labels.short(point.config))}"
        + "".join(f"<small>{escape_html(text)}</small>" for text in details if text)
        + "</td>"
        + "".join(f"<td>{cell}</td>" for cell in cells)
        + f'<td><span class="tag {point.verdict.split()[0]}">{escape_html(point.verdict)}</span></td>'
        f'<td class="act"><button type="button" class="copy" data-key="{escape_html(point.trial_key)}">Copy YAML'
        "</button></td></tr>"
    )


def _trials(search: Search) -> str:
    head = '<section id="trials"><h2>All trials</h2><p id="say" class="quiet" role="status"></p>'
    if not search.trials:
        return f'{head}<p class="missing">The record has no trial yet.</p></section>'
    return (
        f'{head}<p class="note">Every training of this search. A word filters the rows that contain it; '
        f"<code>{escape_html(_filter_example(search.metric))}</code>, <code>compute&lt;=0.5</code> or "
        "<code>gamma_rst&gt;1</code> compares a column.</p>"
        '<div class="filters"><label>Filter<input type="search" id="filter" autocomplete="off"></label>'
        '<label>Status<select id="only"><option value="">all</option></select></label>'
        '<label class="check"><input type="checkbox" id="front-only"> front only</label></div>'
        '<p class="count" id="count" role="status"></p>'
        '<div class="scroll" role="region" aria-label="All trials" tabindex="0">'
        '<table id="table"><thead><tr id="heads"></tr></thead><tbody id="rows"></tbody></table></div>'
        '<button type="button" id="more" hidden>Show 200 more</button></section>'
    )


def _filter_example(metric: Metric) -> str:
    """Return a comparison with the metric's column, which has the name of the metric or `error`."""
    name = metric.name.lower() if metric.name.isidentifier() and metric.name.isascii() else "error"
    return f"{name}{'>' if metric.higher_is_better else '<'}{4 if metric.unit == '%' else 0.5:g}"


def _account(analysis: Analysis) -> str:
    groups = {"the trials": page_data.account(analysis), **page_data.header_groups(analysis.search.header)}
    if len(groups) == 1:
        groups["the search"] = [("missing", "the record has no header: task, split and versions are unknown")]
    parts = [_details(name, rows, opened=index < 2) for index, (name, rows) in enumerate(groups.items())]
    return f'<section id="how"><h2>How this was obtained</h2>{"".join(parts)}</section>'


def _details(name: str, rows: Sequence[tuple[str, str]], opened: bool) -> str:
    body = "".join(f"<tr><td>{escape_html(key)}</td><td>{escape_html(value)}</td></tr>" for key, value in rows)
    head = f"<details{' open' if opened else ''}><summary>{escape_html(name.capitalize())}</summary>"
    return f"{head}<table><tbody>{body}</tbody></table></details>"
