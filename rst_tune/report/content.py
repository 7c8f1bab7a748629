"""What a page holds, as plain data: the front, the figures with their notes, the trials as columns."""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import plotly.graph_objects as go

from rst_tune.analysis import fronts, labels, pareto, posterior, questions
from rst_tune.analysis.importance import importance
from rst_tune.analysis.noise import ConfigSummary
from rst_tune.analysis.records import Search, Trial
from rst_tune.analysis.rungs import rung_correlations
from rst_tune.report import figures, words
from rst_tune.report.figures.front import visible_range
from rst_tune.report.figures.space import MOST_COINS, MOST_LINES, MOST_SCHEDULES

__all__ = ["Panel", "baselines", "facts", "figure_json", "header_groups", "one_figure", "panels", "trial_columns"]

# The evaluator is slow, and a page should be there in seconds.
MOST_FOR_IMPORTANCE = 100


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One section: a title, a note, and figures with captions, or the reason why there is none."""

    name: str
    title: str
    note: str = ""
    plots: Mapping[str, go.Figure] | None = None
    texts: Sequence[tuple[str, str]] = ()
    missing: str = ""


def figure_json(figure: go.Figure) -> dict[str, Any]:
    """Return a figure as plain data without Plotly's defaults."""
    plain: dict[str, Any] = json.loads(figure.to_json())
    plain["layout"].pop("template", None)
    return plain


def facts(search: Search, front: fronts.Front) -> list[tuple[str, str]]:
    """Return the few numbers that tell how much stands behind the answer."""
    ended = sum(t.ended is not None for t in search.trials)
    most = max((p.seeds for p in front.points), default=0)
    rows = [
        ("state", "done" if search.done else f"unfinished ({search.phase})"),
        ("trials ended", f"{ended:,} of {len(search.trials):,}"),
        ("trained to the end", f"{len(search.finished()):,}"),
        ("seeds a front point", f"up to {most}" if most else words.MISSING),
        ("pairs spent", words.number(search.pairs)),
    ]
    return [*rows, ("hypervolume", words.number(front.hypervolume))] if front.points else rows


def _counts(trials: Sequence[Trial]) -> str:
    return ", ".join(f"{count:,} {status}" for status, count in Counter(t.status for t in trials).most_common())


def account(search: Search, front: fronts.Front) -> list[tuple[str, str]]:
    """Return how the result was obtained, as far as the trials themselves tell it."""
    trials = search.trials
    started = [t.started for t in trials if t.started is not None]
    ended = [t.ended for t in trials if t.ended is not None]
    return [
        ("trials", _counts(trials) or "none"),
        ("roles", ", ".join(f"{n:,} {role}" for role, n in Counter(t.role for t in trials).items()) or "none"),
        ("seeds", words.plain(sorted({t.seed for t in trials})[:20]) or "none"),
        ("horizons", ", ".join(f"{e} epochs" for e in sorted({t.epochs for t in trials})) or "none"),
        ("propagation pairs", words.number(search.pairs)),
        ("workers", f"{len({(t.node, t.worker) for t in trials if t.started is not None})}"),
        ("first start", words.moment(min(started)) if started else words.MISSING),
        ("last end", words.moment(max(ended)) if ended else words.MISSING),
        ("reference point", _point(front.reference)),
    ]  # fmt: skip


def _point(point: tuple[float, float] | None) -> str:
    return f"error {words.number(point[0])} %, {words.cost(point[1])} extra" if point else words.MISSING


def header_groups(header: Mapping[str, Any]) -> dict[str, list[tuple[str, str]]]:
    """Return the head of the record as groups of dotted names with their values.

    >>> header_groups({"event": "search", "time": 0, "name": "a", "task": {"data": {"name": "digits"}}})
    {'search': [('name', 'a')], 'task': [('data.name', 'digits')]}
    """
    groups: dict[str, list[tuple[str, str]]] = {}
    for name, value in header.items():
        if name in ("event", "time"):
            continue
        if isinstance(value, Mapping):
            groups[name] = _dotted(value)
        else:
            groups.setdefault("search", []).append((name, words.plain(value)))
    return groups


