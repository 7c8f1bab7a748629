"""The figures of the result page: functions from summaries and records to Plotly figures."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from equal_compute import AT, Judged, field, judged, sgd_configs
from plotly.subplots import make_subplots
from trainings import Record

from rst_tune.analysis import pareto
from rst_tune.analysis.replicates import ConfigSummary
from rst_tune.report.figures import style
from rst_tune.report.figures.style import BLUE, GREEN, GREY, INK, ORANGE, PURPLE, RED, SKY

__all__ = ["GROUPS", "curves", "fronts", "gamma_map", "group_of", "share_of_gain", "summary"]

Rows = Sequence[ConfigSummary]

# The paper's groups: colour and symbol.
GROUPS: dict[str, tuple[str, str]] = {
    "constant": (BLUE, "circle"),
    "piecewise 1: SGD, then SAM": (GREEN, "triangle-up"),
    "piecewise 2: SAM, then SGD": (RED, "triangle-down"),
    "piecewise 3: a, then 1 − a": (ORANGE, "diamond"),
    "linear 1: rising": (SKY, "square"),
    "linear 2: through ½": (PURPLE, "cross"),
    "trigonometric": (INK, "star"),
}
BARS = {"thickness": 1.2, "width": 3}


def sgd(rows: Rows) -> ConfigSummary:
    """Return the base optimizer."""
    return next(row for row in rows if row.config.is_base)


def sam(rows: Rows) -> ConfigSummary:
    """Return SAM."""
    return next(row for row in rows if row.config.is_sam)


def share_of_gain(error: float, rows: Rows) -> float:
    """Return the share of SAM's gain over SGD that an error has: 0 is SGD's error, 1 is SAM's."""
    base = sgd(rows).error_mean
    return (base - error) / (base - sam(rows).error_mean)


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


def _sems(rows: Rows) -> dict[str, Any]:
    return {"type": "data", "array": style.rounded([row.error_sem for row in rows]), **BARS}


def _points(rows: Rows, xs: Sequence[float], name: str, color: str, symbol: str, **more: Any) -> go.Scatter:
    return go.Scatter(
        x=xs, y=style.rounded([row.error_mean for row in rows]), error_y=_sems(rows), name=name,
        mode=more.pop("mode", "lines+markers"), line={"color": color, "width": 1.6},
        marker={"color": color, "symbol": symbol, "size": more.pop("size", 9)}, **more,
    )  # fmt: skip


def summary(rows: Rows) -> go.Figure:
    """Draw all schedules of all groups as error against extra propagation."""
    fig = wide("extra propagation Δη", "validation error, %", 500)
    for place, (name, (color, symbol)) in enumerate(GROUPS.items()):
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


def gamma_map(rows: Rows) -> go.Figure:
    """Draw the mean error over p and gamma_rst, with the number in each cell and the best of each column framed."""
    inner = [row for row in rows if 0.0 < row.extra_propagation < 1.0]
    grid = {(round(r.extra_propagation, 3), round(r.config.gamma_rst, 3)): r.error_mean for r in inner}
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


# --- error over compute -------------------------------------------------------------------------------------------

LOOKS = {
    "SAM": (INK, "x"),
    "RST, p 0.5": (ORANGE, "diamond"),
    "G-RST, p 0.5, gamma 2": (GREEN, "triangle-up"),
    "S2-SAM, one pass": (PURPLE, "square"),
    "MSAM, one pass": (RED, "triangle-down"),
}


