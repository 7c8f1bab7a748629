"""The front: error against cost, with markers that show how strong the evidence for each point is.

At one length the cost is extra propagation, as in the paper. Where lengths differ it is compute, on a logarithmic axis,
and the base optimizer's own curve shows what a longer or shorter plain training gives.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

import numpy as np
import plotly.graph_objects as go

from rst_tune.analysis import labels
from rst_tune.analysis.baselines import Baselines
from rst_tune.analysis.replicates import ConfigSummary
from rst_tune.records import PERCENT_ERROR, Metric
from rst_tune.report import formatting
from rst_tune.report.cost_axis import CostAxis
from rst_tune.report.figures import style
from rst_tune.report.figures.style import empty, figure, hover, rounded

MAX_TICKS = 8
SHAPES = ("circle", "diamond", "square", "triangle-up", "star", "cross")


def visible_range(points: Sequence[ConfigSummary]) -> tuple[float, float] | None:
    """Return the range of errors to show: the whole front, and all other points but far outliers.

    The base optimizer at the recipe's length is shown, too, unless it would compress the rest to less than a third.
    """
    errors = np.array([p.error_mean for p in points])
    if not len(errors):
        return None
    low, mid, high = map(float, np.quantile(errors, [0.0, 0.5, 0.75]))
    top = max([high + 1.5 * (high - mid), *(p.error_mean + (p.error_sem or 0.0) for p in points if p.on_front)])
    recipe = max((p.error_mean + (p.error_sem or 0.0) for p in points if p.config.is_recipe), default=0.0)
    top = min(float(errors.max()), max(top, recipe if recipe <= low + 3 * (top - low) else 0.0))
    margin = 0.06 * (top - low) or 0.5
    spread = max([p.error_sem or 0.0 for p in points if p.on_front] or [0.0])
    return max(low - margin - spread, 0.0), top + margin  # no error is below 0


def front(
    points: Sequence[ConfigSummary],
    recommended: ConfigSummary | None = None,
    named: Mapping[str, ConfigSummary] | None = None,
    metric: Metric = PERCENT_ERROR,
) -> go.Figure:
    """Draw every configuration that was trained to the end: the front strong, joined and with error bars, the
    candidates faint, in one trace.

    The names of the `named` configurations, such as the baselines, are written beside them. Where lengths differ,
    the base optimizer and SAM are drawn as curves.
    """
    if not points:
        return empty("No configuration was trained to the full horizon yet.")
    axis = CostAxis.of(points)
    fig = figure(axis.title, formatting.escape_html(metric.label), height=460)
    set_cost_axis(fig, axis, [p.compute for p in points])
    fig.update_yaxes(range=sorted(map(metric.value, visible_range(points) or ())))
    fig.update_layout(legend={"traceorder": "reversed"})
    candidates, delivered = ([p for p in points if p.on_front is member] for member in (False, True))
    if candidates:
        fig.add_trace(_markers(axis, style.CANDIDATE, candidates, metric))
    if axis.lengths_differ:
        fig.add_traces(_baselines(axis, points, metric))
    fig.add_trace(_staircase(axis, delivered, style.GREY, "solid", metric))
    if recommended is not None:
        fig.add_trace(_ring(axis, recommended, metric))
    groups = {name: [p for p in delivered if p.verdict == name] for name in list(style.KINDS)[::-1]}
    fig.add_traces([_markers(axis, name, group, metric) for name, group in groups.items() if group])
    for name, point in (named or {}).items():
        _write_name(fig, axis, name, point, points, metric)
    return fig


def set_cost_axis(fig: go.Figure, axis: CostAxis, computes: Iterable[float]) -> go.Figure:
    """Set scale, ticks and range of the horizontal axis, with a margin for the markers.

    Extra propagation ranges from the base optimizer to SAM or beyond, compute over the given values.
    """
    values = [axis.value(compute) for compute in computes if 0 < compute < math.inf] or [1.0]
    if not axis.lengths_differ:
        highest = max([1.0, *values])
        return fig.update_xaxes(tickformat=".0%", range=[-0.03 * highest, 1.04 * highest])
    low, high = math.log2(min(values)), math.log2(max(values))
    margin = 0.04 * (high - low) or 0.5
    ticks = _octave_ticks(low - margin, high + margin)
    return fig.update_xaxes(
        type="log", range=[math.log10(2) * end for end in (low - margin, high + margin)], tickmode="array",
        tickvals=ticks, ticktext=[formatting.multiple(tick) for tick in ticks],
    )  # fmt: skip


def _octave_ticks(low: float, high: float) -> list[float]:
    """Return at most `MAX_TICKS` or so values between two logarithms to base 2: powers of 2, or finer ones.

    >>> _octave_ticks(-2.8, 1.3), _octave_ticks(0.1, 0.9)
    ([0.25, 0.5, 1.0, 2.0], [1.25, 1.5, 1.75])
    """
    for parts in (1, 2, 4, 16):
        stride = max(1, round((high - low) / MAX_TICKS)) if parts == 1 else 1
        octaves = range(math.floor(low), math.ceil(high) + 1, stride)
        ticks = [2.0**octave * (1 + part / parts) for octave in octaves for part in range(parts)]
        ticks = [tick for tick in ticks if low <= math.log2(tick) <= high]
        if len(ticks) >= 3:
            break
    return ticks


def _write_name(
    fig: go.Figure, axis: CostAxis, name: str, point: ConfigSummary, points: Sequence[ConfigSummary], metric: Metric
) -> None:
    """Write a name beside a point, where it covers neither the curve of the base optimizer nor the figure's edge."""
    side = {"xanchor": "left", "xshift": 7, "yshift": -14 if _rises_after(point, points, metric) else 14}
    if point.compute == max(p.compute for p in points):
        side = {"xanchor": "right", "xshift": -9, "yshift": 0} if axis.lengths_differ else {"yshift": -19}
    place = {"x": axis.position(point.compute), "y": metric.value(point.error_mean)}
    fig.add_annotation(text=formatting.escape_html(name), showarrow=False, **place, **side)


