"""The look that all figures share.

Colours are those of Okabe and Ito, with a lighter blue for dark pages; kinds of points differ in shape as well.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import plotly.graph_objects as go

from rst_tune.analysis import labels
from rst_tune.analysis.replicates import ConfigSummary
from rst_tune.records import COST_WORDS, PERCENT_ERROR, Metric, Status
from rst_tune.report import formatting

INK, GRID = "#30363d", "#d8dce2"
BLUE, ORANGE, GREEN, RED, SKY, PURPLE, YELLOW, GREY = (
    "#1a80c4", "#e69f00", "#009e73", "#d55e00", "#56b4e9", "#cc79a7", "#d5c400", "#8b929c",
)  # fmt: skip
CYCLE = (BLUE, ORANGE, GREEN, PURPLE, RED, SKY)
NO_LEGEND = {"l": 52, "r": 12, "t": 14, "b": 48}
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
# The evidence for a point of the front, from the strongest to the weakest, and every other configuration: colour, shape
# and size of the marker.
CANDIDATE = "candidate"
KINDS: Mapping[str, tuple[str, str, int]] = {
    "confirmed": (BLUE, "circle", 12),
    "uncertain": (ORANGE, "diamond-open", 11),
    "single seed": (PURPLE, "square-open", 10),
    CANDIDATE: (GREY, "circle", 6),
}
STATUS: Mapping[Status, str] = {
    Status.COMPLETE: BLUE,
    Status.STOPPED: SKY,
    Status.RUNNING: GREEN,
    Status.DIVERGED: RED,
    Status.OUT_OF_MEMORY: PURPLE,
    Status.FAILED: ORANGE,
    Status.LOST: YELLOW,
    Status.WAITING: GREY,
}


def figure(x: str, y: str, height: int = 420, **layout: Any) -> go.Figure:
    """Return an empty figure with titled axes; the page changes its colours in the dark theme."""
    axis = {"gridcolor": GRID, "zeroline": False, "linecolor": GRID, "automargin": True, "ticks": ""}
    small = {"size": 13}
    font = {"family": "system-ui, -apple-system, Segoe UI, Roboto, Helvetica, Arial, sans-serif", "size": 13}
    fig = go.Figure()
    fig.update_layout(
        template="none", height=height, margin={"l": 52, "r": 12, "t": 44, "b": 48}, font={**font, "color": INK},
        paper_bgcolor="rgba(0,0,0,0)", plot_bgcolor="rgba(0,0,0,0)", hovermode="closest",
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0}, hoverlabel={"align": "left"},
        xaxis={**axis, "title": {"text": x, "font": small}},
        yaxis={**axis, "title": {"text": y, "font": small, "standoff": 8}},  # wide numbers move the title
    )  # fmt: skip
    return fig.update_layout(**layout)


def empty(reason: str) -> go.Figure:
    """Return a figure without data that states the reason, which the page reads from its `meta`."""
    fig = figure("", "", height=160, meta={"missing": reason})
    fig.update_xaxes(visible=False)
    fig.update_yaxes(visible=False)
    return fig.add_annotation(text=formatting.escape_html(reason), showarrow=False, font={"size": 14})


def rounded(values: Iterable[float | None], digits: int = 5) -> list[float | None]:
    """Return values with few digits, to keep the file small; a value that is not finite becomes a gap.

    >>> rounded([0.123456789, None, float("nan")])
    [0.12346, None, None]
    """
    return [float(f"{v:.{digits}g}") if v is not None and math.isfinite(v) else None for v in values]


def crowd_opacity(count: int) -> float:
    """Return the opacity of one marker among `count`: it falls with their number.

    >>> crowd_opacity(10), crowd_opacity(2500)
    (0.6, 0.24)
    """
    return max(0.15, min(0.6, 12 / math.sqrt(max(1, count))))


def hover(point: ConfigSummary, metric: Metric = PERCENT_ERROR) -> str:
    """Return the hover text of a configuration. Names are escaped, because Plotly renders a subset of HTML."""
    config, escape = point.config, formatting.escape_html
    lines = [
        f"<b>{escape(labels.describe(config))}</b>",
        escape(formatting.parameters(config.schedule)),
        f"{escape(metric.phrase(point.error_mean, point.error_sem))} "
        f"({formatting.seeds(point.seeds, point.seeds_total)} seed{'s' if point.seeds_total != 1 else ''}"
        f"{f', {point.diverged} diverged' if point.diverged else ''})",
        f"{COST_WORDS[config.cost].noun} {formatting.multiple(point.compute)} · "
        f"length {formatting.multiple(config.horizon)} · extra {formatting.cost(config.extra_propagation)}",
        f"γ_rst {formatting.number(config.gamma_rst, 3)} · ρ {formatting.number(config.rho, 3)}",
    ]
    if point.error_posterior_sd is not None:
        lines.insert(3, f"posterior {escape(metric.with_unit(point.error_posterior, point.error_posterior_sd))}")
    if point.p_nondominated is not None:
        lines.append(f"P(non-dominated) {formatting.probability(point.p_nondominated)} · {escape(point.verdict)}")
    if point.test_error_mean is not None:
        lines.append(f"test {escape(metric.phrase(point.test_error_mean, point.test_error_sem))}")
    return "<br>".join([line for line in lines if line] + [f"trial {escape(point.trial_key)}"])
