"""The texts and numbers of the page as plain data: key figures, how the result was obtained, trials as columns."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from rst_tune.analysis.analysis import Analysis
from rst_tune.analysis.export import json_safe
from rst_tune.records import PERCENT_ERROR, SearchStarted, Status, TrialConfig
from rst_tune.report import formatting
from rst_tune.report.figures.style import rounded
from rst_tune.report.status import PHASES, budget_progress, plain_trainings, prior_text

Rows = list[tuple[str, str]]
# A copied configuration holds these only if they are not the defaults.
OPTIONAL = ("policy", "policy_options", "cap")


def key_figures(analysis: Analysis) -> Rows:
    """Return the few numbers beside the answer; those of the budget while the search runs."""
    search = analysis.search
    ended = sum(t.status.has_ended for t in search.trials)
    seeds = max((p.seeds for p in analysis.points), default=0)
    progress = budget_progress(search)
    rows = [
        ("state", PHASES[search.phase]),
        ("trials ended", f"{ended:,} of {len(search.trials):,}"),
        ("trained to the end", f"{len(search.finished()):,}"),
        ("seeds per front point", f"up to {seeds}" if seeds else formatting.MISSING),
        ("pairs spent", formatting.number(search.pairs)),
    ]
    rows += [("hypervolume", formatting.number(analysis.hypervolume))] if analysis.points else []
    if not search.done:
        rows.insert(2, ("running", f"{sum(t.status is Status.RUNNING for t in search.trials):,}"))
        rows += [
            ("of the budget", formatting.cost(progress["share"])),
            ("time left", formatting.duration(progress["eta"])),
        ]
    return rows


def account(analysis: Analysis) -> Rows:
    """Return what the trials say about how the result was obtained."""
    search, trials = analysis.search, analysis.search.trials
    started = [t.started_at for t in trials if t.started_at is not None]
    ended = [t.ended_at for t in trials if t.ended_at is not None]
    point = analysis.reference
    return [
        ("trials", _counts(t.status for t in trials)),
        ("roles", _counts(t.role for t in trials)),
        ("prior", prior_text(search) or "shipped"),
        ("seeds", formatting.format_value(sorted({t.seed for t in trials})[:20]) or "none"),
        ("lengths", _lengths(sorted({t.epochs for t in trials}))),
        ("propagation pairs", formatting.pairs(search.pairs, plain_trainings(search))),
        ("device-hours", formatting.number(search.device_hours)),
        ("workers", f"{len({(t.node, t.worker) for t in trials if t.started_at is not None})}"),
        ("first start", formatting.timestamp(min(started, default=None))),
        ("last end", formatting.timestamp(max(ended, default=None))),
        ("reference point",
         f"{search.metric.phrase(point[0])}, {analysis.baselines.noun} {formatting.multiple(point[1])}"
         if point else formatting.MISSING),
    ]  # fmt: skip


def _lengths(epochs: Sequence[int]) -> str:
    if len(epochs) > 6:
        return f"{epochs[0]} … {epochs[-1]} epochs ({len(epochs)} lengths)"
    return ", ".join(f"{count} epochs" for count in epochs) or "none"


def _counts(names: Iterable[str]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in Counter(names).most_common()) or "none"


def header_groups(header: SearchStarted) -> dict[str, Rows]:
    """Return the header of the record as groups of dotted names with their values.

    >>> header_groups(SearchStarted(name="a", experiment={"data": {"name": "digits"}}))
    {'search': [('name', 'a')], 'experiment': [('data.name', 'digits')]}
    """
    groups: dict[str, Rows] = {}
    for name, value in header.to_dict().items():
        if name in ("event", "time") or not value or value == asdict(PERCENT_ERROR):
            continue
        if isinstance(value, Mapping):
            groups[name] = _dotted(value)
        else:
            groups.setdefault("search", []).append((name, formatting.format_value(value)))
    return groups


def _dotted(tree: Mapping[str, Any], prefix: str = "") -> Rows:
    rows: Rows = []
    for name, value in tree.items():
        if isinstance(value, Mapping) and value:
            rows += _dotted(value, f"{prefix}{name}.")
        else:
            rows.append((f"{prefix}{name}", formatting.format_value(value)))
    return rows


def trial_columns(analysis: Analysis) -> dict[str, Any]:
    """Return every trial as columns. What a copied configuration needs has all its digits; the rest is rounded."""
    verdicts = {p.config_id: p.verdict for p in analysis.points}
    trials, metric = analysis.search.trials, analysis.search.metric
    configs = [t.config for t in trials]
    columns: dict[str, Any] = {
        "key": [t.key for t in trials],
        "number": [t.number for t in trials],
        "seed": [t.seed for t in trials],
        "epochs": [t.epochs for t in trials],
        "compute": rounded(t.compute for t in trials),
        "extra": rounded(c.extra_propagation for c in configs),
        "gamma_rst": rounded(c.gamma_rst for c in configs),
        "error": rounded(None if t.error is None else metric.value(t.error) for t in trials),
        "test": rounded(None if t.test_error is None else metric.value(t.test_error) for t in trials),
        "seconds": rounded(t.seconds for t in trials),
        "pairs": rounded(t.pairs for t in trials),
        "gamma_gnr": [c.gamma_gnr for c in configs],
        "verdict": _indexed([verdicts.get(t.config_id, "") for t in trials]),
        "status": _indexed([t.status for t in trials]),
        "role": _indexed([t.role for t in trials]),
    }
    for name in ("family", "rule", "schedule", "rule_options", "rho", "horizon"):
        columns[name] = _indexed([getattr(c, name) for c in configs])
    return columns | {name: _indexed([_unless_default(c, name) for c in configs]) for name in OPTIONAL}


def _unless_default(config: TrialConfig, name: str) -> Any:
    value, default = getattr(config, name), next(f.default for f in fields(TrialConfig) if f.name == name)
    return None if not value or value == default else value


def _indexed(values: Sequence[Any]) -> dict[str, list[Any]]:
    """Return a column of repeated values as the distinct values and an index per row."""
    places: dict[str, int] = {}
    at = [places.setdefault(json.dumps(json_safe(value)), len(places)) for value in values]
    return {"values": [json.loads(text) for text in places], "at": at}
