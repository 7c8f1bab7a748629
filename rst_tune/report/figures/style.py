"""The look every figure shares.

Colours are Okabe and Ito's, the blue lighter for dark pages; no two kinds of point differ by colour alone.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from rst_tune.analysis import labels
from rst_tune.analysis.noise import ConfigSummary
from rst_tune.report import words

__all__ = ["CYCLE", "INK", "KINDS", "STATUS", "empty", "faintness", "figure", "hover", "kind", "rounded"]

INK, GRID = "#30363d", "#d8dce2"
BLUE, ORANGE, GREEN, RED, SKY, PURPLE, GREY = (
    "#1a80c4", "#e69f00", "#009e73", "#d55e00", "#56b4e9", "#cc79a7", "#8b929c",
)  # fmt: skip
CYCLE = (BLUE, ORANGE, GREEN, PURPLE, RED, SKY)
# What is known of a point, from the surest to the least: its colour, its shape and its size.
KINDS: Mapping[str, tuple[str, str, int]] = {
    "confirmed": (BLUE, "circle", 12),
    "uncertain": (ORANGE, "diamond-open", 11),
    "one seed, on the front": (PURPLE, "square-open", 10),
    "one seed": (GREY, "square", 5),
    "dominated": (GREY, "x-thin-open", 6),
}
STATUS = {"complete": BLUE, "stopped": SKY, "running": GREEN, "diverged": RED, "failed": ORANGE, "waiting": GREY}


def figure(x: str, y: str, height: int = 420, **layout: Any) -> go.Figure:
    """Return an empty figure with titled axes, readable on white and, after the page's recolouring, on dark."""
    axis = {"gridcolor": GRID, "zeroline": False, "linecolor": GRID, "automargin": True, "ticks": ""}
    small = {"size": 13}
    font = {"family": "system-ui, -apple-system, Segoe UI, Roboto, Helvetica, Arial, sans-serif", "size": 13}
    fig = go.Figure()
    fig.update_layout(
        template="none", height=height, margin={"l": 52, "r": 12, "t": 44, "b": 48}, font={**font, "color": INK},
        paper_bgcolor="rgba(0,0,0,0)", plot_bgcolor="rgba(0,0,0,0)", hovermode="closest",
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0}, hoverlabel={"align": "left"},
        xaxis={**axis, "title": {"text": x, "font": small}}, yaxis={**axis, "title": {"text": y, "font": small}},
    )  # fmt: skip
    return fig.update_layout(**layout)


def empty(why: str) -> go.Figure:
    """Return a figure that says why there is nothing to see; a page reads the reason from its `meta`."""
    fig = figure("", "", height=160, meta={"missing": why})
    fig.update_xaxes(visible=False)
    fig.update_yaxes(visible=False)
    return fig.add_annotation(text=words.escaped(why), showarrow=False, font={"size": 14})


def rounded(values: Iterable[float | None], digits: int = 5) -> list[float | None]:
    """Return values short enough for a file of thousands; what is not finite becomes a gap.

    >>> rounded([0.123456789, None, float("nan")])
    [0.12346, None, None]
    """
    return [float(f"{v:.{digits}g}") if v is not None and math.isfinite(v) else None for v in values]


def faintness(count: int) -> float:
    """Return the opacity of one point in a crowd of so many: thousands of them shade, and hide nothing.

    >>> faintness(10), faintness(2500)
    (0.6, 0.24)
    """
    return max(0.15, min(0.6, 12 / math.sqrt(max(1, count))))


def kind(point: ConfigSummary) -> str:
    """Return which of `KINDS` a configuration is drawn as: a lone run beside the front is no more than that."""
    if point.verdict == "single seed":
        return "one seed, on the front" if point.on_front else "one seed"
    return point.verdict


def hover(point: ConfigSummary) -> str:
    """Return what a pointer on a configuration shows. Names are escaped: Plotly reads a subset of HTML."""
    config = point.config
    seeds = f"{point.seeds} seed{'s' if point.seeds != 1 else ''}"
    lines = [
        f"<b>{words.escaped(labels.describe(config))}</b>",
        words.escaped(words.parameters(config.get("schedule", {}))),
        f"error {words.error(point.error_mean, point.error_sem)} % ({seeds})",
        words.expected(point.error_expected, point.error_expected_sd),
        f"γ_rst {words.number(config.get('gamma_rst'), 3)} · ρ {words.number(config.get('rho'), 3)}",
    ]
    if point.p_nondominated is not None:
        lines.append(f"P(non-dominated) {words.probability(point.p_nondominated)} · {point.verdict}")
    if point.test_error_mean is not None:
        lines.append(f"test error {words.error(point.test_error_mean, point.test_error_sem)} %")
    return "<br>".join([line for line in lines if line] + [f"run {words.escaped(point.run_id)}"])


def columns(points: Sequence[ConfigSummary], name: str) -> list[float | None]:
    """Return one number a configuration, None where the record has none."""
    values = [p.config.get(name) for p in points]
    return rounded([float(v) if isinstance(v, int | float) else None for v in values])
