"""Every trial as a flat row, for CSV, Parquet and JSON."""

import csv
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rst_tune.analysis.records import Search, Trial
from rst_tune.errors import unknown_name

__all__ = ["FORMATS", "trial_rows", "write_export"]

OWN = ("key", "number", "role", "status", "reason", "seed", "epochs", "full", "error", "test_error", "pairs", "seconds")
DRAWN = (
    "family",
    "schedule",
    "rule",
    "rule_options",
    "rho",
    "gamma_gnr",
    "gamma_rst",
    "extra_propagation",
    "coordinates",
)
PLACE = ("drawn", "started", "ended", "node", "worker", "ray_trial")


def trial_rows(search: Search) -> list[dict[str, Any]]:
    """Return one flat row a trial, all with the same columns; what is nested is JSON text.

    The columns: the trial, its configuration, where and when it ran, its last metrics (`metric_...`) and its history.
    """
    metrics = sorted({name for trial in search.trials for name in trial.metrics})
    return [_row(trial, metrics) for trial in search.trials]


def _row(trial: Trial, metrics: list[str]) -> dict[str, Any]:
    return {
        **{name: getattr(trial, name) for name in OWN},
        "config_id": trial.config_id,
        **{name: _flat(trial.config.get(name)) for name in DRAWN},
        **{name: getattr(trial, name) for name in PLACE},
        **{f"metric_{name}": trial.metrics.get(name) for name in metrics},
        "rungs": _flat(trial.rungs),
        "history": _flat(trial.history),
    }


def _flat(value: Any) -> Any:
    return json.dumps(value, sort_keys=True) if isinstance(value, Mapping | list | tuple) else value


def write_export(search: Search, path: Path | str, format: str) -> Path:  # noqa: A002 (the word of the command line)
    """Write every trial to a file and return its path."""
    if format not in FORMATS:
        raise unknown_name("format", format, FORMATS)
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    FORMATS[format](trial_rows(search), path)
    return path


def _columns() -> list[str]:
    return [*OWN, "config_id", *DRAWN, *PLACE, "rungs", "history"]


def _write_csv(rows: list[dict[str, Any]], path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]) if rows else _columns())
        writer.writeheader()
        writer.writerows(rows)


def _write_json(rows: list[dict[str, Any]], path: Path) -> None:
    # JSON has no NaN: it becomes null, as every reader expects.
    clean = [{k: None if isinstance(v, float) and v != v else v for k, v in row.items()} for row in rows]
    path.write_text(json.dumps(clean, indent=1, allow_nan=False), encoding="utf-8")


def _write_parquet(rows: list[dict[str, Any]], path: Path) -> None:
    # Imported where it is used: only Parquet needs it. It ships no types.
    import pyarrow as pa  # type: ignore[import-untyped]
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    columns = list(rows[0]) if rows else _columns()
    pq.write_table(pa.table({name: [row[name] for row in rows] for name in columns}), path)


FORMATS: Mapping[str, Callable[[list[dict[str, Any]], Path], None]] = {
    "csv": _write_csv,
    "json": _write_json,
    "parquet": _write_parquet,
}