def _dotted(tree: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for name, value in tree.items():
        if isinstance(value, Mapping) and value:
            rows += _dotted(value, f"{prefix}{name}.")
        else:
            rows.append((f"{prefix}{name}", words.plain(value)))
    return rows


def trial_columns(search: Search, points: Sequence[ConfigSummary]) -> dict[str, Any]:
    """Return every trial as columns; what a YAML needs keeps all its digits, what is only shown is rounded."""
    verdicts = {p.config_id: p.verdict for p in points if p.on_front}
    trials = search.trials
    columns: dict[str, Any] = {
        "key": [t.key for t in trials],
        "number": [t.number for t in trials],
        "seed": [t.seed for t in trials],
        "epochs": [t.epochs for t in trials],
        "extra": _short(t.config.get("extra_propagation") for t in trials),
        "gamma_rst": _short(t.config.get("gamma_rst") for t in trials),
        "error": _short(t.error for t in trials),
        "test": _short(t.test_error for t in trials),
        "seconds": _short(t.seconds for t in trials),
        "pairs": _short(t.pairs for t in trials),
        "gamma_gnr": [t.config.get("gamma_gnr") for t in trials],
        "verdict": _once([verdicts.get(t.config_id, "") for t in trials]),
        "status": _once([t.status for t in trials]),
        "role": _once([t.role for t in trials]),
    }
    for name in ("family", "rule", "schedule", "rule_options", "rho"):
        columns[name] = _once([t.config.get(name) for t in trials])
    return columns


def _short(values: Any) -> list[float | None]:
    return [float(f"{v:.5g}") if isinstance(v, int | float) and math.isfinite(v) else None for v in values]


def _once(values: Sequence[Any]) -> dict[str, list[Any]]:
    """Return a column as its different values and, for each row, which of them it is."""
    places: dict[str, int] = {}
    at = [places.setdefault(json.dumps(value), len(places)) for value in values]
    return {"values": [json.loads(text) for text in places], "at": at}


def panels(search: Search, found: fronts.Front) -> list[Panel]:
    """Return the sections between the answer and the table, in the order a reader asks for them."""
    points, front = found.summaries, found.points
    return [
        _front(found),
        _growth(search, found),
        _schedules(front),
        _map(search, found),
        _importances(search),
        _questions(search, found),
        _parallel(points),
        one_figure(
            "timeline", "Who trained what, and when", _TIMELINE, figures.timeline(search.trials, search.updated)
        ),
        _rungs(search),
    ]


_COURSE = (
    "The area between the front and a fixed reference point, over the compute spent, by the errors that are expected "
    "of the configurations today. Flat: nothing new was found."
)
_TIMELINE = "One line a worker, one bar a trial. Gaps are time in which a worker had nothing to do."


def one_figure(name: str, title: str, note: str, figure: go.Figure) -> Panel:
    """Return a section of one figure; an empty one leaves only the reason why it is."""
    missing = (figure.layout.meta or {}).get("missing", "")
    if missing:
        return Panel(name=name, title=title, missing=missing)
    return Panel(name=name, title=title, note=note, plots={"": figure})


def _front(found: fronts.Front) -> Panel:
    points = found.summaries
    span = visible_range(points)
    above = sum(p.error_mean > span[1] for p in points) if span else 0
    note = (
        "Left is cheaper, down is better. Bars are one standard error over seeds. The line is at the expected errors, "
        "which make the front: all trials together make them believable, where a single one may be lucky."
    )
    if above:
        note += f" Not in the picture: {above:,} with a higher error; a double click shows all."
    return one_figure("front", "The front", note, figures.front(points, found.recommended, baselines(found)))


def baselines(found: fronts.Front) -> dict[str, ConfigSummary]:
    """Return the base optimizer and SAM, as far as they were run."""
    pairs = (("base optimizer", found.base), ("SAM", found.sam))
    return {name: point for name, point in pairs if point is not None}


def _schedules(front: Sequence[ConfigSummary]) -> Panel:
    title = "The schedules of the front"
    drawn = [p for p in front if p.config.get("curve")][:MOST_SCHEDULES]
    if not drawn:
        why = "there is no front yet" if not front else "the record holds no sampled curve for them"
        return Panel(name="schedules", title=title, missing=f"No schedule to draw: {why}.")
    note = "p(t), the probability of a sharpness-aware step. Below it, the steps on which the coin fell for one"
    note += f" (at most {MOST_COINS} steps, evenly spaced)."
    if len(front) > len(drawn):
        note += f" {len(drawn)} of the front's {len(front)} configurations."
    plots = {
        f"{labels.describe(p.config)}\n{words.error(p.error_mean, p.error_sem)} %": figures.schedule(p) for p in drawn
    }
    return Panel(name="schedules", title=title, note=note, plots=plots)


def _growth(search: Search, found: fronts.Front) -> Panel:
    believed = {row.config_id: row.error_expected for row in found.summaries}
    history = pareto.hypervolume_history(search, believed)
    return one_figure("growth", "How the front grew", _COURSE, figures.hypervolume(history))


def _map(search: Search, found: fronts.Front) -> Panel:
    """Behind the points stands what the smooth posterior believes of the recommended family, where there is one."""
    title, note = "Where the error is low", "Each point is a configuration; diamonds are on the front. Bluer is better."
    belief = posterior.fit(search)
    pick = found.recommended
    if belief is None or pick is None or str(pick.config.get("family")) not in belief.families:
        return one_figure("map", title, note, figures.landscape(found.summaries))
    family = str(pick.config["family"])
    note += f" The shade behind them is the error that all trials together suggest for {family} schedules."
    figure = figures.landscape(found.summaries, lambda cost, gamma: belief.predict(family, cost, gamma)[0])
    return one_figure("map", title, note, figure)


def _importances(search: Search) -> Panel:
    title, trials = "What the error depends on", search.finished()
    kept = trials[:: -(-len(trials) // MOST_FOR_IMPORTANCE) or 1]
    result = importance(replace(search, trials=tuple(kept)))
    if not result.values:
        return Panel(name="importance", title=title, missing=words.sentence("; ".join(result.caveats)))
    note = f"Functional ANOVA over {result.trials:,} of {len(trials):,} finished trials."
    note += "".join(" " + words.sentence(caveat) for caveat in result.caveats)
    return one_figure("importance", title, note, figures.importances(result.values))


def _questions(search: Search, found: fronts.Front) -> Panel:
    answers = questions.answers(search, found.summaries)
    texts = [(answer.question, answer.text) for answer in answers]
    return Panel(name="questions", title="The paper's questions, asked of this search", texts=texts)


def _parallel(points: Sequence[ConfigSummary]) -> Panel:
    note = "One line a configuration, over everything that differs between them."
    if len(points) > MOST_LINES:
        note += f" Of {len(points):,} the front and {MOST_LINES}, evenly chosen by rank of error, are drawn."
    return one_figure("coordinates", "All coordinates at once", note, figures.parallel(points))


def _rungs(search: Search) -> Panel:
    note = "If an early rung ranks configurations as the full training does, its points rise from left to right. "
    known = "; ".join(map(str, rung_correlations(search)))
    note += f"Rank correlation with the final error: {known}." if known else ""
    return one_figure("rungs", "Early against final error", note, figures.rungs(search.trials))
