"""How the search went: hypervolume over the compute spent, trials over workers, early against final errors."""

from collections.abc import Sequence

import plotly.graph_objects as go

from rst_tune.analysis import labels
from rst_tune.analysis.records import Trial
from rst_tune.report import words
from rst_tune.report.figures.style import BLUE, CYCLE, STATUS, empty, figure, rounded

__all__ = ["hypervolume", "rungs", "timeline"]


def hypervolume(history: Sequence[tuple[float, float, float]]) -> go.Figure:
    """Draw the hypervolume of the front so far against the propagation pairs spent until then."""
    if not history:
        return empty("No hypervolume yet: it needs one trial trained to the full horizon.")
    fig = figure("propagation pairs spent", "hypervolume", height=320)
    fig.update_yaxes(rangemode="tozero")
    start = history[0][0]
    fig.add_scatter(
        x=rounded(pairs for _, pairs, _ in history),
        y=rounded(volume for _, _, volume in history),
        text=[words.duration(time - start) for time, _, _ in history],
        mode="lines+markers" if len(history) < 60 else "lines",
        line={"shape": "hv", "color": BLUE, "width": 2},
        marker={"size": 5},
        hovertemplate="%{y:.4g} after %{x:,.0f} pairs<br>%{text} after the first result<extra></extra>",
    )
    return fig


def timeline(trials: Sequence[Trial], now: float) -> go.Figure:
    """Draw one bar a trial on its worker's line, coloured by how it ended; one that runs lasts until `now`."""
    started = [t for t in trials if t.started is not None]
    if not started:
        return empty("No trial was started yet.")
    lanes = sorted({_lane(t) for t in started})
    begin = min(t.started or now for t in started)
    unit, name = _unit(max(t.ended or now for t in started) - begin)
    fig = figure(f"{name} since the first start", "", height=max(200, min(700, 110 + 26 * len(lanes))), bargap=0.25)
    fig.update_yaxes(type="category", categoryorder="array", categoryarray=lanes[::-1], showgrid=False)
    fig.update_layout(barmode="overlay")
    for status, color in STATUS.items():
        group = [t for t in started if t.status == status]
        if group:
            fig.add_trace(_bars(status, color, group, begin, now, unit))
    return fig


def _lane(trial: Trial) -> str:
    return words.escaped(f"{trial.node} {trial.worker}".strip() or "unnamed worker")


def _unit(seconds: float) -> tuple[float, str]:
    return next(
        ((size, name) for size, name in ((3600.0, "hours"), (60.0, "minutes")) if seconds > 3 * size), (1.0, "seconds")
    )


def _bars(status: str, color: str, trials: Sequence[Trial], begin: float, now: float, unit: float) -> go.Bar:
    spans = [((t.started or now) - begin, max(0.0, (t.ended or now) - (t.started or now))) for t in trials]
    return go.Bar(
        y=[_lane(t) for t in trials],
        base=rounded(start / unit for start, _ in spans),
        x=rounded(length / unit for _, length in spans),
        orientation="h",
        name=f"{status} ({len(trials)})",
        marker={"color": color, "line": {"width": 0.5 if len(trials) < 500 else 0, "color": "rgba(255,255,255,0.8)"}},
        text=[words.escaped(f"#{t.number} {t.config.get('family', '?')}") for t in trials],
        textposition="none",
        hovertemplate="%{text}<br>%{x:.3g} long<extra>" + status + "</extra>",
    )


def rungs(trials: Sequence[Trial]) -> go.Figure:
    """Draw the final error against the error at each rung: a rung that ranks well is a rising cloud."""
    ended = [t for t in trials if t.finished and t.rungs]
    epochs = sorted({epoch for t in ended for epoch in t.rungs if epoch < t.epochs})
    if not epochs:
        return empty("No trial passed an earlier rung and was trained to the end.")
    fig = figure("error at the rung, %", "final validation error, %", height=360)
    for index, epoch in enumerate(epochs):
        group = [t for t in ended if epoch in t.rungs]
        fig.add_scatter(
            x=rounded(t.rungs[epoch] for t in group),
            y=rounded(t.error for t in group),
            mode="markers",
            name=f"epoch {epoch} ({len(group)})",
            marker={"color": CYCLE[index % 6], "symbol": index % 6, "size": 7, "opacity": 0.75},
            text=[words.escaped(f"#{t.number} {labels.describe(t.config)}") for t in group],
            hovertemplate="%{text}<br>%{x:.2f} → %{y:.2f} %<extra></extra>",
        )
    return fig
