"""Where one search attains an error and compute that another does not, given the noise of both."""

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from rst_tune.records import PERCENT_ERROR, Metric
from rst_tune.report import formatting
from rst_tune.report.cost_axis import CostAxis
from rst_tune.report.figures.front import set_cost_axis
from rst_tune.report.figures.style import empty, figure, rounded

COLORS = ("26,128,196", "230,159,0")
# Difference of the probabilities: from, to, and the opacity of its area.
STEPS = ((0.2, 0.5, 0.25), (0.5, 0.8, 0.5), (0.8, 1.01, 0.85))


def attainment(
    rectangles: NDArray[np.float64],
    names: tuple[str, str],
    corner: tuple[float, float],
    axis: CostAxis,
    metric: Metric = PERCENT_ERROR,
) -> go.Figure:
    """Draw rectangles (error and compute from, error and compute to, difference of the attainment probabilities).

    A positive difference is in favour of the first search. Unbounded rectangles end at `corner` (error, compute).
    """
    shown = rectangles[np.abs(rectangles[:, 4]) >= STEPS[0][0]] if len(rectangles) else rectangles
    if not len(shown):
        return empty("The attainment probabilities of the two searches differ by less than 20 % everywhere.")
    fig = figure(axis.title, formatting.escape_html(metric.label), height=460)
    set_cost_axis(fig, axis, [*shown[:, 1].tolist(), corner[1]])
    for sign, name, color in zip((1, -1), names, COLORS, strict=True):
        for low, high, opacity in STEPS:
            amount = sign * shown[:, 4]
            group = shown[(amount >= low) & (amount < high)]
            title = f"{formatting.escape_html(name)}: higher by {100 * low:.0f} % or more"
            if len(group):
                fig.add_trace(_areas(group, corner, axis, f"rgba({color},{opacity})", title, metric))
    return fig


def _areas(
    group: NDArray[np.float64], corner: tuple[float, float], axis: CostAxis, color: str, name: str, metric: Metric
) -> go.Scatter:
    xs: list[float | None] = []
    ys: list[float | None] = []
    for error, cost, error_end, cost_end, _ in group:
        low, top = metric.value(error), metric.value(min(error_end, corner[0]))
        left, right = axis.value(cost), axis.value(min(cost_end, corner[1]))
        xs += [left, right, right, left, left, None]
        ys += [low, low, top, top, low, None]
    line = {"width": 0.5, "color": color}
    style = {"fill": "toself", "fillcolor": color, "line": line, "mode": "lines"}
    return go.Scatter(x=rounded(xs), y=rounded(ys), name=name, hoverinfo="name", **style)
