"""Reads everything that an MLflow store has of a search, free of the ids that differ from store to store."""

from typing import Any

from sqlalchemy import create_engine, text

from rst_tune.tracking.door import connect

Content = dict[str, dict[str, Any]]
OWN_TO_A_STORE = ("mlflow.parentRunId",)


def content(database: str) -> Content:
    """Return what is stored by trial key (the search itself is "search"), with every metric point there is."""
    client = connect(database)
    runs = [run for e in client.search_experiments() for run in client.search_runs([e.experiment_id], max_results=5000)]
    points = _points(database)
    found = {run.data.tags.get("trial_key", "search"): _run(run, points.get(run.info.run_id, {})) for run in runs}
    assert len(found) == len(runs), "a trial has two runs"
    return found


def _points(database: str) -> dict[str, dict[str, list[tuple[int, int, float | None]]]]:
    """Return run, metric, and then (step, time, value); a value that is no number is None."""
    engine = create_engine(database)
    found: dict[str, dict[str, list[tuple[int, int, float | None]]]] = {}
    with engine.connect() as connection:
        query = "select run_uuid, key, step, timestamp, value, is_nan from metrics order by step, timestamp, value"
        for run, key, step, when, value, is_nan in connection.execute(text(query)):
            found.setdefault(run, {}).setdefault(key, []).append((step, when, None if is_nan else value))
    engine.dispose()
    return found


def _run(run: Any, points: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": run.info.run_name,
        "status": run.info.status,
        "time": (run.info.start_time, run.info.end_time),
        "params": run.data.params,
        "tags": {k: v for k, v in run.data.tags.items() if k not in OWN_TO_A_STORE},
        "points": points,
        "latest": {name: repr(value) for name, value in run.data.metrics.items()},
        "data": [(d.dataset.name, d.dataset.digest) for d in run.inputs.dataset_inputs],
    }


def count_points(database: str) -> tuple[int, int]:
    """Return how many metric points a database has, and how many of them are different."""
    engine = create_engine(database)
    with engine.connect() as connection:
        total = connection.execute(text("select count(*) from metrics")).scalar_one()
        distinct = "select count(*) from (select distinct run_uuid, key, step, value, is_nan from metrics) as d"
        different = connection.execute(text(distinct)).scalar_one()
    engine.dispose()
    return total, different


def expected_points(lines: list[dict[str, Any]]) -> int:
    """Return how many points of trials a record calls for, counted from its lines alone."""
    static = 7  # extra_propagation, gamma_gnr, gamma_rst, rho, seed, epochs, schedule.p
    begun: set[str] = set()
    told: dict[str, int] = {}
    total = 0
    for line in lines:
        key, kind = line.get("key"), line["event"]
        if kind in ("start", "rung", "end", "test") and key not in begun:
            begun.add(key)
            total += static
        if kind in ("rung", "test"):
            total += 1
        if kind == "end":
            epochs = len(line["history"]["pairs"])
            new = max(0, epochs - told.get(key, 0))
            told[key] = max(epochs, told.get(key, 0))
            total += 3 + new * (len(line["history"]) + 2)  # error, pairs and seconds spent; two again by pairs
    return total
