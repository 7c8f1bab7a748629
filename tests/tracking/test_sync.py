"""MLflow's content is that of the event log: complete, once, in whatever pieces and after whatever crash it is sent."""

import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rst_tune import records
from rst_tune.analysis import analysis as analyses
from rst_tune.analysis import pareto
from rst_tune.records import LOG_NAME, EpochsReported, Phase, PhaseEntered, ReferenceSet, Status, TrialEnded
from rst_tune.tracking import has_results, log_results, names, store, sync
from rst_tune.tracking.client import FOLDER, connect, embedded_uri
from rst_tune.tracking.store import Store
from rst_tune.tracking.syncer import Syncer
from tests.tracking.reading import Content, count_points, expected_points
from tests.tracking.writing import HEADER, Writer, histories, lines_of, small_search

INVALID = "no % name * of a metric"


def test_everything_in_the_log_arrives_and_nothing_else(directory: Path, stored) -> None:
    writer = small_search()
    result = sync(writer.save(directory))
    expected = expected_points(writer.events)
    assert (result.pending, result.rejected, result.problem) == (0, 0, "")
    assert result.runs == 12
    assert result.metrics == expected
    assert count_points(embedded_uri(directory)) == (expected, expected)
    found = stored(directory)
    for key, history in histories(writer.events).items():
        points = found[key]["points"]
        for name, values in history.items():
            known = [None if math.isnan(value) else value for value in values]
            assert [(step, value) for step, _, value in points[name]] == list(enumerate(known, start=1))
        pairs = [int(value) for value in history["pairs"]]
        assert [step for step, _, _ in points["validation_error_by_pairs"]] == pairs


def test_a_finished_search_that_was_sent_is_not_sent_again(directory: Path) -> None:
    analysis = analyses.analyze(records.load(small_search().save(directory)))
    unconfirmed = replace(analysis, confirmed=())
    assert not has_results(unconfirmed)
    (directory / "front.csv").write_text("compute\n1\n")
    log_results(directory, [directory / "front.csv"])
    assert has_results(unconfirmed)
    assert not analysis.confirmed or not has_results(analysis)  # their models are missing
    (directory / "front.csv").write_text("compute\n2\n")
    assert not has_results(unconfirmed)


def test_runs_have_what_a_reviewer_needs(directory: Path, stored) -> None:
    sync(small_search().save(directory))
    found = stored(directory)
    stopped = next(run for run in found.values() if run["tags"].get("status") == "stopped")
    assert stopped["status"] == "KILLED"
    assert stopped["tags"]["reason"] == "rung 2: dominated"
    assert stopped["tags"]["front"] == "false"
    assert stopped["tags"]["node"] == "node-1"
    assert stopped["tags"]["ray_trial"].startswith("ray_")
    assert stopped["tags"]["mlflow.user"] == found["search"]["tags"]["mlflow.user"] != ""
    assert stopped["params"]["schedule"] == '{"family": "constant", "p": 0.5}'
    assert stopped["params"]["gamma_rst"] == "0.75"
    assert stopped["params"]["sampled.c"] == "0.5"
    assert not [name for name in stopped["params"] if "curve" in name or "preview" in name]
    assert stopped["points"]["gamma_rst"][0][2] == 0.75
    confirmed = [run for run in found.values() if run["tags"][names.ROLE] == "confirm"]
    assert len(confirmed) == 6
    assert all(run["tags"][names.FRONT] == "true" and run["tags"][names.P_NONDOMINATED] for run in confirmed)
    assert found["search"]["status"] == "FINISHED"
    tested = [run["points"]["test_error"][0][2] for run in found.values() if "test_error" in run["points"]]
    assert tested == [5.5]
    unusual = {run["tags"]["status"]: run["status"] for run in found.values() if run["status"] == "FAILED"}
    assert unusual == {"diverged": "FAILED", "out of memory": "FAILED"}


def test_children_carry_model_recipe_and_data(directory: Path, stored) -> None:
    sync(small_search().save(directory))
    expected = {
        "task.data.name": "digits",
        "task.data.validation": "0.2",
        "task.data.split_seed": "0",
        "task.model.name": "cnn-tiny",
        "task.model.options.width": "8",
        "task.recipe.epochs": "5",
        "task.recipe.lr": "0.1",
    }
    roles = []
    for run in stored(directory).values():
        roles.append(run["tags"][names.ROLE])
        own = {**expected, "task.data.split_seed": "replicate " + run["params"].get("seed", "")}
        wanted = own if roles[-1] == "confirm" else expected
        assert {name: value for name, value in run["params"].items() if name.startswith("task.")} == wanted
        assert run["data"] == [("digits", "b" * 36, wanted["task.data.split_seed"])]
    assert set(roles) == {"search", "trial", "confirm"}


