"""Every trial as a flat row, in CSV, Parquet and JSON."""

import csv
import io
import json
from collections.abc import Callable, Mapping
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


def trial_rows(search: Search) -> Rows:
    """Return one flat row per trial, all with the same columns; nested values are JSON text.

    The columns: the trial, its configuration, where and when it ran, its history and its last metrics (`metric_...`).
    `error` is minimized; `metric` and `value` are it as the search's metric is written.
    """
    metrics = sorted({name for trial in search.trials for name in trial.metrics})
    return [_row(trial, metrics) | _value(trial, search.metric) for trial in search.trials]


def _row(trial: Trial, metrics: list[str]) -> dict[str, Any]:
    values = {name: getattr(trial.config if name in _OF_CONFIG else trial, name) for name in COLUMNS}
    last = {f"metric_{name}": trial.metrics.get(name) for name in metrics}
    return {**{name: _flat(value) for name, value in values.items()}, **last}


def _value(trial: Trial, metric: Metric) -> dict[str, Any]:
    return {"metric": metric.name, "value": None if trial.error is None else metric.value(trial.error)}


def _flat(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    return json.dumps(_finite(value), sort_keys=True) if isinstance(value, Mapping | list | tuple) else value


def _finite(value: Any) -> Any:
    """Return the value with null for numbers that JSON does not have."""
    if isinstance(value, Mapping):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def write_export(search: Search, path: Path | str, format: str) -> Path:  # noqa: A002 (the word of the command line)
    """Write every trial to a file and return its path."""
    if format not in FORMATS:
        raise unknown_name("format", format, FORMATS)
    FORMATS[format](trial_rows(search), Path(path))
    return Path(path)


def _write_csv(rows: Rows, path: Path) -> None:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, fieldnames=list(rows[0]) if rows else COLUMNS)
    writer.writeheader()
    writer.writerows(rows)
    write_text(path, text.getvalue())


def _write_json(rows: Rows, path: Path) -> None:
    write_text(path, json.dumps(_finite(rows), indent=1, allow_nan=False))


def _write_parquet(rows: Rows, path: Path) -> None:
    # Imported on use: only Parquet needs it. It ships no types.
    import pyarrow as pa  # type: ignore[import-untyped]
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    columns = list(rows[0]) if rows else COLUMNS
    with atomic_file(path) as file:
        pq.write_table(pa.table({name: [row[name] for row in rows] for name in columns}), file)


FORMATS: Mapping[str, Callable[[Rows, Path], None]] = {
    "csv": _write_csv,
    "json": _write_json,
    "parquet": _write_parquet,
}
