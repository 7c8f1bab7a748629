"""Tracking in the background: it never gets in the way of a search, whatever MLflow does."""

import logging
import os
import re
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest

from rst_tune import api
from rst_tune.errors import InputError
from rst_tune.files import BusyError, file_lock
from rst_tune.records import LOG_NAME, Status, TrialEnded, load
from rst_tune.tracking import SyncResult, Tracker, check_host, check_store, client, log_results, sync
from rst_tune.tracking.client import FOLDER, embedded_uri, resolve_uri
from rst_tune.tracking.syncer import Syncer
from tests.tracking.test_sync import same_but_for_the_course_of_the_front
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
    tracker = Tracker(live, interval=0.05)  # it may start before there is a log
    tracker.start()
    for upto in range(1, len(writer.events), 4):
        writer.save(live, upto)
    writer.save(live)
    result = tracker.close()
    assert (result.pending, result.problem) == (0, "")
    assert same_but_for_the_course_of_the_front(stored(live)) == same_but_for_the_course_of_the_front(stored(whole))
    assert sync(live) == SyncResult()


def test_the_front_is_a_picture_that_is_replaced_and_the_load_is_logged(directory: Path, stored) -> None:
    writer = small_search()
    middle = next(i for i, event in enumerate(writer.events) if isinstance(event, TrialEnded)) + 1
    writer.save(directory, middle)
    tracker = Tracker(directory, interval=0.05, draw_front=api._draw_front, system_metrics=True)
    tracker.start()
    end = time.monotonic() + 300
    while not (found := [*directory.glob("mlartifacts/*/artifacts/front.png")]) and time.monotonic() < end:
        time.sleep(0.05)
    early = found[0].read_bytes()
    writer.save(directory)
    assert tracker.close().problem == ""
    late = found[0].read_bytes()
    assert early != late == (directory / "front.png").read_bytes()
    assert early.startswith(b"\x89PNG")
    points = stored(directory)["search"]["points"]
    assert len(points["system/cpu_utilization_percentage"]) >= 1
    assert "system/system_memory_usage_percentage" in points


def test_a_result_is_shown_before_the_last_sync(directory: Path, monkeypatch: pytest.MonkeyPatch, stored) -> None:
    def run_search(_, output, *, on_start, **__):
        on_start(output)
        return load(small_search().save(output))

    order, close = [], Tracker.close

    def closing(self):
        order.append("last sync")
        return close(self)

    monkeypatch.setattr("rst_tune.tuning.search.run_search", run_search)
    monkeypatch.setattr(Tracker, "close", closing)
    monkeypatch.setattr("rst_tune.tracking.log_models", lambda *_, **__: None)  # a written search has none

    def show(found):
        order.append(f"{len(found.points)} points, report: {(directory / 'report.html').exists()}")

    api.search(api.load_experiment("digits"), directory, on_result=show)
    assert order == ["3 points, report: True", "last sync"]
    assert stored(directory)["search"]["status"] == "FINISHED"
    assert [*directory.glob("mlartifacts/*/artifacts/report.html")]


def test_an_unreachable_server_only_delays(directory: Path, caplog, stored) -> None:
    port = closed_port()
    unreachable = f"http://ann:{SECRET}@127.0.0.1:{port}"
    caplog.set_level(logging.INFO)
    tracker = Tracker(small_search().save(directory), uri=unreachable, interval=0.05)
    tracker.start()
    result = tracker.close()
    assert result.problem == f"127.0.0.1:{port} accepts no connection (Connection refused)"
    assert result.pending == len(small_search().events)
    mine = [record for record in caplog.records if record.name.startswith("rst_tune")]
    assert len(mine) == 1, "a problem is logged once"
    assert "rst-tune sync" in mine[0].getMessage()
    assert SECRET not in caplog.text + result.problem
    assert SECRET not in "".join(p.read_text() for p in (directory / FOLDER).iterdir())
    assert sync(directory, embedded_uri(directory)).pending == 0
    assert len(stored(directory)) == 13


@pytest.mark.parametrize("scheme", ["http", "postgresql+psycopg2"])
def test_a_sync_to_a_dead_server_says_why(directory: Path, scheme: str) -> None:
    port = closed_port()
    uri = f"{scheme}://ann:{SECRET}@127.0.0.1:{port}/db"
    assert sync(small_search().save(directory), uri).problem == (
        f"127.0.0.1:{port} accepts no connection (Connection refused)"
    )
    ok, text = check_store(directory, uri)
    assert not ok
    assert f"127.0.0.1:{port}" in text


def test_hosts_are_checked_without_credentials() -> None:
    assert check_host("sqlite:///x.db") == (True, "the driver delivers")
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        assert check_host(f"http://ann:{SECRET}@127.0.0.1:{port}") == (True, f"127.0.0.1:{port} accepts connections")
    assert check_host(f"http://127.0.0.1:{port}")[0] is False


