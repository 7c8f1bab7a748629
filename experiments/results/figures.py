"""The figures of the result page: functions from summaries to Plotly figures."""

from collections.abc import Sequence
from statistics import fmean
from typing import Any

import numpy as np
import plotly.graph_objects as go
from claims import Rows, by_seed, find, grid_of, sam, sgd
from plotly.subplots import make_subplots

from rst_tune.analysis.replicates import ConfigSummary
from rst_tune.records import Search
from rst_tune.report.figures import style
from rst_tune.report.figures.style import BLUE, GREEN, GREY, INK, ORANGE, PURPLE, RED, SKY

__all__ = ["GROUPS", "cifar10", "gamma_map", "group_of", "groups", "members", "summary", "times"]

# The paper's groups: colour, symbol, and what their figure has on its x axis.
GROUPS: dict[str, tuple[str, str, str]] = {
    "constant": (BLUE, "circle", "Δη"),
    "piecewise 1: SGD, then SAM": (GREEN, "triangle-up", "Δη"),
    "piecewise 2: SAM, then SGD": (RED, "triangle-down", "Δη"),
    "piecewise 3: a, then 1 − a": (ORANGE, "diamond", "a"),
    "linear 1: rising": (SKY, "square", "Δη"),
    "linear 2: through ½": (PURPLE, "cross", "b"),
    "trigonometric": (INK, "star", "Δη"),
}
SMALL = {"size": 13}
BARS = {"thickness": 1.2, "width": 3}
BASELINES = {"SGD": (GREY, "dash"), "SAM": (INK, "dot")}
CIFAR = ("SGD", "SAM", "RST 0.5", "RST 0.8", "G-RST 0.5, γ 2", "SAM late", "SAM early")


def group_of(row: ConfigSummary) -> str | None:
    """Return the paper's group of a schedule; None for SGD and SAM."""
    schedule = row.config.schedule
    match schedule["family"]:
        case "constant":
            return "constant" if 0 < schedule["p"] < 1 else None
        case "piecewise":
            names = [name for name in GROUPS if name.startswith("piecewise")]
            return names[0] if schedule["a"] == 0 else names[1] if schedule["a"] == 1 else names[2]
        case "linear_group1":
            return "linear 1: rising"
        case "linear_group2":
            return "linear 2: through ½"
    return "trigonometric"


def members(name: str, rows: Rows) -> list[ConfigSummary]:
    """Return the schedules of a group."""
    return [row for row in rows if group_of(row) == name]


def _place(row: ConfigSummary, axis: str) -> float:
    return row.extra_propagation if axis == "Δη" else float(row.config.schedule[axis])


def _sems(rows: Rows) -> dict[str, Any]:
    return {"type": "data", "array": style.rounded([row.error_sem for row in rows]), **BARS}


def _points(rows: Rows, xs: Sequence[float], name: str, color: str, symbol: str, **more: Any) -> go.Scatter:
    return go.Scatter(
        x=xs, y=style.rounded([row.error_mean for row in rows]), error_y=_sems(rows), name=name,
        mode=more.pop("mode", "lines+markers"), line={"color": color, "width": 1.6},
        marker={"color": color, "symbol": symbol, "size": more.pop("size", 9)}, **more,
    )  # fmt: skip