def _rises_after(point: ConfigSummary, points: Sequence[ConfigSummary], metric: Metric) -> bool:
    """Return whether the base optimizer's curve, as it is drawn, rises to the right of a point of it."""
    later = next((p for p in _base_curve(points) if p.compute > point.compute), None)
    if later is None or not point.config.is_base:
        return False
    return metric.value(later.error_mean) > metric.value(point.error_mean)


def _base_curve(points: Sequence[ConfigSummary]) -> Sequence[ConfigSummary]:
    return Baselines(rows=tuple(points), surrogate=None).curve


def _baselines(axis: CostAxis, points: Sequence[ConfigSummary], metric: Metric) -> list[go.Scatter]:
    """Return the base optimizer and SAM as curves over the length, SAM with one line per radius."""
    found = [p for p in points if labels.method_name(p.config) == "SAM"]
    sam = sorted(found, key=lambda p: (p.config.rho, p.config.horizon))
    lines: list[Sequence[ConfigSummary]] = [list(line) for _, line in groupby(sam, key=lambda p: p.config.rho)]
    curves = [_curve(axis, "SAM", lines, style.SKY, "triangle-up", "dot", metric)] if lines else []
    if base := _base_curve(points):
        curves.append(_curve(axis, "base optimizer", [base], style.RED, "triangle-down", "dash", metric))
    return curves


def _curve(
    axis: CostAxis,
    name: str,
    lines: Iterable[Sequence[ConfigSummary]],
    color: str,
    symbol: str,
    dash: str,
    metric: Metric,
) -> go.Scatter:
    """Join the measured means of each line; a gap separates two lines."""
    rows = [point for line in lines for point in (*line, None)][:-1]
    return go.Scatter(
        x=rounded(axis.value(p.compute) if p else None for p in rows),
        y=rounded(metric.value(p.error_mean) if p else None for p in rows),
        error_y=_error_bars(rows, color),
        mode="lines+markers",
        name=name,
        line={"color": color, "width": 2, "dash": dash},
        marker={"symbol": symbol, "size": 9, "color": color},
        hoverinfo="skip",
    )