def test_results_wait_for_the_store(directory: Path, tmp_path: Path) -> None:
    small_search().save(directory)
    (directory / "front.csv").write_text("a,b\n1,2\n")
    (directory / "front.png").write_bytes(b"\x89PNG\xff")
    secret = tmp_path / "experiment.yaml"
    secret.write_text(f"tracking: {{uri: 'http://ann:{SECRET}@host'}}\n")
    result = log_results(directory, ["front.csv", "front.png", secret], f"http://127.0.0.1:{closed_port()}")
    assert result.problem
    assert result.pending
    assert sync(directory).pending == 0
    found = {path.name: path.read_bytes() for path in (directory / "mlartifacts").rglob("*.*") if path.is_file()}
    assert found["front.csv"] == b"a,b\n1,2\n"
    assert found["front.png"] == b"\x89PNG\xff"
    assert {"experiment.yaml", "space.yaml"} <= set(found)
    assert SECRET.encode() not in b"".join(found.values())
    (directory / "front.csv").write_text("a,b\n3,4\n")
    (directory / "front.png").write_bytes(b"\x89PNG\xfe")
    assert log_results(directory, ["front.csv"]).pending == 0
    assert any(path.read_text().endswith("3,4\n") for path in (directory / "mlartifacts").rglob("front.csv"))
    assert any(path.read_bytes() == b"\x89PNG\xfe" for path in (directory / "mlartifacts").rglob("front.png"))


def test_a_file_that_is_missing_is_named(directory: Path) -> None:
    with pytest.raises(InputError, match=r"report\.html"):
        log_results(small_search().save(directory), ["report.html"])


def stored_bytes(directory: Path) -> dict[str, bytes]:
    """Return all that tracking wrote: the database, its artifacts and its notes."""
    paths = [directory / "mlflow.db", *(directory / "mlartifacts").rglob("*"), *(directory / FOLDER).rglob("*")]
    paths += list(directory.glob("mlflow.db-*"))
    return {str(path): path.read_bytes() for path in paths if path.is_file()}


@pytest.mark.parametrize("secret", ["hunter2-xyz", 'p/w?d#1"q', "a=b&c;d,e", "käse wasser"])
def test_no_secret_reaches_mlflow(directory: Path, monkeypatch: pytest.MonkeyPatch, secret: str) -> None:
    """The log is written here by hand, so what its own writer redacts is redacted by tracking as well."""
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", secret)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
    hidden = {
        "storage": f"postgresql://ann:{quote(secret, safe='')}@db/optuna",
        "uri": f"https://host/x?token={quote(secret)}",
        "dbPassword": secret,
        "headers": [{"X-Api-Key": secret}],
        "text": f"password={secret}",
    }
    writer = small_search()
    task = {**HEADER.experiment["task"], "model": {"name": "cnn", "options": hidden}}
    writer.events[0] = replace(HEADER, experiment={**HEADER.experiment, "task": task, "sampler": hidden})
    failed = writer.sample(0.99)
    writer.start(failed)
    writer.end(failed, 9.0, Status.FAILED, reason=f"Authorization: Bearer {secret} dbPassword={secret}")
    (writer.save(directory) / "notes.md").write_text(f"X-Api-Key: {secret} of s3://key:{secret}@bucket")
    assert log_results(directory, ["notes.md"]).problem == ""
    forms = {secret, quote(secret), quote(secret, safe="")}
    found = stored_bytes(directory)
    assert any(path.endswith("notes.md") for path in found)
    assert [path for path, content in found.items() for form in forms if form.encode() in content] == []


def test_secrets_that_nobody_registered_are_recognised_by_their_place(directory: Path) -> None:
    odd, plain = 'sl/ash?ha#sh"quo-7', "plain-9-secret"
    hidden = {
        "storage": f"postgresql://ann:{odd}@db/optuna",
        "nested": [{"dbPassword": odd, "X-Api-Key": odd, "url": f"http://host/x?token={plain}"}],
        "text": f"password={plain} X-Api-Key: {plain}",
    }
    writer = small_search()
    writer.events[0] = replace(HEADER, experiment={**HEADER.experiment, "sampler": hidden})
    failed = writer.sample(0.99)
    writer.start(failed)
    writer.end(failed, 9.0, Status.FAILED, reason=f"mysql://ann:{odd}@db refused dbPassword={plain}")
    assert sync(writer.save(directory)).problem == ""
    leaks = [(path, part) for path, content in stored_bytes(directory).items() for part in PARTS if part in content]
    assert leaks == []


PARTS = (b"sl/ash", b"ha#sh", b"quo-7", b"plain-9")


def test_a_password_in_a_uri_is_percent_encoded(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="percent-encoded") as caught:
        resolve_uri(tmp_path, "postgresql://ann:sl/ash?#@db/mlflow")
    assert "sl/ash" not in str(caught.value)


