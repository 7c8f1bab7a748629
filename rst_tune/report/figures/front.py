"""The front: error against cost, with markers that show how strong the evidence for each point is."""

from collections.abc import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go

from rst_tune.analysis.replicates import ConfigSummary
from rst_tune.report import formatting
from rst_tune.report.figures.style import CYCLE, GREEN, GREY, KINDS, crowd_opacity, empty, figure, hover, kind, rounded

__all__ = ["COST", "ERROR", "compare", "front", "visible_range"]

COST, ERROR = "extra propagation (100 %: SAM)", "validation error, %"
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
CROWDS = ("one seed", "dominated")
SHAPES = ("circle", "diamond", "square", "triangle-up", "star", "cross")


def visible_range(points: Sequence[ConfigSummary]) -> tuple[float, float] | None:
    """Return the range of errors to show: the whole front, and all other points but far outliers."""
    errors = np.array([p.error_mean for p in points])
    if not len(errors):
        return None
    low, mid, high = np.quantile(errors, [0.0, 0.5, 0.75])
    wanted = [high + 1.5 * (high - mid)] + [p.error_mean + (p.error_sem or 0.0) for p in points if p.on_front]
    top = min(float(errors.max()), max(wanted))
    margin = 0.06 * (top - float(low)) or 0.5
    spread = max([p.error_sem or 0.0 for p in points if p.on_front] or [0.0])
    return max(float(low) - margin - spread, 0.0), top + margin  # no error is below 0


def front(
    points: Sequence[ConfigSummary],
    recommended: ConfigSummary | None = None,
    named: Mapping[str, ConfigSummary] | None = None,
) -> go.Figure:
    """Draw every configuration that was trained to the end; the front is joined and has error bars.

    The names of the `named` configurations, such as the baselines, are written beside them.
    """
    if not points:
        return empty("No configuration was trained to the full horizon yet.")
    fig = figure(COST, ERROR, height=520)
    _set_cost_axis(fig, points)
    fig.update_yaxes(range=visible_range(points))
    fig.update_layout(legend={"traceorder": "reversed"})
    groups = {name: [p for p in points if kind(p) == name] for name in list(KINDS)[::-1]}
    drawn = {name: _markers(name, group) for name, group in groups.items() if group}
    fig.add_traces([trace for name, trace in drawn.items() if name in CROWDS])
    fig.add_trace(_staircase([p for p in points if p.on_front], GREY, "solid"))
    if recommended is not None:
        fig.add_trace(_ring(recommended))
    fig.add_traces([trace for name, trace in drawn.items() if name not in CROWDS])
    for name, point in (named or {}).items():
        _write_name(fig, name, point)
    return fig


def _set_cost_axis(fig: go.Figure, points: Sequence[ConfigSummary]) -> None:
    """Set the range from the base optimizer to SAM, or to the highest cost, with a margin for the markers."""
    highest = max([1.0, *(p.extra_propagation for p in points)])
    fig.update_xaxes(tickformat=".0%", range=[-0.03 * highest, 1.04 * highest])


def _write_name(fig: go.Figure, name: str, point: ConfigSummary) -> None:
    """Write a name below a point; at low costs, where the line starts, above it and to the right."""
    low = point.extra_propagation < 0.5
    shift = {"xanchor": "left", "xshift": 7, "yshift": 14} if low else {"xanchor": "center", "yshift": -19}
    place = {"x": point.extra_propagation, "y": point.error_mean}
    fig.add_annotation(text=formatting.escape_html(name), showarrow=False, **place, **shift)


def _ring(point: ConfigSummary) -> go.Scatter:
    style = {"symbol": "circle-open", "size": 24, "color": GREEN, "line": {"width": 3}}
    place = {"x": [point.extra_propagation], "y": [point.error_mean]}
    return go.Scatter(**place, mode="markers", name="recommended", marker=style, hoverinfo="skip")


def _staircase(points: Sequence[ConfigSummary], color: str, dash: str) -> go.Scatter:
    """Join a front by steps: the error at a cost is that of the best point which costs no more.

    The line is at the posterior means, which define the front; the markers are at the measured means.
    """
    ordered = sorted(points, key=lambda p: p.extra_propagation)
    return go.Scatter(
        x=rounded(p.extra_propagation for p in ordered),
        y=rounded(p.error_posterior for p in ordered),
        mode="lines",
        line={"shape": "hv", "color": color, "width": 1.5, "dash": dash},
        hoverinfo="skip",
        showlegend=False,
    )


def _markers(name: str, points: Sequence[ConfigSummary]) -> go.Scatter:
    color, symbol, size = KINDS[name]
    crowd = name in CROWDS
    opacity = crowd_opacity(len(points)) if crowd else 1.0
    line = {"width": 1.5, "color": color}
    return go.Scatter(
        x=rounded(p.extra_propagation for p in points),
        y=rounded(p.error_mean for p in points),
        error_y=None if crowd else _error_bars(points, color),
        mode="markers",
        name=f"{name} ({len(points)})",
        marker={"symbol": symbol, "size": size, "color": color, "opacity": opacity, "line": line},
        text=[_short_hover(p) if crowd else hover(p) for p in points],
        customdata=[p.config_id for p in points],
        hovertemplate="%{text}<extra></extra>",
    )


def _error_bars(points: Sequence[ConfigSummary], color: str) -> dict[str, object] | None:
    """Return bars of one standard error. Plotly draws a missing one as 0, so its caps are left out."""
    sems = [p.error_sem for p in points]
    if not any(sems):
        return None
    return {"array": rounded(sems), "color": color, "thickness": 1.5, "width": 4 if all(sems) else 0}


def _short_hover(point: ConfigSummary) -> str:
    """Return a hover text of two lines: of dominated configurations there may be thousands."""
    return hover(point).split("<br>", 1)[0] + f"<br>error {formatting.error(point.error_mean, point.error_sem)} %"


def compare(fronts: Mapping[str, Sequence[ConfigSummary]]) -> go.Figure:
    """Draw the fronts of several searches in one figure; each has its own colour, dash and shape."""
    if not any(fronts.values()):
        return empty("None of these searches has a front yet.")
    fig = figure(COST, ERROR, height=520)
    _set_cost_axis(fig, [p for points in fronts.values() for p in points])
    for index, (name, points) in enumerate(fronts.items()):
        color, dash, shape = (cycle[index % 6] for cycle in (CYCLE, DASHES, SHAPES))
        look = {"color": color, "symbol": shape, "size": 10, "line": {"color": color}}
        fig.add_trace(_staircase(points, color, dash))
        trace = _markers("confirmed", points) if points else go.Scatter(x=[], y=[])
        fig.add_trace(trace.update(name=formatting.escape_html(name), marker=look, error_y=_error_bars(points, color)))
    return fig