def groups(rows: Rows) -> go.Figure:
    """Draw each group of the paper in its own panel: error with its standard error, SGD and SAM as lines."""
    titles = [f"<b>{name}</b>" for name in GROUPS]
    grid = make_subplots(
        rows=2, cols=4, subplot_titles=titles, shared_yaxes=True, vertical_spacing=0.19, horizontal_spacing=0.025
    )
    for index, (name, (color, symbol, axis)) in enumerate(GROUPS.items()):
        own = sorted(members(name, rows), key=lambda r: _place(r, axis))
        where = {"row": index // 4 + 1, "col": index % 4 + 1}
        trig = name == "trigonometric"
        sides = ["middle left" if "1" in r.config.schedule["family"] else "middle right" for r in own]
        more = {"mode": "markers+text", "textposition": sides, "textfont": {"size": 10}} if trig else {}
        text = [r.config.schedule["family"] for r in own] if trig else None
        xs = [_place(r, axis) for r in own]
        grid.add_trace(_points(own, xs, name, color, symbol, showlegend=False, text=text, size=7, **more), **where)
        grid.update_xaxes(
            title={"text": axis, "standoff": 4, "font": SMALL},
            range=[0.03, 0.97],
            tickvals=[0.1, 0.3, 0.5, 0.7, 0.9],
            **where,
        )
        _baseline_lines(grid, rows, first=index == 0, **where)
    return _dressed(grid, rows)


def _baseline_lines(grid: go.Figure, rows: Rows, *, first: bool, **where: int) -> None:
    for (name, (color, dash)), row in zip(BASELINES.items(), (sgd(rows), sam(rows)), strict=True):
        line = go.Scatter(
            x=[0, 1], y=[row.error_mean] * 2, mode="lines", name=name, legendgroup=name, showlegend=first,
            line={"color": color, "dash": dash, "width": 1.5},
        )  # fmt: skip
        grid.add_trace(line, **where)


def _dressed(grid: go.Figure, rows: Rows) -> go.Figure:
    base = style.figure("", "", height=560)
    grid.update_layout(template="none", height=560, font=base.layout.font, paper_bgcolor="white", plot_bgcolor="white")
    grid.update_layout(legend={"x": 0.82, "y": 0.3, "font": {"size": 13}}, margin={"l": 56, "r": 14, "t": 36, "b": 48})
    inner = [r.error_mean for r in rows]
    span = [min(inner) - 0.6, max(inner) + 0.6]
    grid.update_xaxes(gridcolor=style.GRID, zeroline=False)
    grid.update_yaxes(gridcolor=style.GRID, zeroline=False, range=span)
    grid.update_yaxes(title={"text": "validation error, %", "standoff": 4, "font": SMALL}, col=1)
    return grid.update_annotations(font={"size": 12})


def summary(rows: Rows) -> go.Figure:
    """Draw all schedules of all groups as error against extra propagation."""
    fig = wide("extra propagation Δη", "validation error, %", 500)
    for place, (name, (color, symbol, _)) in enumerate(GROUPS.items()):
        own = members(name, rows)
        # Groups share their costs: a small shift of each keeps them apart.
        xs = [r.extra_propagation + 0.005 * (place - 2) + _spread(r, own) for r in own]
        fig.add_trace(_points(own, xs, name, color, symbol, mode="markers"))
    for name, row in (("SGD", sgd(rows)), ("SAM", sam(rows))):
        fig.add_trace(_points([row], [row.extra_propagation], name, INK, "x", mode="markers", showlegend=False))
        fig.add_annotation(x=row.extra_propagation, y=row.error_mean, text=f"<b>{name}</b>", showarrow=False, xshift=22)
    fig.update_xaxes(tickformat=".0%", range=[-0.04, 1.06])
    return fig


def _spread(row: ConfigSummary, group: Rows) -> float:
    """Return a small shift for schedules of one group that all cost the same, so that they do not overlap."""
    same = [r for r in group if abs(r.extra_propagation - row.extra_propagation) < 0.02]
    return 0.0 if len(same) < 3 else 0.006 * (same.index(row) - (len(same) - 1) / 2)


def wide(x: str, y: str, height: int) -> go.Figure:
    fig = style.figure(x, y, height=height, paper_bgcolor="white", plot_bgcolor="white")
    return fig.update_layout(legend={"orientation": "v", "x": 1.01, "y": 1, "yanchor": "top"}, margin={"t": 20})


def extra_time(search: Search) -> dict[str, list[float]]:
    """Return per configuration the time of the second passes of each run over that of the rest of the same run.

    Both are measured in one run, so the load of the machine at other times does not matter.
    """
    found: dict[str, list[float]] = {}
    for trial in search.finished():
        parts = {part: float(trial.metrics[f"seconds_{part}"]) for part in ("data", "pass1", "pass2", "step")}
        found.setdefault(trial.config_id, []).append(parts["pass2"] / (parts["data"] + parts["pass1"] + parts["step"]))
    return found


def times(search: Search, rows: Rows) -> go.Figure:
    """Draw the extra time against the extra propagation, with the line through the origin that fits best."""
    fig = wide("extra propagation Δη", "extra training time, % of a plain step", 400)
    measured = extra_time(search)
    for name, (color, symbol, _) in GROUPS.items():
        own = members(name, rows)
        fig.add_trace(_timed(own, measured, name, color, symbol))
    fig.add_trace(_timed([sgd(rows), sam(rows)], measured, "SGD, SAM", INK, "x"))
    slope = time_slope(rows, measured)
    fig.add_scatter(
        x=[0, 1], y=[0, 100 * slope], mode="lines", line={"color": GREY, "width": 1.5, "dash": "dash"},
        name=f"{slope:.2f} · Δη",
    )  # fmt: skip
    return fig.update_xaxes(tickformat=".0%", range=[-0.04, 1.04])


def time_slope(rows: Rows, measured: dict[str, list[float]]) -> float:
    """Return the extra time per unit of extra propagation, by least squares through the origin."""
    costs = np.array([r.extra_propagation for r in rows])
    shares = np.array([float(np.median(measured[r.config_id])) for r in rows])
    return float(costs @ shares / (costs @ costs))


def _timed(rows: Rows, measured: dict[str, list[float]], name: str, color: str, symbol: str) -> go.Scatter:
    middle = [100 * float(np.median(measured[r.config_id])) for r in rows]
    return go.Scatter(
        x=[r.extra_propagation for r in rows], y=style.rounded(middle), mode="markers", name=name,
        marker={"color": color, "symbol": symbol, "size": 9},
    )  # fmt: skip


def gamma_map(rows: Rows) -> go.Figure:
    """Draw the mean error over p and gamma_rst, with the number in each cell and the best of each column framed."""
    grid = {place: fmean(errors.values()) for place, errors in grid_of(rows).items()}
    costs, gammas = sorted({p for p, _ in grid}), sorted({g for _, g in grid})
    z = [[grid[p, g] for p in costs] for g in gammas]
    fig = wide("p", "γ_rst = p · γ_gnr", 520)
    ceiling = float(np.quantile(np.array(z), 0.9))
    fig.add_heatmap(
        x=[f"{p:g}" for p in costs], y=[f"{g:g}" for g in gammas], z=z, colorscale="Cividis", reversescale=False,
        zmin=float(np.min(z)), zmax=ceiling, text=[[f"{v:.1f}" for v in row] for row in z], texttemplate="%{text}",
        colorbar={"title": {"text": "error, %"}, "thickness": 12, "outlinewidth": 0}, xgap=2, ygap=2,
    )  # fmt: skip
    for column, p in enumerate(costs):
        best = min(range(len(gammas)), key=lambda i: grid[p, gammas[i]])
        fig.add_shape(
            type="rect", x0=column - 0.49, x1=column + 0.49, y0=best - 0.49, y1=best + 0.49,
            line={"color": RED, "width": 3},
        )  # fmt: skip
    fig.update_xaxes(type="category", showgrid=False)
    return fig.update_yaxes(type="category", showgrid=False)


def cifar_rows(rows: Rows) -> dict[str, ConfigSummary]:
    """Return the configurations of the CIFAR-10 study by their names in the figure."""
    half = {"family": "piecewise", "b": 0.5}
    found = (
        sgd(rows), sam(rows), find(rows, family="constant", p=0.5), find(rows, family="constant", p=0.8),
        find(rows, 2.0, family="constant", p=0.5), find(rows, **half, a=0.0), find(rows, **half, a=1.0),
    )  # fmt: skip
    return {name: row for name, row in zip(CIFAR, found, strict=True) if row is not None}


def cifar10(rows: Rows) -> go.Figure:
    """Draw each configuration's mean with its standard error, and its seeds as small points."""
    named = cifar_rows(rows)
    fig = wide("", "validation error, %", 420)
    for place, row in enumerate(named.values()):
        seeds = list(by_seed(row).values())
        fig.add_scatter(
            x=[place + 0.12 * (i - (len(seeds) - 1) / 2) + 0.22 for i in range(len(seeds))], y=seeds, mode="markers",
            marker={"color": GREY, "size": 5}, showlegend=False,
        )  # fmt: skip
    own = list(named.values())
    fig.add_trace(
        _points(own, list(range(len(own))), "mean", BLUE, "circle", mode="markers", size=11, showlegend=False)
    )
    fig.add_hline(y=sam(rows).error_mean, line={"color": INK, "dash": "dot", "width": 1})
    ticks = [f"{name}<br>Δη {row.extra_propagation:.0%}" for name, row in named.items()]
    return fig.update_xaxes(tickvals=list(range(len(ticks))), ticktext=ticks, showgrid=False)