class TestResolveUri:
    """Which store a search uses."""

    def test_the_explicit_one_is_remembered_and_beats_the_environment(self, tmp_path, monkeypatch) -> None:
        assert resolve_uri(tmp_path).uri == embedded_uri(tmp_path)
        resolve_uri(tmp_path, "http://explicit", "name", remember=True)
        monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://environment")
        assert (resolve_uri(tmp_path).uri, resolve_uri(tmp_path).experiment) == ("http://explicit", "name")
        assert resolve_uri(tmp_path, "http://now").uri == "http://now"

    def test_the_environment_is_remembered_but_not_preferred(self, tmp_path, monkeypatch) -> None:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://before")
        resolve_uri(tmp_path, remember=True)
        monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://after")
        assert resolve_uri(tmp_path).uri == "http://after"
        monkeypatch.delenv("MLFLOW_TRACKING_URI")
        assert resolve_uri(tmp_path).uri == "http://before"

    def test_a_moved_directory_takes_its_store_along(self, tmp_path) -> None:
        resolve_uri(tmp_path / "a", remember=True)
        (tmp_path / "a").rename(tmp_path / "b")
        assert resolve_uri(tmp_path / "b").uri == embedded_uri(tmp_path / "b")

    def test_credentials_are_not_remembered_but_asked_for(self, tmp_path) -> None:
        assert SECRET in resolve_uri(tmp_path, f"http://ann:{SECRET}@h", remember=True).uri
        with pytest.raises(InputError, match="give it again"):
            resolve_uri(tmp_path)

    @pytest.mark.parametrize("uri", ["mlruns", "file:///mlruns"])
    def test_a_folder_is_no_store(self, tmp_path, uri: str) -> None:
        with pytest.raises(InputError, match="leave it out"):
            resolve_uri(tmp_path, uri)


class TestWriteAheadLog:
    """SQLite's write-ahead log is used on local file systems only."""

    MOUNTS = (
        "/dev/sda / ext4 rw 0 0\nserver:/x /home nfs4 rw 0 0\n/dev/sdb /home/local xfs rw 0 0\n"
        "//nas/b /mnt/with\\040space cifs rw 0 0\nbucket /mnt/s3 fuse.s3fs rw 0 0\n"
    )

    @pytest.mark.parametrize(
        ("path", "shared"),
        [
            ("/var/x/mlflow.db", False),
            ("/home/ann/mlflow.db", True),
            ("/home/local/mlflow.db", False),
            ("/mnt/with space/mlflow.db", True),
            ("/mnt/s3/a/b/mlflow.db", True),
            ("/mnt/s3x/mlflow.db", False),
        ],
    )
    def test_shared_file_systems_are_recognised(self, tmp_path: Path, path: str, shared: bool) -> None:
        (tmp_path / "mounts").write_text(self.MOUNTS)
        assert client._is_shared(Path(path), tmp_path / "mounts") is shared

    def test_the_journal_mode(self, directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        assert (directory / "mlflow.db").read_bytes()[18] == 2, "a write-ahead log, by SQLite's file format"
        monkeypatch.setattr(client, "_is_shared", lambda _: True)
        client.connect(embedded_uri(tmp_path))
        assert (tmp_path / "mlflow.db").read_bytes()[18] == 1


def test_two_syncs_of_one_search_exclude_each_other(directory: Path) -> None:
    syncer = Syncer(small_search().save(directory))
    with (
        file_lock(directory / FOLDER / "embedded.lock"),
        pytest.raises(BusyError, match=re.escape(f"syncing {directory} for 0.1 s")),
    ):
        syncer.run(lock_timeout=0.1)


def test_tracking_is_light_and_quiet_to_import(directory: Path) -> None:
    writer = Writer()
    writer.start(writer.sample(0.5))
    script = (
        "import sys, rst_tune.tracking as t; assert 'mlflow' not in sys.modules; "
        "import os, pathlib; print(t.sync(pathlib.Path(sys.argv[1])).pending); "
        "assert os.environ['MLFLOW_DISABLE_TELEMETRY'] == 'true'"
    )
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("MLFLOW", "DO_NOT"))}
    (directory / "mlflow.db").unlink()  # so that the tables are created, which is when MLflow prints messages
    command = [sys.executable, "-c", script, str(writer.save(directory))]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")


def test_what_was_delivered_is_on_the_disk(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log is flushed before its position is noted: a crash of the machine must not take delivered lines back."""
    flushed: list[str] = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (flushed.append(os.readlink(f"/proc/self/fd/{fd}")), real(fd))[1])
    syncer = Syncer(small_search().save(directory))
    syncer.run()
    assert flushed[0] == str(directory / LOG_NAME)
    flushed.clear()
    syncer.run()
    assert flushed == [], "nothing is written when nothing happened"