def _ring(axis: CostAxis, point: ConfigSummary, metric: Metric) -> go.Scatter:
    look = {"symbol": "circle-open", "size": 24, "color": style.GREEN, "line": {"width": 3}}
    place = {"x": rounded([axis.value(point.compute)]), "y": [metric.value(point.error_mean)]}
    return go.Scatter(**place, mode="markers", name="recommended", marker=look, hoverinfo="skip")


def _staircase(axis: CostAxis, points: Sequence[ConfigSummary], color: str, dash: str, metric: Metric) -> go.Scatter:
    """Join a front by steps: the error at a cost is that of the best point which costs no more.

    The line is at the posterior means, which define the front; the markers are at the measured means.
    """
    ordered = sorted(points, key=lambda p: p.compute)
    return go.Scatter(
        x=rounded(axis.value(p.compute) for p in ordered),
        y=rounded(metric.value(p.error_posterior) for p in ordered),
        mode="lines",
        line={"shape": "hv", "color": color, "width": 1.5, "dash": dash},
        hoverinfo="skip",
        showlegend=False,
    )


def _markers(axis: CostAxis, name: str, points: Sequence[ConfigSummary], metric: Metric) -> go.Scatter:
    color, symbol, size = style.KINDS[name]
    crowd = name == style.CANDIDATE
    look = {"symbol": symbol, "size": size, "color": color, "line": {"width": 1.5, "color": color}}
    return go.Scatter(
        x=rounded(axis.value(p.compute) for p in points),
        y=rounded(metric.value(p.error_mean) for p in points),
        error_y=None if crowd else _error_bars(points, color),
        mode="markers",
        name=f"{name} ({len(points)})",
        marker={**look, "opacity": style.crowd_opacity(len(points)) if crowd else 1.0},
        text=[_short_hover(p, metric) if crowd else hover(p, metric) for p in points],
        customdata=[p.config_id for p in points],
        hovertemplate="%{text}<extra></extra>",
    )


def _error_bars(points: Sequence[ConfigSummary | None], color: str) -> dict[str, object] | None:
    """Return bars of one standard error. Plotly draws a missing one as 0, so its caps are left out."""
    sems = [p.error_sem if p else None for p in points]
    if not any(sems):
        return None
    return {"array": rounded(sems), "color": color, "thickness": 1.5, "width": 4 if all(sems) else 0}


def _short_hover(point: ConfigSummary, metric: Metric) -> str:
    """Return a hover text of two lines: of candidates there may be thousands."""
    value = formatting.escape_html(metric.phrase(point.error_mean, point.error_sem))
    return f"{hover(point, metric).split('<br>', 1)[0]}<br>{value}"


def compare(fronts: Mapping[str, Sequence[ConfigSummary]], metric: Metric = PERCENT_ERROR) -> go.Figure:
    """Draw the fronts of several searches in one figure; each has its own colour, dash and shape."""
    if not any(fronts.values()):
        return empty("None of these searches has a front yet.")
    everything = [p for points in fronts.values() for p in points]
    axis = CostAxis.of(everything)
    fig = figure(axis.title, formatting.escape_html(metric.label), height=520)
    set_cost_axis(fig, axis, [p.compute for p in everything])
    for index, (name, points) in enumerate(fronts.items()):
        color, dash, shape = (cycle[index % 6] for cycle in (style.CYCLE, style.DASHES, SHAPES))
        look = {"color": color, "symbol": shape, "size": 10, "line": {"color": color}}
        fig.add_trace(_staircase(axis, points, color, dash, metric))
        trace = _markers(axis, "confirmed", points, metric) if points else go.Scatter(x=[], y=[])
        fig.add_trace(trace.update(name=formatting.escape_html(name), marker=look, error_y=_error_bars(points, color)))
    return fig