def test_epochs_arrive_while_a_trial_trains(directory: Path, stored) -> None:
    writer = Writer()
    key = writer.sample(0.5)
    writer.start(key)
    syncer = Syncer(writer.save(directory))
    syncer.run()
    assert stored(directory)[key]["status"] == "RUNNING"
    assert stored(directory)[key]["tags"]["status"] == "running"
    for last in range(1, 4):
        writer.report(key, 4.0, last, last)
        writer.save(directory)
        assert syncer.run().pending == 0
        points = stored(directory)[key]["points"]
        event = writer.events[-1]
        assert isinstance(event, EpochsReported)
        assert points["train_loss"][-1] == (last, round(event.time * 1000), event.metrics["train_loss"][0])
    before = points
    writer.start(key)
    writer.report(key, 4.0, 2, 3)
    syncer = Syncer(writer.save(directory))
    assert syncer.run().metrics == 0, "epochs that are reported again are not sent again"
    writer.report(key, 4.0, 3, 5)
    writer.save(directory)
    syncer.run()
    points = stored(directory)[key]["points"]
    assert [step for step, _, _ in points["train_loss"]] == [1, 2, 3, 4, 5]
    assert points["train_loss"][:3] == before["train_loss"]


def test_events_are_sent_without_an_analysis_and_the_front_follows(fresh_directory, stored, monkeypatch) -> None:
    writer, whole, live = small_search(), fresh_directory("whole"), fresh_directory("live")
    sync(writer.save(whole))
    syncer = Syncer(writer.save(live))
    with monkeypatch.context() as patch:
        patch.setattr(Syncer, "analysis", None)
        assert syncer.run(with_front=False).problem == ""
        assert syncer.run(with_front=False).metrics == 0
    early = stored(live)
    assert {key: run["points"] for key, run in early.items() if key != "search"} == {
        key: run["points"] for key, run in stored(whole).items() if key != "search"
    }
    assert not any(names.FRONT in run["tags"] for run in early.values())
    syncer.run()
    assert stored(live) == stored(whole)


def test_a_lost_trial_that_is_resumed_runs_again(directory: Path, stored) -> None:
    writer = Writer()
    key = writer.sample(0.5)
    writer.start(key)
    writer.end(key, math.nan, Status.LOST, 2, reason="node died")
    sync(writer.save(directory))
    assert (stored(directory)[key]["status"], stored(directory)[key]["tags"]["status"]) == ("FAILED", "lost")
    writer.start(key)
    sync(writer.save(directory))
    assert (stored(directory)[key]["status"], stored(directory)[key]["tags"]["status"]) == ("RUNNING", "running")
    writer.end(key, 4.0, first=3)
    sync(writer.save(directory))
    assert (stored(directory)[key]["status"], stored(directory)[key]["tags"]["status"]) == ("FINISHED", "complete")


