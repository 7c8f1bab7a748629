"""The state of a search as plain data: the one source of `status` and `status --json`."""

import math
from collections import Counter
from dataclasses import asdict
from typing import Any

from rst_tune.analysis.analysis import Analysis
from rst_tune.analysis.export import json_safe
from rst_tune.files import is_locked
from rst_tune.records import LOCK_NAME, Phase, Role, Search, Status

FAILURES = (Status.DIVERGED, Status.OUT_OF_MEMORY, Status.FAILED, Status.LOST)
NOT_RUNNING = "no process is running this search: the same `rst-tune run` command resumes it"
PHASES = {
    Phase.SEARCH: "searching",
    Phase.CONFIRM: "confirming",
    Phase.TEST: "reading the test set",
    Phase.DONE: "done",
}


def status_rows(analysis: Analysis) -> dict[str, Any]:
    """Return the state of a search, ready for JSON; what is unknown or not finite is None.

    `running` is whether a process is running the search, `hypervolume` that of the delivered front, `best_error` the
    lowest measured error of one finished trial and `best_value` the same as the metric is written, `share` the spent
    part of the budget and `eta` the remaining time in seconds.
    """
    search, point = analysis.search, analysis.reference
    best = min((t.error for t in search.finished() if t.error is not None), default=None)
    rows = {
        "name": search.name,
        "search_id": search.header.search_id,
        "directory": str(search.directory),
        "phase": str(search.phase),
        "prior": prior_text(search),
        "running": not search.done and is_locked(search.directory / LOCK_NAME),
        "counts": dict(Counter(t.status for t in search.trials).most_common()),
        "finished": len(search.finished()),
        "pairs": search.pairs,
        "plain_trainings": plain_trainings(search),
        "device_hours": search.device_hours,
        "budget": _budget(search),
        **budget_progress(search),
        "front_size": len(analysis.points),
        "hypervolume": analysis.hypervolume if analysis.points else None,
        "reference": {"error": point[0], "compute": point[1]} if point else None,
        "metric": search.metric.name,
        "best_error": best,
        "best_value": None if best is None else search.metric.value(best),
        "rung_correlations": [{**asdict(rung), "share": rung.share} for rung in analysis.rung_correlations],
        "last_failure": _last_failure(search),
        "updated_at": search.updated_at or None,
    }
    plain: dict[str, Any] = json_safe(rows)
    return plain


def prior_text(search: Search) -> str | None:
    """Return which earlier searches the prior was learnt from; None where the search has the shipped one."""
    prior = search.header.settings.prior
    return None if prior is None else prior.describe()


def _last_failure(search: Search) -> str | None:
    """Return the trial that failed last, with its reason; None where none failed."""
    failed = [t for t in search.trials if t.status in FAILURES]
    last = max(failed, key=lambda t: t.ended_at or 0.0, default=None)
    return None if last is None else f"#{last.number} {last.status}: {last.reason or 'no reason given'}"


def plain_trainings(search: Search) -> float | None:
    """Return the cost so far over that of one base-optimizer training of the recipe's length; None without trials."""
    configs = (t.config for t in search.trials)
    pairs = next((c.total_steps / c.horizon for c in configs if c.total_steps and c.horizon), None)
    return sum(t.pairs * t.config.pair_weight for t in search.trials) / pairs if pairs else None


def budget_progress(search: Search) -> dict[str, float | None]:
    """Return the share of the budget that is spent, and the seconds left at the pace so far."""
    limits = _budget(search).values()
    share = next((1 - budget["left"] / budget["limit"] for budget in limits if 0 < budget["limit"] < math.inf), None)
    if search.done or not share or share >= 1 or not search.header.time:
        return {"share": share, "eta": None}
    return {"share": share, "eta": (search.updated_at - search.header.time) * (1 - share) / share}


def _budget(search: Search) -> dict[str, dict[str, float]]:
    """Return each limit of the experiment's budget with what is left of it."""
    limits = search.header.settings.budget or {}
    spent = {
        "pairs": search.pairs,
        "trainings": plain_trainings(search) or 0.0,
        "epochs": sum(t.pairs * t.config.pair_weight for t in search.trials) / (search.header.steps_per_epoch or 1),
        "trials": float(len({t.config_id for t in search.trials if t.role is Role.SEARCH})),
        "device_hours": search.device_hours,
    }
    given = {name: limit for name in spent if (limit := limits.get(name)) is not None}
    return {name: {"limit": limit, "left": max(0.0, limit - spent[name])} for name, limit in given.items()}
