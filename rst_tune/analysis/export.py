"""Every trial as a flat row, in CSV, Parquet and JSON."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from enum import Enum
from math import isfinite
from pathlib import Path
from typing import Any

from rst_tune.errors import unknown_name
from rst_tune.files import atomic_file, write_text
from rst_tune.records import Metric, Search, Trial

Rows = list[dict[str, Any]]

_OF_TRIAL = (
    "key", "number", "role", "status", "reason", "seed", "epochs", "full_horizon", "error", "test_error", "compute",
    "pairs", "seconds", "config_id",
)  # fmt: skip
_OF_CONFIG = (
    "family", "schedule", "rule", "rule_options", "policy", "policy_options", "cap", "rho", "gamma_gnr", "gamma_rst",
    "extra_propagation", "horizon", "effect", "strain", "lateness", "pair_time", "total_steps", "params",
)  # fmt: skip
_OF_RUN = ("sampled_at", "started_at", "ended_at", "node", "worker", "ray_trial", "rungs", "history")
COLUMNS = (*_OF_TRIAL, *_OF_CONFIG, *_OF_RUN)
FORMATS = ("csv", "json", "parquet")


def trial_rows(search: Search) -> Rows:
    """Return one flat row per trial, all with the same columns; nested values are JSON text.

    The columns: the trial, its configuration, where and when it ran, its history and its last metrics (`metric_...`).
    `error` is minimized; `metric` and `value` are it as the search's metric is written.
    """
    metrics = sorted({name for trial in search.trials for name in trial.metrics})
    return [_row(trial, metrics, search.metric) for trial in search.trials]


def _row(trial: Trial, metrics: list[str], metric: Metric) -> dict[str, Any]:
    values = {name: getattr(trial.config if name in _OF_CONFIG else trial, name) for name in COLUMNS}
    last = {f"metric_{name}": trial.metrics.get(name) for name in metrics}
    own = {"metric": metric.name, "value": None if trial.error is None else metric.value(trial.error)}
    return {**{name: _flat(value) for name, value in values.items()}, **last, **own}


def _flat(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    return json.dumps(json_safe(value), sort_keys=True) if isinstance(value, Mapping | list | tuple) else value


def json_safe(value: Any) -> Any:
    """Return plain data without NaN and infinity, which JSON does not have: they become null.

    >>> json_safe({"a": (1, float("inf")), "b": float("nan")})
    {'a': [1, None], 'b': None}
    """
    if isinstance(value, Mapping):
        return {name: json_safe(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_safe(item) for item in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def write_export(search: Search, path: Path, format: str) -> Path:  # noqa: A002 (the word of the command line)
    """Write every trial to a file and return its path."""
    if format not in FORMATS:
        raise unknown_name("format", format, FORMATS)
    rows = trial_rows(search)
    columns = list(rows[0]) if rows else COLUMNS
    if format == "csv":
        write_text(path, csv_text(rows, columns))
    elif format == "json":
        write_text(path, json.dumps(json_safe(rows), indent=1, allow_nan=False))
    else:
        # Imported on use: only Parquet needs it. It ships no types.
        import pyarrow as pa  # type: ignore[import-untyped]
        import pyarrow.parquet as pq  # type: ignore[import-untyped]

        with atomic_file(path) as file:
            pq.write_table(pa.table({name: [row[name] for row in rows] for name in columns}), file)
    return path


def csv_text(rows: Rows, columns: Sequence[str]) -> str:
    """Return rows as CSV under a head; what is nested becomes JSON text."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, fieldnames=columns)
    writer.writeheader()
    for row in rows:
        writer.writerow({k: json.dumps(v) if isinstance(v, dict | list) else v for k, v in row.items()})
    return text.getvalue()
