"""The disk is full, the directory read-only, files are damaged: one message, nothing lost, and it goes on."""

import json
import os
import subprocess
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from rst_tune.records import LOG_NAME, Status, load
from rst_tune.tuning.study import JOURNAL_NAME
from tests.faults.agreement import assert_front_agrees, assert_study_agrees
from tests.faults.harness import (
    EXPERIMENT,
    assert_whole,
    checkpointed,
    driver,
    events,
    patient_task,
    phases,
    run,
    starts,
    story,
    write_experiment,
)


def command(*words) -> bool:
    return subprocess.run([str(word) for word in words], capture_output=True, timeout=600).returncode == 0


@pytest.fixture
def small_disk(tmp_path):
    """An output directory on a file system of a few megabytes."""
    folder = tmp_path / "output"
    folder.mkdir()
    if os.geteuid() != 0 or not command("mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", folder):
        pytest.skip("needs the right to mount a small file system")
    yield folder
    command("umount", "--lazy", folder)


def fails_with_one_message(path: Path, output: Path, address: str) -> None:
    with driver(path, output, address) as search:
        assert search.wait() == 1, search.text
    assert_one_message(search)


def assert_one_message(search) -> None:
    text = Path(search.output.parent / "driver.txt").read_text()
    assert "Traceback" not in text, text
    assert text.count("error: ") == 1, text
    assert "resume with: rst-tune run" in text


def test_a_full_disk_stops_the_search_and_it_resumes_when_there_is_room(cluster, small_disk, tmp_path, say):
    task = {**EXPERIMENT["task"], "model": {"name": "tests.faults.fault_models:weighty"}}
    path = write_experiment(tmp_path, task=task, budget={"trials": 3}, confirm={"enabled": False})
    fails_with_one_message(path, small_disk, cluster.address)
    text = (tmp_path / "driver.txt").read_text()
    assert "No space left on device" in text, text
    assert not [trial for trial in load(small_disk).trials if trial.status in (Status.FAILED, Status.LOST)]
    assert all(json.loads(line) for line in (small_disk / LOG_NAME).read_bytes().splitlines())
    assert command("mount", "-o", "remount,size=100m", small_disk)
    run(path, small_disk, cluster.address)
    assert_whole(small_disk)
    assert {trial.status for trial in load(small_disk).trials} <= {Status.COMPLETE, Status.STOPPED}
    say("the disk is full", 1)


def test_a_disk_that_fills_while_the_report_is_written_loses_nothing(cluster, small_disk, tmp_path, say):
    path = write_experiment(tmp_path, budget={"trials": 3}, confirm={"enabled": False})
    assert command("mount", "-o", "remount,size=50m", small_disk)
    with driver(path, small_disk, cluster.address) as search:
        search.until(lambda: phases(small_disk)[-1:] == ["done"], "the end of the search")
        fill(small_disk / "filler")
        assert search.wait() == 1, search.text
    assert_one_message(search)
    assert "No space left on device" in search_text(small_disk)
    assert [p.name for p in small_disk.iterdir() if p.name.startswith(".")] == [], "half a file is left"
    for name in ("front.json", "front.csv", "report.html"):
        assert not (small_disk / name).exists() or (small_disk / name).stat().st_size > 0
    before = events(small_disk)
    (small_disk / "filler").unlink()
    run(path, small_disk, cluster.address)
    assert events(small_disk) == before, "something was trained again"
    assert_front_agrees(small_disk)
    assert (small_disk / "report.html").stat().st_size > 10_000
    say("the disk fills while front and page are written", 1)


def fill(path: Path) -> None:
    """Write until the file system has no room."""
    with suppress(OSError), path.open("wb", buffering=0) as file:
        while file.write(bytes(2**16)):
            pass


@contextmanager
def read_only(folder: Path):
    """Make everything in a folder read-only, for root as well."""
    if os.geteuid() == 0:
        if not command("chattr", "-R", "+i", folder):
            command("chattr", "-R", "-i", folder)
            pytest.skip("needs a file system with an immutable flag, because root writes anywhere")
    else:
        command("chmod", "-R", "a-w", folder)
    try:
        yield
    finally:
        command(*(("chattr", "-R", "-i") if os.geteuid() == 0 else ("chmod", "-R", "u+w")), folder)


def test_a_directory_that_becomes_read_only_stops_the_search(cluster, undisturbed, tmp_path, say):
    output, path = tmp_path / "output", write_experiment(tmp_path)
    with driver(path, output, cluster.address) as search:
        search.until(lambda: checkpointed(output), "a checkpoint")
        with read_only(output):
            assert search.wait() == 1, search.text
    assert_one_message(search)
    run(path, output, cluster.address)
    assert story(output) == story(undisturbed)
    say("the output directory becomes read-only", 1)


def test_damaged_files_are_named_and_set_aside(cluster, undisturbed, tmp_path, say):
    output, go = tmp_path / "output", tmp_path / "go"
    # Between the passes of the first trial, the base optimizer, and those of the second one, SAM.
    path = write_experiment(tmp_path, task=patient_task(go, passes=30))
    with driver(path, output, cluster.address) as search:
        search.until(lambda: len(starts(output)) > 1, "the second trial")
        key = starts(output)[-1]["key"]
        search.until(lambda: key in checkpointed(output), "its checkpoint")
        search.process.kill()
        search.process.wait()
    go.touch()
    damage_middle(output / "checkpoints" / key / "run.pt")
    half = cut_last_line(output / LOG_NAME)
    cut_last_line(output / JOURNAL_NAME)
    with driver(path, output, cluster.address) as search:
        assert search.wait() == 0, search.text
    assert f"{LOG_NAME}:{half}: a damaged line was dropped" in search_text(output)
    assert [p.name for p in (output / "damaged").iterdir() if p.name.startswith(key)]
    (trial,) = (t for t in load(output).trials if t.key == key)
    assert "a damaged checkpoint was set aside" in trial.reason
    assert_whole(output)
    assert story(output) == story(undisturbed)
    assert_study_agrees(output)
    say("a damaged checkpoint, a truncated line of event log and study", 3)


def search_text(output: Path) -> str:
    return (output.parent / "driver.txt").read_text()


def damage_middle(path: Path) -> None:
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 200] = bytes(200)
    path.write_bytes(content[: len(content) - 300])


def cut_last_line(path: Path) -> int:
    """Cut the last line in half, as a crash in the middle of a write does, and return its number."""
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]) + lines[-1][: len(lines[-1]) // 2])
    return len(lines)