class TestTheFront:
    def test_hypervolume_and_size_are_those_of_the_analysis(self, directory: Path, stored) -> None:
        writer = small_search()
        sync(writer.save(directory))
        analysis = analyses.analyze(records.load(directory))
        points = stored(directory)["search"]["points"]
        ends = [event for event in writer.events if isinstance(event, TrialEnded)]
        place = (len(ends), round(ends[-1].time * 1000))
        assert points[names.HYPERVOLUME] == [(*place, pytest.approx(analysis.hypervolume))]
        assert points[names.FRONT_SIZE] == [(*place, len(analysis.points))]

    def test_the_measured_hypervolume_is_a_curve(self, directory: Path, stored) -> None:
        sync(small_search().save(directory))
        curve = stored(directory)["search"]["points"][names.HYPERVOLUME_MEASURED]
        assert [step for step, _, _ in curve] == list(range(1, 14))
        search = records.load(directory)
        means = [(row.error_mean, row.compute) for row in analyses.analyze(search).summaries]
        assert curve[-1][2] == pytest.approx(pareto.hypervolume(means, search.reference or (0.0, 0.0)))

    def test_a_late_reference_fills_in_the_earlier_hypervolumes(self, directory: Path, stored) -> None:
        writer = small_search()
        reference = next(event for event in writer.events if isinstance(event, ReferenceSet))
        writer.events.remove(reference)
        writer.events.append(reference)
        sync(writer.save(directory))
        steps = [step for step, _, _ in stored(directory)["search"]["points"][names.HYPERVOLUME_MEASURED]]
        assert sorted(set(steps)) == list(range(1, 14))

    def test_the_description_is_that_of_the_analysis(self, directory: Path, stored) -> None:
        sync(small_search().save(directory))
        analysis = analyses.analyze(records.load(directory))
        note = stored(directory)["search"]["tags"]["mlflow.note.content"]
        assert (note[:1].lower() + note[1:]).startswith(analysis.answer)
        assert f"The front has {len(analysis.points)} points and a hypervolume of {analysis.hypervolume:.4g}." in note

    def test_tags_follow_the_front(self, directory: Path, stored) -> None:
        writer = Writer()
        good, better = writer.sample(0.5), writer.sample(0.4)
        for key in (good, better):
            writer.start(key)
        writer.end(good, 4.0)
        sync(writer.save(directory))
        assert stored(directory)[good]["tags"]["front"] == "true"
        writer.end(better, 3.0)
        sync(writer.save(directory))
        assert {k: stored(directory)[k]["tags"]["front"] for k in (good, better)} == {good: "false", better: "true"}

    def test_a_state_is_analysed_once(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        calls: list[int] = []
        monkeypatch.setattr("rst_tune.tracking.syncer.analyze", lambda s: (calls.append(1), analyses.analyze(s))[1])
        writer = small_search()
        given = analyses.analyze(records.load(writer.save(directory)))
        assert sync(directory, analysis=given).pending == 0
        assert calls == [], "the caller's analysis is used"
        key = writer.sample(0.3)
        writer.start(key)
        writer.save(directory)
        syncer = Syncer(directory)
        syncer.run(analysis=given)
        assert calls == [1], "an analysis of another state is not"
        writer.report(key, 4.0)
        writer.save(directory)
        syncer.run()
        assert calls == [1], "an epoch does not change the front"
        writer.end(key, 4.0)
        writer.save(directory)
        syncer.run()
        assert calls == [1, 1]


def same_but_for_the_course_of_the_front(content: Content) -> Content:
    """Return the content without the front's earlier states, which depend on when the syncs were."""
    found = json.loads(json.dumps(content))
    for name in (names.HYPERVOLUME, names.FRONT_SIZE):
        found["search"]["points"][name] = found["search"]["points"][name][-1:]
    return dict(found)


@pytest.mark.parametrize("restarted", [False, True], ids=["one-process", "restarted-each-time"])
def test_pieces_give_the_same_as_the_whole(fresh_directory, stored, restarted: bool) -> None:
    writer = small_search()
    whole, pieces = fresh_directory("whole"), fresh_directory("pieces")
    sync(writer.save(whole))
    syncer = Syncer(writer.save(pieces, upto=1))
    for upto in range(2, len(writer.events) + 1, 3 if restarted else 1):
        syncer = Syncer(pieces) if restarted else syncer
        writer.save(pieces, upto)
        assert syncer.run().pending == 0
    writer.save(pieces)
    assert syncer.run().pending == 0
    assert same_but_for_the_course_of_the_front(stored(pieces)) == same_but_for_the_course_of_the_front(stored(whole))


@pytest.mark.parametrize("damage", ["nothing", "lost", "cut", "rewound", "new store"])
def test_sending_it_again_changes_nothing(fresh_directory, stored, damage: str) -> None:
    directory = small_search().save(fresh_directory("search"))
    sync(directory)
    before = stored(directory)
    note = directory / FOLDER / "embedded.json"
    if damage == "lost":
        note.unlink()
    elif damage == "cut":
        note.write_text(note.read_text()[:100])
    elif damage == "rewound":
        rewound = {"offset": 0, "tags": {}, "front": [], "described": False}
        note.write_text(json.dumps({**json.loads(note.read_text()), **rewound}))
    elif damage == "new store":
        directory = small_search().save(fresh_directory("other"))
        (directory / FOLDER).mkdir()
        (directory / FOLDER / note.name).write_text(note.read_text())
    assert sync(directory).pending == 0
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
    writer.add(ReferenceSet(error=60.0, compute=2.1))
    for cost in (0.0, 0.5):
        key = writer.sample(cost)
        writer.start(key)
        writer.end(key, 5.0 - cost)
    writer.add(PhaseEntered(phase=Phase.DONE))
    return writer


@pytest.mark.parametrize("after", [False, True], ids=["request-lost", "answer-lost"])
def test_a_connection_lost_at_any_request_loses_and_doubles_nothing(fresh_directory, stored, after: bool) -> None:
    whole = tiny_search().save(fresh_directory("whole"))
    sync(whole)
    expected, faults = stored(whole), 0
    for at in range(1, 100):
        directory = tiny_search().save(fresh_directory(f"fault-{at}"))
        syncer = Syncer(directory)
        syncer._store = Store(syncer.uri)
        syncer._store.client = Faulty(syncer._store.client, at, after)
        first = syncer.run()
        if not first.problem:
            break
        faults += 1
        assert "FaultError" in first.problem
        assert Syncer(directory).run().pending == 0
        assert stored(directory) == expected
    assert faults >= 12


def test_a_rejected_batch_does_not_block_the_others(directory: Path, caplog, stored) -> None:
    writer = Writer()
    bad, good = writer.sample(0.5), writer.sample(0.4)
    for key in (bad, good):
        writer.start(key)
        writer.end(key, 4.0, **({INVALID: [1.0]} if key == bad else {}))
    result = sync(writer.save(directory))
    assert (result.rejected, result.pending, result.runs) == (1, 0, 2)
    assert bad in caplog.text
    found = stored(directory)
    assert "train_loss" in found[good]["points"]
    assert found[bad]["status"] == "FINISHED", "its run does not stay open"
    writer.start(bad)
    writer.end(bad, 4.0, first=6)
    assert sync(writer.save(directory)).rejected == 0
    assert "error" in stored(directory)[bad]["points"], "later events go to the same run"


def test_an_incomplete_line_waits_and_a_damaged_one_is_left_out(directory: Path, caplog) -> None:
    writer = small_search()
    path = writer.save(directory) / LOG_NAME
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]) + b'{"event": "tri\n' + lines[-1][:-5])
    syncer = Syncer(directory)
    assert syncer.run().pending == 0
    assert syncer.index.state.phase is Phase.TEST
    assert "damaged line" in caplog.text
    with path.open("ab") as file:
        file.write(lines[-1][-5:])
    syncer.run()
    assert syncer.index.state.phase is Phase.DONE


