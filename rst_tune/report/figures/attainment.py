"""Where one search attains what another does not, given the noise of both."""

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from rst_tune.report import words
from rst_tune.report.figures.front import COST, ERROR
from rst_tune.report.figures.style import empty, figure, rounded

__all__ = ["attainment"]

# A side's colour, and how far the probabilities must differ for each depth of it.
SIDES = ("26,128,196", "230,159,0")
STEPS = ((0.2, 0.5, 0.25), (0.5, 0.8, 0.5), (0.8, 1.01, 0.85))


def attainment(rectangles: NDArray[np.float64], names: tuple[str, str], corner: tuple[float, float]) -> go.Figure:
    """Draw rectangles (error and cost from, error and cost to, difference of the probabilities to attain them).

    A positive difference is the first search's. What has no end is drawn up to `corner` (error, cost).
    """
    shown = rectangles[np.abs(rectangles[:, 4]) >= STEPS[0][0]] if len(rectangles) else rectangles
    if not len(shown):
        return empty("Nowhere is one of the two more likely to be better by a fifth or more.")
    fig = figure(COST, ERROR, height=460)
    fig.update_xaxes(tickformat=".0%")
    for side, (sign, name) in enumerate(zip((1, -1), names, strict=True)):
        for low, high, depth in STEPS:
            amount = sign * shown[:, 4]
            group = shown[(amount >= low) & (amount < high)]
            if len(group):
                fig.add_trace(_patches(group, corner, f"rgba({SIDES[side]},{depth})", _name(name, low)))
    return fig


def _name(name: str, low: float) -> str:
    return f"{words.escaped(name)} likelier by {100 * low:.0f} % or more"


def _patches(group: NDArray[np.float64], corner: tuple[float, float], color: str, name: str) -> go.Scatter:
    xs: list[float | None] = []
    ys: list[float | None] = []
    for error, cost, error_end, cost_end, _ in group:
        top, right = min(error_end, corner[0]), min(cost_end, corner[1])
        xs += [*_closed(cost, right, (0, 1, 1, 0, 0)), None]
        ys += [*_closed(error, top, (0, 0, 1, 1, 0)), None]
    style = {"width": 0.5, "color": color}
    return go.Scatter(
        x=rounded(xs),
        y=rounded(ys),
        fill="toself",
        fillcolor=color,
        line=style,
        mode="lines",
        name=name,
        hoverinfo="name",
    )


def _closed(low: float, high: float, pattern: Sequence[int]) -> list[float]:
    return [high if corner else low for corner in pattern]
