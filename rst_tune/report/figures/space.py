"""Where in the space the good configurations lie: schedules, the map, parallel coordinates, importances."""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from rst_tune.analysis import labels
from rst_tune.analysis.noise import ConfigSummary
from rst_tune.report import words
from rst_tune.report.figures.style import BLUE, GREY, GRID, ORANGE, columns, empty, faintness, figure, rounded

__all__ = ["importances", "landscape", "parallel", "schedule", "schedules", "thinned_indices"]

MOST_SCHEDULES, MOST_COINS, MOST_LINES = 12, 160, 600


def schedules(points: Sequence[ConfigSummary]) -> go.Figure:
    """Draw p(t) of each point of the front, and below it the coins that fell for a sharpness-aware step."""
    drawn = [p for p in sorted(points, key=lambda p: p.extra_propagation) if p.config.get("curve")][:MOST_SCHEDULES]
    if not drawn:
        return empty("No schedule to draw: the record holds no sampled curve of the front's configurations.")
    across = min(3, len(drawn))
    down = math.ceil(len(drawn) / across)
    grid = make_subplots(
        rows=down, cols=across, shared_xaxes=True, shared_yaxes=True, vertical_spacing=0.32 / down,
        horizontal_spacing=0.04, subplot_titles=[words.escaped(labels.describe(p.config)) for p in drawn],
    )  # fmt: skip
    for index, point in enumerate(drawn):
        for trace in _curve_and_coins(point):
            grid.add_trace(trace, row=index // across + 1, col=index % across + 1)
    return _dress(grid, down)


def schedule(point: ConfigSummary) -> go.Figure:
    """Draw p(t) of one configuration with its coins, small enough to stand beside others."""
    fig = figure("", "", height=190, showlegend=False, margin={"l": 30, "r": 8, "t": 8, "b": 24})
    fig.add_traces(_curve_and_coins(point))
    fig.update_xaxes(range=[-0.01, 1.01], tickvals=[0, 0.5, 1], ticktext=["t = 0", "T/2", "T"])
    return fig.update_yaxes(range=[-0.22, 1.08], tickvals=[0, 0.5, 1])


def _dress(grid: go.Figure, down: int) -> go.Figure:
    base = figure("", "", height=90 + 170 * down, showlegend=False)
    grid.update_layout({name: base.layout[name] for name in ("template", "height", "font", "hovermode", "showlegend")})
    grid.update_layout(paper_bgcolor="rgba(0,0,0,0)", plot_bgcolor="rgba(0,0,0,0)")
    grid.update_layout(margin={"l": 48, "r": 16, "t": 36, "b": 40})
    grid.update_xaxes(range=[-0.01, 1.01], gridcolor=GRID, zeroline=False, tickvals=[0, 0.5, 1])
    grid.update_xaxes(title={"text": "t / T"}, row=down)
    grid.update_yaxes(range=[-0.22, 1.08], gridcolor=GRID, zeroline=False, tickvals=[0, 0.5, 1])
    grid.update_yaxes(title={"text": "p(t)"}, col=1)
    return grid.update_annotations(font={"size": 12})


def _curve_and_coins(point: ConfigSummary) -> list[go.Scatter]:
    curve = [float(p) for p in point.config["curve"]]
    coins = _thinned(list(point.config.get("coins") or []), MOST_COINS)
    heads = [place for place, coin in coins if coin]
    line = go.Scatter(
        x=rounded(np.linspace(0, 1, len(curve)).tolist(), 3), y=rounded(curve, 4), mode="lines",
        line={"color": BLUE, "width": 2}, hovertemplate="t/T %{x:.2f}: p = %{y:.3f}<extra></extra>",
    )  # fmt: skip
    rug = go.Scatter(
        x=rounded(heads, 3), y=[-0.12] * len(heads), mode="markers",
        marker={"symbol": "line-ns-open", "size": 9, "color": ORANGE, "line": {"width": 1.2}},
        hovertemplate="a sharpness-aware step<extra></extra>",
    )  # fmt: skip
    return [line, rug]


def _thinned(coins: list[float], most: int) -> list[tuple[float, float]]:
    """Return evenly spaced coins with their place in the training: at most so many, none of them averaged."""
    last = len(coins) - 1
    chosen = np.unique(np.linspace(0, max(last, 0), min(most, len(coins))).round().astype(int)).tolist()
    return [(i / max(1, last), coins[i]) for i in chosen]


def landscape(points: Sequence[ConfigSummary], predict: Callable[[float, float], float] | None = None) -> go.Figure:
    """Draw error as colour over cost and gamma_rst; behind the points, where there is one, a smooth posterior mean."""
    kept = [p for p in points if isinstance(p.config.get("gamma_rst"), int | float)]
    if not kept:
        return empty("No configuration with a gamma_rst was trained to the full horizon yet.")
    fig = figure("extra propagation", "γ_rst = c · γ_gnr", height=440)
    fig.update_xaxes(tickformat=".0%")
    errors = np.array([p.error_mean for p in kept])
    low, high = float(errors.min()), float(np.quantile(errors, 0.9))
    scale = {"colorscale": "Cividis", "cmin": low, "cmax": max(high, low + 1e-6)}
    if predict is not None:
        fig.add_trace(_surface(kept, predict, scale))
    crowd, best = [p for p in kept if not p.on_front], [p for p in kept if p.on_front]
    fig.add_trace(_coloured(crowd, scale, "circle", 8 if len(crowd) < 300 else 5))
    return fig.add_trace(_coloured(best, {**scale, "colorbar": _COLORBAR}, "diamond", 13))


_COLORBAR = {"title": {"text": "error, %", "font": {"size": 13}}, "thickness": 12, "outlinewidth": 0}


def _surface(
    points: Sequence[ConfigSummary], predict: Callable[[float, float], float], scale: Mapping[str, object]
) -> go.Contour:
    costs = np.linspace(*_span([p.extra_propagation for p in points]), 21)
    gammas = np.linspace(*_span([float(p.config["gamma_rst"]) for p in points]), 21)
    return go.Contour(
        x=rounded(costs.tolist()), y=rounded(gammas.tolist()),
        z=[rounded([predict(float(c), float(g)) for c in costs], 4) for g in gammas],
        colorscale=scale["colorscale"], zmin=scale["cmin"], zmax=scale["cmax"], opacity=0.55, showscale=False,
        ncontours=14, line={"width": 0.5}, hoverinfo="skip",
    )  # fmt: skip


def _span(values: Sequence[float]) -> tuple[float, float]:
    return min(values), max(values)


def _coloured(points: Sequence[ConfigSummary], scale: Mapping[str, object], symbol: str, size: int) -> go.Scatter:
    outline = {"width": 0 if size < 8 else 1.5 if size > 8 else 1, "color": ORANGE if size > 8 else GREY}
    return go.Scatter(
        x=rounded(p.extra_propagation for p in points),
        y=columns(points, "gamma_rst"),
        mode="markers",
        showlegend=False,
        marker={
            **scale, "color": rounded([p.error_mean for p in points], 4), "size": size, "symbol": symbol,
            "line": outline, "opacity": 1.0,
        },
        text=[words.escaped(labels.describe(p.config)) for p in points],
        customdata=[p.config_id for p in points],
        hovertemplate="%{text}<br>γ_rst %{y:.3g}: error %{marker.color:.2f} %<extra></extra>",
    )  # fmt: skip


def importances(shares: Mapping[str, float], spreads: Mapping[str, float] | None = None) -> go.Figure:
    """Draw how much of the error's variation each coordinate explains."""
    names = sorted(shares, key=lambda name: shares[name])
    if not names:
        return empty("No importance could be told apart.")
    fig = figure("share of the error's variation", "", height=120 + 32 * len(names))
    bars = {"array": rounded([(spreads or {}).get(name) for name in names])} if spreads else None
    fig.add_bar(
        x=rounded(shares[name] for name in names), y=[words.escaped(name) for name in names], orientation="h",
        marker={"color": BLUE}, error_x=bars, hovertemplate="%{y}: %{x:.1%}<extra></extra>",
    )  # fmt: skip
    return fig.update_xaxes(tickformat=".0%", rangemode="tozero")


def parallel(points: Sequence[ConfigSummary]) -> go.Figure:
    """Draw each configuration as a line over its coordinates, the better third in front; all of it plain SVG."""
    axes = [axis for axis in _axes(points) if len(set(axis[1])) > 1]
    if len(axes) < 2:
        return empty("Parallel coordinates need two configurations that differ.")
    kept = thinned_indices(points)
    fig = figure("", "", height=420)
    for name, share, color, width in _thirds(points, kept):
        fig.add_trace(_lines(axes, share, name, color, width))
    return _axis_labels(fig, axes)


def thinned_indices(points: Sequence[ConfigSummary]) -> list[int]:
    """Return which lines are drawn: all of them, or the front and an even choice by rank of error."""
    order = sorted(range(len(points)), key=lambda i: points[i].error_mean)
    if len(order) <= MOST_LINES:
        return order
    chosen = {order[i] for i in np.linspace(0, len(order) - 1, MOST_LINES).round().astype(int)}
    return [i for i in order if i in chosen or points[i].on_front]


def _axes(points: Sequence[ConfigSummary]) -> list[tuple[str, list[float | str]]]:
    def get(name: str) -> list[float | str]:
        return [p.config.get(name, "–") for p in points]

    return [
        ("family", [str(f) for f in get("family")]), ("rule", [str(r) for r in get("rule")]),
        ("extra propagation", [p.extra_propagation for p in points]), ("γ_rst", get("gamma_rst")),
        ("γ_gnr", get("gamma_gnr")), ("ρ", get("rho")), ("error, %", [p.error_mean for p in points]),
    ]  # fmt: skip


def _thirds(points: Sequence[ConfigSummary], kept: Sequence[int]) -> list[tuple[str, list[int], str, float]]:
    """The lines in the order they are drawn, the front last so that nothing hides it."""
    rest = [i for i in kept if not points[i].on_front]
    cut = max(1, len(rest) // 3)
    return [
        ("the rest", rest[cut:], f"rgba(139,146,156,{faintness(4 * len(rest)):.2f})", 1.0),
        ("best third", rest[:cut], f"rgba(86,180,233,{faintness(len(rest)):.2f})", 1.2),
        ("front", [i for i in kept if points[i].on_front], ORANGE, 2.4),
    ]


def _place(values: Sequence[float | str]) -> list[float]:
    """Put an axis's values between 0 and 1: numbers by size (by logarithm if they span decades), names by rank."""
    if all(isinstance(v, int | float) for v in values):
        numbers = np.array(values, dtype=float)
        if numbers.min() > 0 and numbers.max() > 20 * numbers.min():
            numbers = np.log(numbers)
        places: list[float] = ((numbers - numbers.min()) / (numbers.max() - numbers.min())).tolist()
        return places
    names = sorted({str(v) for v in values})
    return [names.index(str(v)) / max(1, len(names) - 1) for v in values]


def _lines(
    axes: Sequence[tuple[str, list[float | str]]], kept: Sequence[int], name: str, color: str, width: float
) -> go.Scatter:
    places = [_place(values) for _, values in axes]
    xs: list[float | None] = []
    ys: list[float | None] = []
    for i in kept:
        xs += [*range(len(axes)), None]
        ys += [*(round(place[i], 3) for place in places), None]
    style = {"color": color, "width": width}
    return go.Scatter(x=xs, y=ys, mode="lines", line=style, name=f"{name} ({len(kept)})", hoverinfo="skip")


def _axis_labels(fig: go.Figure, axes: Sequence[tuple[str, list[float | str]]]) -> go.Figure:
    """Name the axes and write at their ends what they reach; an axis of names has all of them, left of the line."""
    names = [words.escaped(name) for name, _ in axes]
    fig.update_xaxes(tickvals=list(range(len(axes))), ticktext=names, range=[-0.1, len(axes) - 0.9])
    fig.update_yaxes(visible=False, range=[-0.1, 1.1])
    for column, (_, values) in enumerate(axes):
        marks = sorted({(place, words.plain(v)) for v, place in zip(values, _place(values), strict=True)})
        for place, text in marks if isinstance(values[0], str) else (marks[0], marks[-1]):
            fig.add_annotation(
                x=column, y=place, text=words.escaped(text), showarrow=False, font={"size": 11},
                **({"xanchor": "right", "xshift": -4} if column == 0 else {"yshift": 10 if place > 0.5 else -10}),
            )  # fmt: skip
    return fig.update_layout(margin={"l": 92, "r": 24})