def test_infinite_and_undefined_values_arrive(directory: Path, stored) -> None:
    writer = Writer(epochs=2)
    key = writer.sample(0.5)
    writer.start(key)
    writer.end(key, math.inf, Status.DIVERGED, 0)
    report = EpochsReported(key=key, first_epoch=1, metrics={"train_loss": [math.nan, math.inf]})
    writer.events.insert(-1, replace(report, time=writer.time))
    assert sync(writer.save(directory)).rejected == 0
    points = stored(directory)[key]["points"]
    assert [v for _, _, v in points["train_loss"]] == [None, sys.float_info.max]
    assert points["error"][0][2] == sys.float_info.max


def test_the_data_set_has_a_source_that_resolves(directory: Path) -> None:
    import mlflow.data

    sync(small_search().save(directory))
    client = connect(embedded_uri(directory))
    ids = [e.experiment_id for e in client.search_experiments()]
    parent = client.search_runs(ids, "tags.role = 'search'")[0]
    source = mlflow.data.get_source(parent.inputs.dataset_inputs[0].dataset)
    assert "rst_tune.training.data" in source.to_json()


def test_many_trials_in_parallel_give_the_same_as_one_after_the_other(
    fresh_directory, stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = small_search()
    bad = next(n for n, event in enumerate(writer.events) if isinstance(event, EpochsReported))
    event = writer.events[bad]
    assert isinstance(event, EpochsReported)
    writer.events[bad] = replace(event, metrics={**event.metrics, INVALID: [1.0]})
    alone, together = (writer.save(fresh_directory(name)) for name in ("alone", "together"))
    first = sync(alone)
    monkeypatch.setattr(store, "MIN_TRIALS_FOR_POOL", 2)
    second = sync(together)
    assert second == first
    assert second.rejected == 1
    assert stored(together) == stored(alone)


def test_a_log_without_a_search_is_not_sent(directory: Path) -> None:
    (directory / LOG_NAME).write_text("")
    assert sync(directory).runs == 0
    (directory / LOG_NAME).write_text(lines_of([HEADER])[0])
    assert sync(directory).problem == ""
