"""Tracking in the background: it never gets in the way of a search, whatever MLflow does."""

import logging
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from rst_tune import workflow
from rst_tune.analysis import records
from rst_tune.errors import InputError
from rst_tune.tracking import BusyError, Delivered, NullTracker, Tracker, log_results, sync
from rst_tune.tracking.cursor import FOLDER, exclusive
from rst_tune.tracking.door import embedded_uri
from rst_tune.tracking.secrets import scrub, scrub_text
from rst_tune.tracking.target import choose
from tests.tracking.writing import HEADER, Writer, small_search

SECRET = "hunter2"


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_a_tracker_follows_a_search(fresh_directory, stored) -> None:
    writer = small_search()
    whole, live = fresh_directory("whole"), fresh_directory("live")
    sync(writer.save(whole))
    tracker = Tracker(live, interval=0.05)  # it may start before the record does
    tracker.start()
    for upto in range(1, len(writer.lines), 4):
        writer.save(live, upto)
    writer.save(live)
    done = tracker.close()
    assert (done.left, done.problem) == (0, "")
    assert stored(live) == stored(whole)
    assert sync(live) == Delivered()


def test_a_null_tracker_has_the_shape_of_one() -> None:
    tracker = NullTracker()
    tracker.start()
    assert tracker.close() == Delivered()


def test_a_server_that_is_away_only_delays(directory: Path, caplog, stored) -> None:
    away = f"http://ann:{SECRET}@127.0.0.1:{closed_port()}"
    caplog.set_level(logging.INFO)
    tracker = Tracker(small_search().save(directory), uri=away, interval=0.05)
    tracker.start()
    done = tracker.close()
    assert done.problem
    assert done.left == len(small_search().lines)
    mine = [record for record in caplog.records if record.name.startswith("rst_tune")]
    assert len(mine) == 1, "a problem is told once"
    assert "rst-tune sync" in mine[0].getMessage()
    assert SECRET not in caplog.text + done.problem
    assert SECRET not in "".join(p.read_text() for p in (directory / FOLDER).iterdir())
    assert sync(directory, embedded_uri(directory)).left == 0
    assert len(stored(directory)) == 11


def test_results_wait_for_the_store(directory: Path, stored, tmp_path: Path) -> None:
    small_search().save(directory)
    (directory / "front.csv").write_text("a,b\n1,2\n")
    secret = tmp_path / "experiment.yaml"
    secret.write_text(f"tracking: {{uri: 'http://ann:{SECRET}@host'}}\n")
    done = log_results(directory, ["front.csv", secret], "It is **good**.", f"http://127.0.0.1:{closed_port()}")
    assert done.problem
    assert done.left
    assert sync(directory).left == 0
    assert stored(directory)["search"]["tags"]["mlflow.note.content"] == "It is **good**."
    found = {path.name: path.read_text() for path in (directory / "mlartifacts").rglob("*.*") if path.is_file()}
    assert found["front.csv"] == "a,b\n1,2\n"
    assert {"experiment.yaml", "space.yaml"} <= set(found)
    assert SECRET not in "".join(found.values())
    (directory / "front.csv").write_text("a,b\n3,4\n")
    assert log_results(directory, ["front.csv"], "").left == 0
    assert any(path.read_text().endswith("3,4\n") for path in (directory / "mlartifacts").rglob("front.csv"))


def test_the_description_is_of_the_delivered_front(directory: Path, stored) -> None:
    small_search().save(directory)
    front = workflow.finish(records.load(directory))
    note = stored(directory)["search"]["tags"]["mlflow.note.content"]
    assert note.startswith(front.answer)
    assert f"The front has {len(front.points)} points" in note
    assert f"a hypervolume of {front.hypervolume:.4g}." in note


def test_a_file_that_is_missing_is_named(directory: Path) -> None:
    with pytest.raises(InputError, match=r"report\.html"):
        log_results(small_search().save(directory), ["report.html"], "")


