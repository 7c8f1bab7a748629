"""MLflow's content is the record's: whole, once, in whatever pieces and after whatever crash it is delivered."""

import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest

from rst_tune.analysis import pareto, records
from rst_tune.tracking import cursor, lanes, names, sync
from rst_tune.tracking.delivery import Delivery
from rst_tune.tracking.door import connect, embedded_uri
from rst_tune.tracking.store import Store
from tests.tracking.reading import count_points, expected_points
from tests.tracking.writing import Writer, small_search

ROWS_OF_THE_SEARCH = 6  # metrics of the search, for each trial that ended


def test_everything_in_the_record_arrives_and_nothing_else(directory: Path, stored) -> None:
    writer = small_search()
    done = sync(writer.save(directory))
    ends = sum(line["event"] == "end" for line in writer.lines)
    expected = expected_points(writer.lines) + ends * ROWS_OF_THE_SEARCH + 2  # the reference point
    assert done.left == done.refused == 0
    assert done.runs == 10
    assert done.metrics == expected
    assert count_points(embedded_uri(directory)) == (expected, expected)
    for line in writer.lines:
        if line["event"] == "end" and line["status"] == "complete":
            points = stored(directory)[line["key"]]["points"]
            assert [(s, v) for s, _, v in points["train_loss"]] == list(
                enumerate(line["history"]["train_loss"], start=1)
            )
            pairs = [int(p) for p in line["history"]["pairs"]]
            assert [s for s, _, _ in points["validation_error_by_pairs"]] == pairs
            break


def test_runs_say_what_a_reviewer_needs(directory: Path, stored) -> None:
    sync(small_search().save(directory))
    found = stored(directory)
    stopped = next(run for run in found.values() if run["tags"].get("status") == "stopped")
    assert stopped["status"] == "KILLED"
    assert stopped["tags"]["reason"] == "rung 2: dominated"
    assert stopped["tags"]["front"] == "false"
    assert stopped["tags"]["node"] == "node-1"
    assert stopped["tags"]["ray_trial"].startswith("ray_")
    assert stopped["params"]["schedule"] == '{"family": "constant", "p": 0.5}'
    assert stopped["params"]["gamma_rst"] == "0.75"
    assert "curve" not in stopped["params"]
    assert stopped["points"]["gamma_rst"][0][2] == 0.75
    confirmed = [run for run in found.values() if run["tags"][names.ROLE] == "confirm"]
    assert len(confirmed) == 6
    assert all(run["tags"][names.FRONT] == "true" and run["tags"][names.P_NONDOMINATED] for run in confirmed)
    assert found["search"]["status"] == "FINISHED"
    assert found["search"]["data"] == [("digits", "b" * 36)]
    tested = [run["points"]["test_error"][0][2] for run in found.values() if "test_error" in run["points"]]
    assert tested == [5.5]


def test_hypervolume_is_the_one_of_the_analysis(directory: Path, stored) -> None:
    sync(small_search().save(directory))
    told = stored(directory)["search"]["points"][names.HYPERVOLUME]
    _, _, value = pareto.hypervolume_history(records.load(directory))[-1]
    assert told[-1][2] == pytest.approx(value)


def test_a_reference_that_comes_late_fills_in_the_earlier_hypervolumes(directory: Path, stored) -> None:
    writer = small_search()
    reference = next(line for line in writer.lines if line["event"] == "reference")
    writer.lines.remove(reference)
    writer.lines.append(reference)
    sync(writer.save(directory))
    steps = [step for step, _, _ in stored(directory)["search"]["points"][names.HYPERVOLUME]]
    assert sorted(set(steps)) == list(range(1, 12))


@pytest.mark.parametrize("restarted", [False, True], ids=["one-process", "restarted-each-time"])
def test_pieces_give_the_same_as_the_whole(fresh_directory, stored, restarted: bool) -> None:
    writer = small_search()
    whole, pieces = fresh_directory("whole"), fresh_directory("pieces")
    sync(writer.save(whole))
    delivery = Delivery(writer.save(pieces, upto=1))
    for upto in range(2, len(writer.lines) + 1, 3 if restarted else 1):
        delivery = Delivery(pieces) if restarted else delivery
        writer.save(pieces, upto)
        assert delivery.run().left == 0
    writer.save(pieces)
    assert delivery.run().left == 0
    assert stored(pieces) == stored(whole)


@pytest.mark.parametrize("damage", ["nothing", "lost", "cut", "rewound", "new store"])
def test_telling_it_again_changes_nothing(fresh_directory, stored, damage: str) -> None:
    directory = small_search().save(fresh_directory("search"))
    sync(directory)
    before = stored(directory)
    note = directory / cursor.FOLDER / "embedded.json"
    if damage == "lost":
        note.unlink()
    elif damage == "cut":
        note.write_text(note.read_text()[:100])
    elif damage == "rewound":
        note.write_text(json.dumps({**json.loads(note.read_text()), "offset": 0, "tags": {}, "introduced": False}))
    elif damage == "new store":
        directory = small_search().save(fresh_directory("other"))
        (directory / cursor.FOLDER).mkdir()
        (directory / cursor.FOLDER / note.name).write_text(note.read_text())
    assert sync(directory).left == 0
    assert stored(directory) == before


