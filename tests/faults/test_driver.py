"""The driver dies or is stopped: the same command goes on, and ends where an undisturbed search ends."""

import json
import os
import random
import signal
import time
from pathlib import Path

import pytest

from tests.faults.agreement import assert_front_agrees, assert_mlflow_agrees, assert_study_agrees
from tests.faults.harness import assert_whole, driver, events, gone, phases, run, starts, story, write_experiment


def wait_for_growth(search, lines: int, extra: float) -> None:
    """Wait until the event log has so many new lines, then a moment, so that the fault falls anywhere."""
    begun = len(events(search.output))
    while search.process.poll() is None and len(events(search.output)) < begun + lines:
        time.sleep(0.01)
    time.sleep(extra)


def test_a_killed_driver_continues_and_does_nothing_twice(cluster, undisturbed, tmp_path, long, say):
    times, chance = (20 if long else 3), random.Random(20)
    path, injected, round_ = write_experiment(tmp_path), 0, 0
    tracked = "tracking.enabled=true"
    while injected < times:
        round_ += 1
        output = tmp_path / f"output{round_}"
        while injected < times:
            with driver(path, output, cluster.address, tracked) as search:
                wait_for_growth(search, chance.randrange(1, 12), chance.uniform(0, 0.5))
                over = search.process.poll() is not None
            if over:
                break
            injected += 1
        run(path, output, cluster.address, tracked)
        assert_whole(output)
        assert story(output) == story(undisturbed)
        assert_study_agrees(output)
        assert_mlflow_agrees(output)
        assert_front_agrees(output)
    say("the driver, kill -9 at random moments", injected)


def test_a_search_that_is_stopped_and_resumed_ends_with_the_same_record(cluster, undisturbed, tmp_path, long, say):
    times, chance, output = (5 if long else 2), random.Random(5), tmp_path / "output"
    path = write_experiment(tmp_path)
    for number in range(times):
        with driver(path, output, cluster.address) as search:
            wait_for_growth(search, chance.randrange(1, 7), chance.uniform(0, 0.3))
            search.signal(signal.SIGTERM if number % 2 else signal.SIGINT)
            assert search.wait() == 130, search.text
            assert f"Resume with: rst-tune run {path} --output {output} --address {cluster.address}" in search.text
            assert "Traceback" not in search.text
    run(path, output, cluster.address)
    assert story(output) == story(undisturbed)
    say("Ctrl-C and SIGTERM, stopped and resumed", times)


def test_ctrl_c_ends_a_local_cluster_with_all_its_processes(undisturbed, tmp_path, say):
    output, path = tmp_path / "output", write_experiment(tmp_path)
    with driver(path, output, None) as search:
        search.until(lambda: starts(output), "a running trial")
        family = search.family()
        os.killpg(search.process.pid, signal.SIGINT)  # as a terminal does: everyone in the foreground gets it
        assert search.wait() == 130, search.text
        assert len(family) > 3
        assert gone(family) == []
        assert "Resume with: rst-tune run" in search.text
    run(path, output, None)
    assert story(output) == story(undisturbed)
    say("Ctrl-C in a terminal, local cluster", 1)


def test_two_drivers_do_not_write_to_one_search(cluster, undisturbed, tmp_path, say):
    output, path = tmp_path / "output", write_experiment(tmp_path)
    with driver(path, output, cluster.address) as search:
        search.until(lambda: starts(output), "a running trial")
        for options in ((), ("--overwrite",)):
            with driver(path, output, cluster.address, options=options, text="other.txt") as other:
                assert other.wait() == 2, other.text
                assert "another process is running the search" in other.text
        assert search.wait() == 0, search.text
    assert story(output) == story(undisturbed), "the first driver was disturbed"
    assert not list(output.glob("previous-*"))
    say("a second driver, and one with --overwrite", 2)


def test_a_driver_killed_while_it_confirms_continues_the_confirmation(cluster, undisturbed, tmp_path, long, say):
    times, chance, output = (4 if long else 1), random.Random(7), tmp_path / "output"
    path = write_experiment(tmp_path)
    for _ in range(times):
        with driver(path, output, cluster.address) as search:
            search.until(lambda: "confirm" in phases(output), "the confirmation")
            time.sleep(chance.uniform(0, 2))
    run(path, output, cluster.address)
    assert_whole(output)
    assert story(output) == story(undisturbed)
    assert_study_agrees(output)
    say("the driver, kill -9 during the confirmation", times)


def test_a_driver_killed_while_it_writes_the_page_writes_it_when_it_is_called_again(cluster, tmp_path, long, say):
    times, chance, output = (12 if long else 2), random.Random(3), tmp_path / "output"
    path = write_experiment(tmp_path, budget={"trials": 3}, confirm={"enabled": False})
    with driver(path, output, cluster.address) as search:
        search.until(lambda: phases(output)[-1:] == ["done"], "the end of the search")
        time.sleep(chance.uniform(0, 0.5))
    before = events(output)
    for _ in range(times - 1):
        for name in ("front.json", "front.csv", "report.html"):
            (output / name).unlink(missing_ok=True)
        with driver(path, output, cluster.address) as search:
            search.until(lambda: list(output.glob(chance.choice(("front.json", "front.csv", ".report*")))), "a result")
            time.sleep(chance.uniform(0, 0.05))
        for name in ("front.json", "report.html"):
            assert not (output / name).exists() or is_whole(output / name)
    run(path, output, cluster.address)
    assert events(output) == before, "something was trained again"
    assert_front_agrees(output)
    assert is_whole(output / "report.html")
    say("the driver, kill -9 while it writes front and page", times)


def is_whole(path: Path) -> bool:
    text = path.read_text()
    return bool(json.loads(text)) if path.suffix == ".json" else text.rstrip().endswith("</html>")


def test_a_resume_on_a_machine_whose_clock_is_wrong_changes_no_result(cluster, undisturbed, tmp_path, long, say):
    if not long:
        pytest.skip("`make faults` runs it; a resume as such is always tested")
    output, path, shifts = tmp_path / "output", write_experiment(tmp_path), (-7200, +3600, 0)
    for number, shift in enumerate(shifts):
        before = f"import time; now = time.time; time.time = lambda: now() + {shift}"
        with driver(path, output, cluster.address, before=before) as search:
            if number == len(shifts) - 1:
                assert search.wait() == 0, search.text
            else:
                ended = count_ends(output)
                search.until(lambda e=ended: count_ends(output) > e + 1, "two more ended trials")
    assert story(output) == story(undisturbed)
    assert_study_agrees(output)
    say("the clock wrong by hours, right on resume", len(shifts) - 1)


def count_ends(output: Path) -> int:
    return sum(event["event"] == "end" for event in events(output))
