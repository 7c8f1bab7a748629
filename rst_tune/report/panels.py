"""The sections of the page between the answer and the table of trials: figures with their notes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from rst_tune.analysis import labels
from rst_tune.analysis.analysis import Analysis
from rst_tune.analysis.replicates import ConfigSummary
from rst_tune.analysis.surface import error_surface
from rst_tune.records import Metric
from rst_tune.report import figures, formatting
from rst_tune.report.cost_axis import CostAxis
from rst_tune.report.figures.front import visible_range
from rst_tune.report.figures.space import MAX_COINS, MAX_LINES
from rst_tune.report.status import FAILURES

MAX_SCHEDULES = 12
MAX_FAILURES = 8
FRONT_NOTE = (
    " Markers are measured means, bars are one standard error over seeds. The line "
    "joins the front at the posterior means of the surrogate, which is fitted to all trials and corrects for lucky "
    "seeds."
)


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One section: title, note, and figures by caption or texts by heading; `missing` says why there are none.

    Two neighbours of which both are `half` share a row.
    """

    name: str
    title: str
    note: str = ""
    plots: Mapping[str, go.Figure] | None = None
    texts: Sequence[tuple[str, str]] = ()
    missing: str = ""
    half: bool = False


def figure_panel(name: str, title: str, note: str, figure: go.Figure, *, half: bool = False) -> Panel:
    """Return a section of one figure, or of the reason why the figure is empty."""
    if missing := (figure.layout.meta or {}).get("missing", ""):
        return Panel(name=name, title=title, missing=missing, half=half)
    return Panel(name=name, title=title, note=note, plots={"": figure}, half=half)


def panels(analysis: Analysis) -> list[Panel]:
    """Return the sections in the order of the page."""
    return [
        _front(analysis),
        _growth(analysis),
        *([] if analysis.search.done else [_running(analysis)]),
        _importance(analysis),
        _schedules(analysis),
        _map(analysis),
        _questions(analysis),
        _coordinates(analysis.summaries, analysis.search.metric),
        _timeline(analysis),
        _rungs(analysis),
        *_failures(analysis),
    ]


def better_note(metric: Metric) -> str:
    """Return which corner of the front's figure is the best one."""
    return f"Left is cheaper, {'up' if metric.higher_is_better else 'down'} is better."


def baselines(analysis: Analysis) -> dict[str, ConfigSummary]:
    """Return the base optimizer and SAM by name, if they were trained."""
    found = {"base optimizer": analysis.base, "SAM": analysis.sam}
    return {name: point for name, point in found.items() if point is not None}


def _front(analysis: Analysis) -> Panel:
    points, metric = analysis.summaries, analysis.search.metric
    note, axis = better_note(metric) + FRONT_NOTE, CostAxis.of(points)
    note += axis.note
    if axis.lengths_differ:
        note += " The dashed curve is the base optimizer trained longer or shorter."
    span = visible_range(points)
    above = sum(p.error_mean > span[1] for p in points) if span else 0
    if above:
        worse = "lower" if metric.higher_is_better else "higher"
        lying = "1 point lies" if above == 1 else f"{above:,} points lie"
        note += f" {lying} outside of the figure, with a {worse} {metric.name}; a double click shows everything."
    return figure_panel("front", "The front", note, front_figure(analysis))


def front_figure(analysis: Analysis) -> go.Figure:
    """Return the front of a search, with the recommendation and the baselines."""
    return figures.front(analysis.summaries, analysis.recommended, baselines(analysis), analysis.search.metric)


def _growth(analysis: Analysis) -> Panel:
    note = (
        "The area between the front and the reference point, over the compute spent, by the present posterior means "
        "of the configurations. Where the curve is flat, the search found nothing better."
    )
    figure = figures.hypervolume(analysis.hypervolume_history)
    return figure_panel("growth", "Growth of the front", note, figure, half=True)


def _running(analysis: Analysis) -> Panel:
    figure = figures.running(analysis.search.trials, analysis.search.metric)
    note = "One line per training, in grey the latest that ended."
    return figure_panel("running", "Running trainings", note, figure, half=True)


