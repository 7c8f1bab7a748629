"""Reads everything that an MLflow store has of a search, free of the ids that differ from store to store."""

from typing import Any

from sqlalchemy import create_engine, text

from rst_tune.records import Event, ReferenceSet, RungReached, TestRead, TrialEnded, TrialStarted
from rst_tune.tracking import names
from rst_tune.tracking.client import connect
from tests.tracking.writing import histories

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
        "data": [
            (d.dataset.name, d.dataset.digest, {t.key: t.value for t in d.tags}.get("split_seed"))
            for d in run.inputs.dataset_inputs
        ],
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


def expected_points(events: list[Event], syncs: int = 1) -> int:
    """Return how many metric points an event log calls for, counted from its events alone."""
    static = 8  # extra_propagation, compute, gamma_gnr, gamma_rst, rho, seed, epochs, schedule.p
    per_end = 4 + 5  # error, pairs and seconds spent, gap; of the search: pairs, three counts, measured hypervolume
    started = {event.key for event in events if isinstance(event, TrialStarted)}
    values = sum(len(column) for history in histories(events).values() for column in history.values())
    twice = sum(len(history[name]) for history in histories(events).values() for name in names.BY_PAIRS)
    ends = sum(isinstance(event, TrialEnded) for event in events)
    single = sum(isinstance(event, RungReached | TestRead) for event in events)
    references = sum(isinstance(event, ReferenceSet) for event in events)
    front = 2 * syncs  # hypervolume and size
    return static * len(started) + values + twice + per_end * ends + single + 2 * references + front
