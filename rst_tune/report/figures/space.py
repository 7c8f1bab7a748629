"""The searched space: schedules, the map of the error, importances, parallel coordinates."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from rst_tune.analysis import labels
from rst_tune.analysis.replicates import ConfigSummary
from rst_tune.records import PERCENT_ERROR, Metric
from rst_tune.report import formatting
from rst_tune.report.cost_axis import CostAxis
from rst_tune.report.figures.front import set_cost_axis
from rst_tune.report.figures.style import BLUE, GREY, NO_LEGEND, ORANGE, crowd_opacity, empty, figure, rounded

Array = NDArray[np.float64]
Surface = tuple[Array, Array, Array]
"""Values of compute, values of gamma_rst, and errors with one row per gamma."""
MAX_COINS, MAX_LINES = 160, 600


def schedule(point: ConfigSummary) -> go.Figure:
    """Draw p(t) of one configuration, and below it a mark per sharpness-aware step; the figure is small."""
    fig = figure("", "", height=190, showlegend=False, margin={"l": 30, "r": 8, "t": 8, "b": 24})
    curve, coins = point.preview.curve, point.preview.coins
    last = max(1, len(coins) - 1)
    heads = [i / last for i in _evenly(len(coins), MAX_COINS) if coins[i]]
    fig.add_scatter(
        x=rounded(np.linspace(0, 1, len(curve)).tolist(), 3), y=rounded(curve, 4), mode="lines",
        line={"color": BLUE, "width": 2}, hovertemplate="t/T %{x:.2f}: p = %{y:.3f}<extra></extra>",
    )  # fmt: skip
    fig.add_scatter(
        x=rounded(heads, 3), y=[-0.12] * len(heads), mode="markers",
        marker={"symbol": "line-ns-open", "size": 9, "color": ORANGE, "line": {"width": 1.2}},
        hovertemplate="a sharpness-aware step<extra></extra>",
    )  # fmt: skip
    fig.update_xaxes(range=[-0.01, 1.01], tickvals=[0, 0.5, 1], ticktext=["t = 0", "T/2", "T"])
    return fig.update_yaxes(range=[-0.22, 1.08], tickvals=[0, 0.5, 1])


def _evenly(count: int, limit: int) -> list[int]:
    """Return at most `limit` evenly spaced indices, both ends included."""
    indices: list[int] = np.unique(np.linspace(0, max(count - 1, 0), min(limit, count)).round().astype(int)).tolist()
    return indices


def landscape(
    points: Sequence[ConfigSummary], surface: Surface | None = None, metric: Metric = PERCENT_ERROR
) -> go.Figure:
    """Draw the error as colour over cost and gamma_rst; `surface` is drawn as a shade behind the points."""
    kept = [p for p in points if math.isfinite(p.config.gamma_rst)]
    if not kept:
        return empty("No configuration was trained to the full horizon yet.")
    axis = CostAxis.of(kept)
    fig = figure(axis.title, "γ_rst = mean p(t) · γ_gnr", height=400, margin=NO_LEGEND)
    set_cost_axis(fig, axis, [p.compute for p in kept])
    errors = np.array([p.error_mean for p in kept])
    low, high = float(errors.min()), float(np.quantile(errors, 0.9))
    ends = sorted(map(metric.value, (low, max(high, low * (1 + 1e-6)))))
    scale = {"colorscale": "Cividis_r" if metric.higher_is_better else "Cividis", "cmin": ends[0], "cmax": ends[1]}
    if surface is not None:
        fig.add_trace(_shade(axis, surface, scale, metric))
    crowd, best = [p for p in kept if not p.on_front], [p for p in kept if p.on_front]
    crowded = len(crowd) >= 300
    thin, thick = {"width": 0 if crowded else 1, "color": GREY}, {"width": 1.5, "color": ORANGE}
    title = {"text": formatting.escape_html(metric.title), "font": {"size": 13}}
    bar = {"colorbar": {"title": title, "thickness": 12, "outlinewidth": 0}}
    look = {**scale, "symbol": "circle", "size": 5 if crowded else 8, "line": thin}
    strong = {**scale, "symbol": "diamond", "size": 13, "line": thick, **bar}
    return fig.add_traces([_coloured(axis, crowd, look, metric), _coloured(axis, best, strong, metric)])


def _shade(axis: CostAxis, surface: Surface, scale: Mapping[str, object], metric: Metric) -> go.Contour:
    computes, gammas, errors = surface
    return go.Contour(
        x=rounded(axis.value(compute) for compute in computes.tolist()), y=rounded(gammas.tolist()),
        z=[rounded(map(metric.value, row), 4) for row in errors.tolist()],
        colorscale=scale["colorscale"], zmin=scale["cmin"], zmax=scale["cmax"], opacity=0.55, showscale=False,
        ncontours=14, line={"width": 0.5}, hoverinfo="skip",
    )  # fmt: skip


def _coloured(
    axis: CostAxis, points: Sequence[ConfigSummary], marker: Mapping[str, object], metric: Metric
) -> go.Scatter:
    texts = [f"{labels.describe(p.config)}: {metric.phrase(p.error_mean, p.error_sem)}" for p in points]
    return go.Scatter(
        x=rounded(axis.value(p.compute) for p in points),
        y=rounded(p.config.gamma_rst for p in points),
        mode="markers",
        showlegend=False,
        marker={**marker, "color": rounded([metric.value(p.error_mean) for p in points], 4), "opacity": 1.0},
        text=[formatting.escape_html(text) for text in texts],
        customdata=[p.config_id for p in points],
        hovertemplate="%{text}<br>γ_rst %{y:.3g}<extra></extra>",
    )


def importances(shares: Mapping[str, float]) -> go.Figure:
    """Draw the share of the error's variance that each parameter explains."""
    names = sorted(shares, key=lambda name: shares[name])
    if not names:
        return empty("No importances could be estimated.")
    fig = figure("share of the variance", "", height=max(190, 90 + 32 * len(names)), margin=NO_LEGEND)
    fig.add_bar(
        x=rounded(shares[name] for name in names), y=[formatting.escape_html(name) for name in names], orientation="h",
        marker={"color": BLUE}, hovertemplate="%{y}: %{x:.1%}<extra></extra>",
    )  # fmt: skip
    return fig.update_xaxes(tickformat=".0%", rangemode="tozero")