def _failures(analysis: Analysis) -> list[Panel]:
    failed = [t for t in analysis.search.trials if t.status in FAILURES]
    if not failed:
        return []
    latest = sorted(failed, key=lambda t: -(t.ended_at or 0.0))[:MAX_FAILURES]
    texts = [(f"#{t.number} {t.status}: {labels.describe(t.config)}", t.reason or "no reason given") for t in latest]
    note = f"The latest {len(latest)} of {len(failed):,}." if len(failed) > len(latest) else ""
    return [Panel(name="failures", title="Failures", note=note, texts=texts)]


def _schedules(analysis: Analysis) -> Panel:
    title, front, axis = "The schedules of the front", analysis.points, CostAxis.of(analysis.summaries)
    metric = analysis.search.metric
    drawn = [p for p in front if p.preview.curve][:MAX_SCHEDULES]
    if not drawn:
        reason = "the record has no preview of these schedules" if front else "there is no front yet"
        return Panel(name="schedules", title=title, missing=f"No schedule to draw: {reason}.")
    note = (
        "p(t), the probability of a sharpness-aware step. The marks below it are the sharpness-aware steps of one "
        f"training (of at most {MAX_COINS} evenly spaced steps)."
    )
    if len(front) > len(drawn):
        note += f" {len(drawn)} of the {len(front)} configurations of the front."
    extra = "" if axis.lengths_differ else " extra"
    plots = {
        f"{labels.describe(p.config)}\n{metric.with_unit(p.error_mean, p.error_sem)} at {axis.text(p.compute)}{extra}":
            figures.schedule(p)
        for p in drawn
    }  # fmt: skip
    return Panel(name="schedules", title=title, note=note, plots=plots)


def _map(analysis: Analysis) -> Panel:
    metric = analysis.search.metric
    title = f"{metric.name[:1].upper()}{metric.name[1:]} over {CostAxis.of(analysis.summaries).noun} and γ"
    note = "One marker per configuration; diamonds are on the front. Darker is better."
    surface = error_surface(analysis)
    if surface is not None:
        note += (
            " The shade is the posterior mean of the surrogate around one point of the front, the recommended one if "
            "its ascents cost anything: only γ and the mean of p(t) vary."
        )
    return figure_panel("map", title, note, figures.landscape(analysis.summaries, surface, metric))


def _importance(analysis: Analysis) -> Panel:
    title, result = "Parameter importance", analysis.importance
    caveats = " ".join(formatting.sentence(caveat) for caveat in result.caveats)
    if not result.values:
        return Panel(name="importance", title=title, missing=caveats, half=True)
    finished = len(analysis.search.finished())
    note = f"Functional ANOVA over {result.trials:,} of {finished:,} finished trials. {caveats}"
    return figure_panel("importance", title, note, figures.importances(result.values), half=True)


def _questions(analysis: Analysis) -> Panel:
    title, texts = "The questions of the paper", [(answer.question, answer.text) for answer in analysis.questions]
    reasons = {text for _, text in texts}
    if len(reasons) == 1:  # none of them was asked
        return Panel(name="questions", title=title, missing=formatting.sentence(reasons.pop()))
    return Panel(name="questions", title=title, texts=texts)


def _coordinates(points: Sequence[ConfigSummary], metric: Metric) -> Panel:
    note = "One line per configuration, over all parameters that differ between configurations."
    if len(points) > MAX_LINES:
        note += f" Of {len(points):,} configurations, the front and {MAX_LINES} others are drawn, evenly by rank."
    return figure_panel("coordinates", "Parallel coordinates", note, figures.parallel(points, metric))


def _timeline(analysis: Analysis) -> Panel:
    note = "One row per worker, one bar per trial. In a gap the worker was idle."
    figure = figures.timeline(analysis.search.trials, analysis.search.updated_at)
    return figure_panel("timeline", "Timeline of the workers", note, figure, half=True)


def _rungs(analysis: Analysis) -> Panel:
    note = "A rung that ranks configurations as the full training does has points that rise from left to right."
    known, metric = "; ".join(map(str, analysis.rung_correlations)), analysis.search.metric
    note += f" Rank correlation with the final {metric.name}: {known}." if known else ""
    figure = figures.rungs(analysis.search.trials, metric)
    title = f"{metric.name[:1].upper()}{metric.name[1:]} at the rungs and at the end"
    return figure_panel("rungs", title, note, figure, half=True)