def curves(records: Sequence[Record]) -> go.Figure:
    """Draw the test error over the total compute, one panel per task on equal axes, in units of plain SGD's error."""
    titles = [f"<b>{record.title}</b>" for record in records]
    rows = -(-len(records) // 3)
    grid = make_subplots(
        rows=rows, cols=3, subplot_titles=titles, shared_yaxes=True, vertical_spacing=0.17, horizontal_spacing=0.03
    )
    for place, record in enumerate(records):
        where = {"row": place // 3 + 1, "col": place % 3 + 1}
        _panel(grid, record, where, first=place == 0)
        grid.add_hline(y=1, line={"color": style.GREY, "dash": "dot", "width": 1}, **where)
    return _dressed(grid, height=90 + 290 * rows)


def _panel(grid: go.Figure, record: Record, where: dict[str, int], *, first: bool) -> None:
    fields = {compute: field(record, compute) for compute in AT}
    found = {compute: found for compute, found in fields.items() if found is not None}
    if not found:
        return
    seeds = max(each.seeds for each in found.values())
    base = [judged(record, "SGD", config, seeds) for config in sgd_configs(record.task)]
    unit = next(each.mean for each in base if each.config.epochs == record.task.epochs)
    rest = [each for each in found[1.0].others.values() if each.name not in LOOKS] if 1.0 in found else []
    _curve(grid, rest, unit, ("other rules", SKY, "circle"), where, mode="markers", size=6, first=first)
    _curve(grid, base, unit, ("SGD", GREY, "circle"), where, mode="lines+markers", size=8, first=first)
    for name in LOOKS:
        line = [each.others[name] for each in found.values() if name in each.others]
        _curve(grid, line, unit, (name, *LOOKS[name]), where, mode="lines+markers", size=8, first=first)


def _curve(
    grid: go.Figure, points: Sequence[Judged], unit: float, look: tuple[str, str, str], where: dict[str, int], *,
    mode: str, size: int, first: bool,
) -> None:  # fmt: skip
    name, color, symbol = look
    bars = {"type": "data", "array": style.rounded([p.sem / unit for p in points]), **BARS}
    grid.add_scatter(
        x=style.rounded([p.compute for p in points]), y=style.rounded([p.mean / unit for p in points]), name=name,
        error_y=bars if mode != "markers" else None, mode=mode, legendgroup=name, showlegend=first,
        line={"color": color, "width": 1.6}, marker={"color": color, "symbol": symbol, "size": size}, **where,
    )  # fmt: skip


def _dressed(grid: go.Figure, height: int) -> go.Figure:
    font = style.figure("", "").layout.font
    grid.update_layout(template="none", height=height, font=font, paper_bgcolor="white", plot_bgcolor="white")
    legend = {"orientation": "h", "x": 0, "y": -52 / (height - 146), "yanchor": "top"}
    grid.update_layout(legend=legend, margin={"l": 60, "r": 14, "t": 36, "b": 110})
    grid.update_xaxes(
        type="log", range=[-0.68, 0.36], tickvals=[0.25, 0.5, 1, 2], gridcolor=style.GRID, zeroline=False,
        title={"text": "total compute (plain trainings)", "standoff": 4, "font": {"size": 12}},
    )  # fmt: skip
    ticks = [0.3, 0.5, 0.7, 1, 1.5, 2]
    grid.update_yaxes(type="log", range=[-0.53, 0.32], tickvals=ticks, gridcolor=style.GRID, zeroline=False)
    grid.update_yaxes(title={"text": "test error / plain SGD's", "standoff": 4, "font": {"size": 13}}, col=1)
    return grid.update_annotations(font={"size": 13})


# --- fronts of searches -------------------------------------------------------------------------------------------

SEARCHES = {"ours": (BLUE, "circle"), "stock": (RED, "diamond"), "stock-complete": (ORANGE, "square"),
            "sgd": (GREY, "x")}  # fmt: skip


def fronts(lines: Sequence[Mapping[str, Any]], titles: Mapping[str, str], names: Mapping[str, str]) -> go.Figure:
    """Draw every delivered front by its true errors, one panel per task."""
    grid = make_subplots(rows=1, cols=len(titles), subplot_titles=[f"<b>{t}</b>" for t in titles.values()])
    for line in lines:
        if line["true"]:
            _front(grid, line, names[line["method"]], list(titles).index(line["task"]) + 1)
    font = style.figure("", "").layout.font
    grid.update_layout(template="none", height=440, font=font, paper_bgcolor="white", plot_bgcolor="white")
    grid.update_layout(legend={"orientation": "h", "x": 0, "y": -0.2}, margin={"l": 56, "r": 14, "t": 36, "b": 100})
    grid.update_xaxes(
        type="log", tickvals=[0.25, 0.5, 1, 2, 4], gridcolor=style.GRID, zeroline=False,
        title={"text": "total compute (plain trainings)", "standoff": 4, "font": {"size": 12}},
    )  # fmt: skip
    grid.update_yaxes(gridcolor=style.GRID, zeroline=False)
    grid.update_yaxes(title={"text": "test error on fresh seeds, %", "font": {"size": 13}}, col=1)
    return grid


def _front(grid: go.Figure, line: Mapping[str, Any], name: str, column: int) -> None:
    points, (color, symbol) = np.array(line["true"]), SEARCHES[line["method"]]
    best = sorted(points[pareto.nondominated(points)].tolist(), key=lambda p: p[1])
    grid.add_scatter(
        x=style.rounded([p[1] for p in best]), y=style.rounded([p[0] for p in best]), mode="lines+markers", name=name,
        legendgroup=name, showlegend=column == 1 and line["repeat"] == 0, opacity=0.75, row=1, col=column,
        line={"shape": "hv", "color": color, "width": 1}, marker={"color": color, "symbol": symbol, "size": 6},
    )  # fmt: skip