Axes = Mapping[str, Sequence[float | str]]


def parallel(points: Sequence[ConfigSummary], metric: Metric = PERCENT_ERROR) -> go.Figure:
    """Draw each configuration as a line over the parameters that differ, in plain SVG; the front is on top."""
    axes = {name: values for name, values in _axes(points, metric).items() if len(set(values)) > 1}
    if len(axes) < 2:
        return empty("Parallel coordinates need two configurations that differ.")
    fig = figure("", "", height=420)
    kept = thinned_indices(points)
    rest, front = ([i for i in kept if points[i].on_front is member] for member in (False, True))
    cut = max(1, len(rest) // 3)
    fig.add_trace(_lines(axes, rest[cut:], "the rest", f"rgba(139,146,156,{crowd_opacity(4 * len(rest)):.2f})", 1.0))
    fig.add_trace(_lines(axes, rest[:cut], "best third", f"rgba(86,180,233,{crowd_opacity(len(rest)):.2f})", 1.2))
    fig.add_trace(_lines(axes, front, "front", ORANGE, 2.4))
    return _label_axes(fig, axes)


def thinned_indices(points: Sequence[ConfigSummary]) -> list[int]:
    """Return the indices of the lines to draw by rank of error: all, or the front and an even choice."""
    order = sorted(range(len(points)), key=lambda i: points[i].error_mean)
    chosen = {order[i] for i in _evenly(len(order), MAX_LINES)}
    return [i for i in order if i in chosen or points[i].on_front]


def _axes(points: Sequence[ConfigSummary], metric: Metric) -> Axes:
    configs, axis = [p.config for p in points], CostAxis.of(points)
    return {
        "family": [c.family for c in configs],
        "rule": [c.rule for c in configs],
        "policy": [c.policy for c in configs],
        "horizon": [c.horizon for c in configs],
        "extra propagation": [p.extra_propagation for p in points],
        "γ_rst": [c.gamma_rst for c in configs],
        "γ_gnr": [c.gamma_gnr for c in configs],
        "ρ": [c.rho for c in configs],
        **({axis.noun: [p.compute for p in points]} if axis.noun != "extra propagation" else {}),
        metric.title: [metric.value(p.error_mean) for p in points],
    }


def _positions(values: Sequence[float | str]) -> list[float]:
    """Return the values of one axis scaled to 0 … 1: numbers by size (by logarithm over decades), names by rank."""
    if not all(isinstance(v, int | float) for v in values):
        names = sorted({str(v) for v in values})
        return [names.index(str(v)) / max(1, len(names) - 1) for v in values]
    numbers = np.array(values, dtype=float)
    numbers[~np.isfinite(numbers)] = np.nan
    low, high = np.nanmin(numbers), np.nanmax(numbers)
    if low > 0 and high > 20 * low:
        numbers, low, high = np.log(numbers), np.log(low), np.log(high)
    positions: list[float] = ((numbers - low) / ((high - low) or 1.0)).tolist()
    return positions


def _lines(axes: Axes, kept: Sequence[int], name: str, color: str, width: float) -> go.Scatter:
    positions = [_positions(values) for values in axes.values()]
    xs: list[float | None] = []
    ys: list[float | None] = []
    for i in kept:
        xs += [*range(len(axes)), None]
        ys += [*(round(position[i], 3) if math.isfinite(position[i]) else None for position in positions), None]
    style = {"color": color, "width": width}
    return go.Scatter(x=xs, y=ys, mode="lines", line=style, name=f"{name} ({len(kept)})", hoverinfo="skip")


def _label_axes(fig: go.Figure, axes: Axes) -> go.Figure:
    """Write the name of each axis, the ends of a numeric one and every value of a categorical one."""
    names = [formatting.escape_html(name) for name in axes]
    fig.update_xaxes(tickvals=list(range(len(axes))), ticktext=names, range=[-0.1, len(axes) - 0.9])
    fig.update_yaxes(visible=False, range=[-0.1, 1.1])
    for column, values in enumerate(axes.values()):
        places = zip(_positions(values), values, strict=True)
        marks = sorted({(place, formatting.format_value(v)) for place, v in places if math.isfinite(place)})
        for place, text in marks if isinstance(values[0], str) else (marks[0], marks[-1]):
            fig.add_annotation(
                x=column, y=place, text=formatting.escape_html(text), showarrow=False, font={"size": 11},
                **({"xanchor": "right", "xshift": -4} if column == 0 else {"yshift": 10 if place > 0.5 else -10}),
            )  # fmt: skip
    return fig.update_layout(margin={"l": 92, "r": 24})
