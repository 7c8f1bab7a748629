"""How the search goes: hypervolume over compute, epochs of running trials, trials per worker, errors at the rungs."""

from collections.abc import Sequence

import plotly.graph_objects as go

from rst_tune.analysis import labels
from rst_tune.analysis.rungs import RungCorrelation, rung_level
from rst_tune.records import PERCENT_ERROR, Metric, Status, Trial
from rst_tune.report import formatting
from rst_tune.report.figures.style import BLUE, CYCLE, DASHES, GREY, NO_LEGEND, STATUS, empty, figure, rounded

MAX_CURVES = 40


def hypervolume(history: Sequence[tuple[float, float, float]]) -> go.Figure:
    """Draw the hypervolume of the front against the propagation pairs spent; rows are (time, pairs, hypervolume)."""
    if not history:
        return empty("No hypervolume yet: it needs one trial trained to the full horizon.")
    fig = figure("propagation pairs spent", "hypervolume", height=300, margin=NO_LEGEND)
    fig.update_yaxes(rangemode="tozero")
    start = history[0][0]
    fig.add_scatter(
        x=rounded(pairs for _, pairs, _ in history),
        y=rounded(volume for _, _, volume in history),
        text=[formatting.duration(time - start) for time, _, _ in history],
        mode="lines+markers" if len(history) < 60 else "lines",
        line={"shape": "hv", "color": BLUE, "width": 2},
        marker={"size": 5},
        hovertemplate="%{y:.4g} after %{x:,.0f} pairs<br>%{text} after the first result<extra></extra>",
    )
    return fig


def running(trials: Sequence[Trial], metric: Metric = PERCENT_ERROR) -> go.Figure:
    """Draw the metric of the running trials per epoch, over the latest trials that ended."""
    now = [t for t in trials if t.status is Status.RUNNING and t.values(metric)]
    if not now:
        return empty("No running training has reported an epoch yet.")
    ended = sorted((t for t in trials if t.ended_at and t.values(metric)), key=lambda t: t.ended_at or 0.0)
    fig = figure("share of the training", formatting.escape_html(metric.label), height=300)
    fig.update_xaxes(tickformat=".0%", range=[0, 1.02])
    if metric.unit == "%" and not metric.higher_is_better:
        fig.update_yaxes(type="log", tickvals=[0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100])
    if ended:
        faint = {"mode": "lines", "line": {"color": GREY, "width": 1}, "opacity": 0.4, "hoverinfo": "skip"}
        fig.add_scatter(**_curves(ended[-MAX_CURVES:], metric), **faint, name=f"ended ({len(ended):,})")
    for index, trial in enumerate(now[:MAX_CURVES]):
        line = {"color": CYCLE[index % 6], "width": 2.2, "dash": DASHES[index // 6 % 6]}
        name = formatting.escape_html(f"#{trial.number} {labels.short(trial.config)}")
        template = f"{name}<br>%{{x:.0%}}: %{{y:.4g}}<extra></extra>"
        look = {"mode": "lines+markers" if trial.epochs < 100 else "lines", "line": line, "marker": {"size": 5}}
        fig.add_scatter(**_curves([trial], metric), **look, name=f"#{trial.number}", hovertemplate=template)
    return fig


def _curves(trials: Sequence[Trial], metric: Metric) -> dict[str, list[float | None]]:
    """Return the curves of some trials as one line, with a gap after each."""
    xs: list[float | None] = []
    ys: list[float | None] = []
    for trial in trials:
        values = trial.values(metric)
        xs += [*((epoch + 1) / max(trial.epochs, 1) for epoch in range(len(values))), None]
        ys += [*values, None]
    return {"x": rounded(xs), "y": rounded(ys)}


def timeline(trials: Sequence[Trial], now: float) -> go.Figure:
    """Draw one bar per trial in the row of its worker, coloured by status; a running trial ends at `now`."""
    started = [t for t in trials if t.started_at is not None]
    if not started:
        return empty("No trial was started yet.")
    workers = sorted({_worker(t) for t in started})
    begin = min(t.started_at or now for t in started)
    length = max(t.ended_at or now for t in started) - begin
    units = ((3600.0, "hours"), (60.0, "minutes"))
    unit, name = next((u for u in units if length > 3 * u[0]), (1.0, "seconds"))
    height = max(200, min(700, 110 + 26 * len(workers)))
    fig = figure(f"{name} since the first start", "", height, bargap=0.25, barmode="overlay")
    fig.update_yaxes(type="category", categoryorder="array", categoryarray=workers[::-1], showgrid=False)
    for status, color in STATUS.items():
        group = [t for t in started if t.status is status]
        if group:
            fig.add_trace(_bars(status, color, group, begin, now, unit))
    return fig


def _worker(trial: Trial) -> str:
    return formatting.escape_html(f"{trial.node} {trial.worker}".strip() or "unnamed worker")


def _bars(status: Status, color: str, trials: Sequence[Trial], begin: float, now: float, unit: float) -> go.Bar:
    starts = [t.started_at or now for t in trials]
    ends = [t.ended_at or now for t in trials]
    return go.Bar(
        y=[_worker(t) for t in trials],
        base=rounded((start - begin) / unit for start in starts),
        x=rounded(max(0.0, end - start) / unit for start, end in zip(starts, ends, strict=True)),
        orientation="h",
        name=f"{status} ({len(trials)})",
        marker={"color": color, "line": {"width": 0.5 if len(trials) < 500 else 0, "color": "rgba(255,255,255,0.8)"}},
        text=[formatting.escape_html(f"#{t.number} {t.config.family}") for t in trials],
        textposition="none",
        hovertemplate=f"%{{text}}<br>%{{x:.3g}} long<extra>{status}</extra>",
    )


def rungs(trials: Sequence[Trial], metric: Metric = PERCENT_ERROR) -> go.Figure:
    """Draw the final error against the error at each rung: the better a rung ranks, the more its points rise.

    Rungs of trainings of different lengths are grouped by the share of the training that they come after.
    """
    ended = [t for t in trials if t.finished]
    passed = [(t, epoch, error) for t in ended for epoch, error in t.rungs.items() if epoch < t.epochs]
    if not passed:
        return empty("No trial passed an earlier rung and was trained to the end.")
    title = formatting.escape_html(metric.label)
    one_length = len({t.epochs for t, _, _ in passed}) == 1
    groups: dict[int, list[tuple[Trial, float]]] = {}
    for trial, epoch, error in passed:
        groups.setdefault(epoch if one_length else -rung_level(epoch, trial.epochs), []).append((trial, error))
    fig = figure(f"{title} at the rung", f"final {title}", height=360)
    for index, (place, group) in enumerate(sorted(groups.items())):
        rung = RungCorrelation(level=-place, trials=len(group), correlation=None)
        name = f"epoch {place}" if one_length else f"after {rung.share}"
        fig.add_scatter(
            x=rounded(metric.value(error) for _, error in group),
            y=rounded(None if t.error is None else metric.value(t.error) for t, _ in group),
            mode="markers",
            name=f"{name} ({len(group)})",
            marker={"color": CYCLE[index % 6], "symbol": index % 6, "size": 7, "opacity": 0.75},
            text=[formatting.escape_html(f"#{t.number} {labels.describe(t.config)}") for t, _ in group],
            hovertemplate="%{text}<br>%{x:.4g} → %{y:.4g}<extra></extra>",
        )
    return fig