class FaultError(Exception):
    """Stands for a lost connection."""


class Faulty:
    """A real client whose n-th writing request fails: before it reaches the store, or after."""

    WRITES = (
        "create_experiment",
        "create_run",
        "log_batch",
        "set_terminated",
        "log_text",
        "log_inputs",
        "log_artifact",
    )

    def __init__(self, client: Any, at: int, after: bool) -> None:
        self._client, self._left, self._after = client, at, after

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._client, name)
        return self._counted(real) if name in self.WRITES else real

    def _counted(self, real: Any) -> Any:
        def request(*args: Any, **options: Any) -> Any:
            self._left -= 1
            if self._left == 0 and not self._after:
                raise FaultError
            answer = real(*args, **options)
            if self._left == 0:
                raise FaultError
            return answer

        return request


def tiny_search() -> Writer:
    writer = Writer(epochs=2)
    writer.add("reference", error=60.0, extra_propagation=1.1)
    for cost in (0.0, 0.5):
        key = writer.draw(cost)
        writer.start(key)
        writer.end(key, 5.0 - cost)
    writer.add("phase", name="done")
    return writer


@pytest.mark.parametrize("after", [False, True], ids=["request-lost", "answer-lost"])
def test_a_connection_lost_at_any_request_loses_and_doubles_nothing(fresh_directory, stored, after: bool) -> None:
    whole = tiny_search().save(fresh_directory("whole"))
    sync(whole)
    expected, faults = stored(whole), 0
    for at in range(1, 100):
        directory = tiny_search().save(fresh_directory(f"fault-{at}"))
        delivery = Delivery(directory)
        delivery._store = Store(delivery.uri)
        delivery._store.client = Faulty(delivery._store.client, at, after)
        first = delivery.run()
        if not first.problem:
            break
        faults += 1
        assert "FaultError" in first.problem
        assert Delivery(directory).run().left == 0
        assert stored(directory) == expected
    assert faults >= 10


def test_the_front_moves(directory: Path, stored) -> None:
    writer = Writer()
    good, better = writer.draw(0.5), writer.draw(0.4)
    for key in (good, better):
        writer.start(key)
    writer.end(good, 4.0)
    sync(writer.save(directory))
    assert stored(directory)[good]["tags"]["front"] == "true"
    writer.end(better, 3.0)
    sync(writer.save(directory))
    assert {k: stored(directory)[k]["tags"]["front"] for k in (good, better)} == {good: "false", better: "true"}


def test_a_batch_that_the_store_refuses_does_not_hold_up_the_others(directory: Path, caplog, stored) -> None:
    writer = Writer()
    bad, good = writer.draw(0.5), writer.draw(0.4)
    for key in (bad, good):
        writer.start(key)
        writer.end(key, 4.0)
    end = next(line for line in writer.lines if line["event"] == "end" and line["key"] == bad)
    end["history"]["no % name * of a metric"] = [1.0]
    done = sync(writer.save(directory))
    assert (done.refused, done.left) == (1, 0)
    assert bad in caplog.text
    assert "train_loss" in stored(directory)[good]["points"]


def test_a_line_that_is_being_written_waits_and_a_damaged_one_is_left_out(directory: Path, caplog) -> None:
    writer = small_search()
    path = writer.save(directory) / records.RECORD_NAME
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]) + b'{"event": "tri\n' + lines[-1][:-5])
    delivery = Delivery(directory)
    assert delivery.run().left == 0
    assert delivery.tail.state.phase == "test"
    assert "damaged line" in caplog.text
    with path.open("ab") as file:
        file.write(lines[-1][-5:])
    delivery.run()
    assert delivery.tail.state.phase == "done"


def test_infinite_and_missing_values_arrive(directory: Path, stored) -> None:
    writer = Writer(epochs=2)
    key = writer.draw(0.5)
    writer.start(key)
    writer.end(key, math.inf, "diverged")
    writer.lines[-1]["history"]["train_loss"] = [math.nan, None]
    assert sync(writer.save(directory)).refused == 0
    points = stored(directory)[key]["points"]
    assert [v for _, _, v in points["train_loss"]] == [None, None]
    assert points["error"][0][2] == sys.float_info.max


def test_the_data_set_has_a_source_that_resolves(directory: Path) -> None:
    import mlflow.data

    sync(small_search().save(directory))
    client = connect(embedded_uri(directory))
    ids = [e.experiment_id for e in client.search_experiments()]
    parent = client.search_runs(ids, "tags.role = 'search'")[0]
    source = mlflow.data.get_source(parent.inputs.dataset_inputs[0].dataset)
    assert "rst_tune.training.data" in source.to_json()


def test_many_trials_at_once_give_the_same_as_one_after_the_other(
    fresh_directory, stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = small_search()
    writer.lines[6]["history"]["no % name * of a metric"] = [1.0]
    alone, together = (writer.save(fresh_directory(name)) for name in ("alone", "together"))
    first = sync(alone)
    monkeypatch.setattr(lanes, "WORTH_IT", 2)
    second = sync(together)
    assert second == first
    assert second.refused == 1
    assert stored(together) == stored(alone)
