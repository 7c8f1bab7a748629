"""What MLflow is told of a trial: pure functions from the record's events to names and values."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rst_tune.analysis.records import Trial
from rst_tune.tracking import names
from rst_tune.tracking.progress import Point, milliseconds
from rst_tune.tracking.secrets import scrub, scrub_text

__all__ = ["Batch", "extend", "open_batch"]

Event = Mapping[str, Any]

# MLflow has no word for a trial that a rung stopped; FINISHED is kept for one that was trained to its end.
STATUSES = {"complete": "FINISHED", "stopped": "KILLED", "diverged": "FAILED", "failed": "FAILED"}

LEFT_OUT = ("curve", "coins")
"""Parts of a configuration that are drawings, not parameters."""
ROLES = {"search": "trial", "confirm": "confirm"}


@dataclass(kw_only=True)
class Batch:
    """Everything that one delivery has for one trial. `status` is set when the trial ended."""

    key: str
    name: str
    start: int
    identity: dict[str, str]
    params: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    metrics: list[Point] = field(default_factory=list)
    status: str = ""
    end: int | None = None


def open_batch(trial: Trial, search_id: str) -> Batch:
    """Return an empty batch of a trial: with what its run needs to be found, or created."""
    identity = {
        names.SEARCH_ID: search_id,
        names.TRIAL_KEY: trial.key,
        names.ROLE: ROLES[trial.role],
        names.CONFIG_ID: trial.config_id,
        names.FULL: str(trial.full).lower(),
    }
    started = trial.drawn if trial.started is None else trial.started
    return Batch(key=trial.key, name=_run_name(trial), start=milliseconds(started), identity=identity)


def extend(batch: Batch, event: Event, trial: Trial, first: bool, epochs: int) -> None:
    """Add one event of the trial to its batch. Later events of a batch win where they say the same thing."""
    if first:
        batch.params.update(_params(trial))
        batch.metrics.extend(_numbers(trial))
    match event["event"]:
        case "start":
            batch.tags.update(_place(event))
            if not batch.status:
                batch.tags[names.STATUS] = trial.status
        case "rung":
            batch.metrics.append(_point(names.RUNG_ERROR, event["error"], event["time"], event["epoch"]))
        case "end":
            _close(batch, event, trial, epochs)
        case "test":
            batch.metrics.append(_point(names.TEST_ERROR, event["error"], event["time"], trial.epochs))


def _close(batch: Batch, event: Event, trial: Trial, epochs: int) -> None:
    status = str(event.get("status", trial.status))
    batch.status, batch.end = STATUSES.get(status, "FAILED"), milliseconds(event["time"])
    batch.tags |= {names.STATUS: status, names.REASON: scrub_text(str(event.get("reason", "")))}
    batch.metrics.extend(_history(event, trial, epochs))
    batch.metrics.extend(_totals(event))


def _run_name(trial: Trial) -> str:
    role = "" if trial.role == "search" else " confirm"
    return f"{trial.number:04d} {trial.config.get('family', '')} c={trial.extra_propagation:.3g} s{trial.seed}{role}"


def _place(event: Event) -> dict[str, str]:
    return {name: str(event[name]) for name in ("node", "worker", "ray_trial") if event.get(name)}


def _params(trial: Trial) -> dict[str, str]:
    """Return the configuration as parameters: nested parts by dotted names, and the schedule also in one line."""
    plain = {k: v for k, v in trial.config.items() if k not in LEFT_OUT}
    schedule = plain.get("schedule", {})
    flat = dict(_flat(scrub(plain)))
    return {"schedule": _text(schedule), **flat, "seed": str(trial.seed), "epochs": str(trial.epochs)}


def _flat(value: Any, prefix: str = "") -> list[tuple[str, str]]:
    if not isinstance(value, Mapping):
        return [(prefix, _text(value))]
    return [pair for k, v in value.items() for pair in _flat(v, f"{prefix}.{k}" if prefix else str(k))]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def _numbers(trial: Trial) -> list[Point]:
    """Return the parameters that are numbers, as metrics: only metrics can be filtered by size."""
    config = trial.config
    schedule = config.get("schedule", {})
    found = {names.EXTRA_PROPAGATION: trial.extra_propagation, "seed": trial.seed, "epochs": trial.epochs}
    found |= {name: config[name] for name in names.NUMBERS if name in config}
    found |= {names.SCHEDULE_PREFIX + name: value for name, value in schedule.items()}
    return [_point(name, v, trial.drawn, 0) for name, v in found.items() if _is_number(v)]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _totals(event: Event) -> list[Point]:
    step = max((len(column) for column in event.get("history", {}).values()), default=0)
    found = {names.ERROR: event.get("error"), names.PAIRS_SPENT: event.get("pairs")}
    found |= {names.SECONDS_SPENT: event.get("seconds")}
    found |= {k: v for k, v in event.get("metrics", {}).items() if k not in event.get("history", {})}
    found.pop(names.EXTRA_PROPAGATION, None)
    return [_point(name, v, event["time"], step) for name, v in found.items() if _is_number(v)]


def _history(event: Event, trial: Trial, told: int) -> list[Point]:
    """Return the values of the epochs that were not told yet, spread evenly over the time of the training."""
    columns = {k: v for k, v in event.get("history", {}).items() if k != names.EXTRA_PROPAGATION}
    begin = trial.drawn if trial.started is None else trial.started
    pairs = columns.get(names.PAIRS, [])
    points = []
    for name, column in columns.items():
        times = _times(begin, event["time"], len(column))
        for epoch in range(told, len(column)):
            points.append(_point(name, column[epoch], times[epoch], epoch + 1))
            if name in names.BY_PAIRS and epoch < len(pairs) and math.isfinite(pairs[epoch]):
                points.append(_point(name + names.BY_PAIRS_SUFFIX, column[epoch], times[epoch], pairs[epoch]))
    return points


def _times(begin: float, end: float, count: int) -> list[float]:
    return [begin + (end - begin) * (n + 1) / count for n in range(count)]


def _point(name: str, value: Any, time: float, step: float) -> Point:
    return Point(name, math.nan if value is None else float(value), milliseconds(time), int(step))
