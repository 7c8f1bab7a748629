"""A team's MLflow: a real server on a real PostgreSQL, killed in the middle of a search."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from rst_tune.records import LOG_NAME, Event
from rst_tune.tracking import Tracker, log_results, sync
from rst_tune.tracking.client import FOLDER, embedded_uri
from tests.tracking import servers
from tests.tracking.reading import content, count_points, expected_points
from tests.tracking.writing import Writer, large_search, lines_of, small_search

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(servers.missing()), reason=servers.missing() or "it is there")]


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    with servers.postgres() as address:
        yield address


@pytest.fixture(scope="module")
def _server(database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.MlflowServer]:
    server = servers.MlflowServer(database, tmp_path_factory.mktemp("artifacts"), workers=1)
    server.start()
    yield server
    server.kill()


@pytest.fixture
def server(_server: servers.MlflowServer, database: str) -> servers.MlflowServer:
    """The server without any run."""
    engine = create_engine(database)
    with engine.begin() as connection:
        connection.execute(text("truncate runs, experiments restart identity cascade"))
    engine.dispose()
    return _server


def test_a_server_gets_what_sqlite_gets(server: servers.MlflowServer, database: str, directory: Path, stored) -> None:
    writer = small_search()
    sync(writer.save(directory))
    report = directory / "report.html"
    report.write_text("<h1>front</h1>")
    assert sync(directory, server.uri).pending == 0
    assert content(database) == stored(directory)
    assert count_points(database) == count_points(embedded_uri(directory))
    assert log_results(directory, [report], server.uri).pending == 0
    assert [p.read_text() for p in server.folder.rglob("report.html")] == ["<h1>front</h1>"]


def test_the_same_points_again_are_stored_once(server: servers.MlflowServer, database: str, directory: Path) -> None:
    sync(small_search().save(directory), server.uri)
    before = count_points(database), content(database)
    (note,) = (p for p in (directory / FOLDER).glob("*.json") if "offset" in p.read_text())
    note.write_text(json.dumps({**json.loads(note.read_text()), "offset": 0, "front": [], "described": False}))
    assert sync(directory, server.uri).metrics == before[0][0]
    note.unlink()
    assert sync(directory, server.uri).metrics == before[0][0]
    assert (count_points(database), content(database)) == before


def appended(writer: Writer, directory: Path) -> Iterator[Event]:
    """Append the events of a search to its log, as a running search does."""
    with (directory / LOG_NAME).open("a", buffering=1) as file:
        for event in writer.events:
            file.write(lines_of([event])[0])
            yield event


def points_in(database: str) -> int:
    return count_points(database)[0]


@pytest.mark.faults
def test_a_server_killed_in_the_middle_of_a_search_loses_and_doubles_nothing(
    server: servers.MlflowServer, database: str, directory: Path, say
) -> None:
    writer = large_search(trials=40, epochs=20)
    tracker = Tracker(directory, server.uri, interval=0.1)
    tracker.start()
    for number, _ in enumerate(appended(writer, directory)):
        if number == len(writer.events) // 3:
            while points_in(database) < 500:  # it is in the middle of delivering
                time.sleep(0.02)
            server.kill()
            interrupted = points_in(database)
        if number == 2 * len(writer.events) // 3:
            server.start()
    done = tracker.close(timeout=600)
    left = sync(directory)
    fronts = len(content(database)["search"]["points"]["front_size"])
    expected = expected_points(writer.events, syncs=fronts)
    assert 500 <= interrupted < expected
    assert left.pending == left.rejected == done.rejected == 0
    assert count_points(database) == (expected, expected)
    found = content(database)  # which asserts one run per trial
    assert len(found) == 41
    assert {run["status"] for run in found.values()} == {"FINISHED"}
    assert servers.PASSWORD not in json.dumps(found)
    say("the tracking server, killed and started again", 1, expected - count_points(database)[0])