def test_no_secret_is_recorded(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", SECRET)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    writer = small_search()
    store = {"uri": f"https://ann:{SECRET}@host/x?token={SECRET}", "api_key": SECRET}
    writer.lines[0] = {**HEADER, "experiment": {**HEADER["experiment"], "store": store}}
    (writer.save(directory) / "notes.md").write_text(f"Authorization: Bearer {SECRET}{SECRET}")
    log_results(directory, ["notes.md"], f"see s3://key:{SECRET}@bucket")
    told = [p for p in directory.rglob("*") if p.is_file() and p.name not in ("record.jsonl", "notes.md")]
    told += list((directory / "mlartifacts").rglob("notes.md"))
    assert any(p.name == "mlflow.db" for p in told)
    assert [p.name for p in told if SECRET.encode() in p.read_bytes()] == []


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("postgresql://u:p@ss@h:5432/db", "postgresql://***@h:5432/db"),
        ("http://token@h/a?b=c", "http://***@h/a?b=c"),
        ("x?access_token=abc&n=1;X-Amz-Signature=ff", "x?access_token=***&n=1;X-Amz-Signature=***"),
        ("authorization: Bearer abcdefghij", "authorization: Bearer ***"),
        ("mail ann@example.org about http://h/p", "mail ann@example.org about http://h/p"),
    ],
)
def test_credentials_are_hidden(text: str, clean: str) -> None:
    assert scrub_text(text) == clean


def test_a_name_that_only_sounds_secret_stays() -> None:
    plain = {"tokens_per_batch": 3, "keys": ["a"], "number_of_tokens": "7"}
    assert scrub(plain) == plain
    assert scrub({"auth_token": "x", "nested": [{"db.password": "y"}]}) == {
        "auth_token": "***",
        "nested": [{"db.password": "***"}],
    }


class TestTarget:
    """Where a search is told to."""

    def test_the_given_one_is_remembered_and_beats_the_environment(self, tmp_path, monkeypatch) -> None:
        assert choose(tmp_path).uri == embedded_uri(tmp_path)
        choose(tmp_path, "http://given", "name", remember=True)
        monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://environment")
        assert (choose(tmp_path).uri, choose(tmp_path).experiment) == ("http://given", "name")
        assert choose(tmp_path, "http://now").uri == "http://now"

    def test_the_environment_is_remembered_but_not_preferred(self, tmp_path, monkeypatch) -> None:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://before")
        choose(tmp_path, remember=True)
        monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://after")
        assert choose(tmp_path).uri == "http://after"
        monkeypatch.delenv("MLFLOW_TRACKING_URI")
        assert choose(tmp_path).uri == "http://before"

    def test_a_moved_directory_takes_its_store_along(self, tmp_path) -> None:
        choose(tmp_path / "a", remember=True)
        (tmp_path / "a").rename(tmp_path / "b")
        assert choose(tmp_path / "b").uri == embedded_uri(tmp_path / "b")

    def test_credentials_are_not_remembered_but_asked_for(self, tmp_path) -> None:
        assert SECRET in choose(tmp_path, f"http://ann:{SECRET}@h", remember=True).uri
        with pytest.raises(InputError, match="give it again"):
            choose(tmp_path)

    @pytest.mark.parametrize("uri", ["mlruns", "file:///mlruns"])
    def test_a_folder_is_no_store(self, tmp_path, uri: str) -> None:
        with pytest.raises(InputError, match="leave it out"):
            choose(tmp_path, uri)


def test_two_deliveries_at_once_exclude_each_other(directory: Path) -> None:
    path = directory / FOLDER / "embedded.json"
    with exclusive(path, 0.0), pytest.raises(BusyError, match="another process"), exclusive(path, 0.1):
        pass


def test_tracking_is_light_and_quiet_to_import(directory: Path) -> None:
    writer = Writer()
    writer.start(writer.draw(0.5))
    script = (
        "import sys, rst_tune.tracking as t; assert 'mlflow' not in sys.modules; "
        "import os, pathlib; print(t.sync(pathlib.Path(sys.argv[1])).left); "
        "assert os.environ['MLFLOW_DISABLE_TELEMETRY'] == 'true'"
    )
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("MLFLOW", "DO_NOT"))}
    (directory / "mlflow.db").unlink()  # so that the tables are made, which is where MLflow talks
    command = [sys.executable, "-c", script, str(writer.save(directory))]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")
