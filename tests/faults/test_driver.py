"""The driver dies or is stopped: the same command goes on, and ends where an undisturbed search ends."""

import os
import random
import signal
import subprocess
import time

import pytest

from tests.faults.agreement import assert_front_agrees, assert_mlflow_agrees, assert_study_agrees
from tests.faults.harness import assert_whole, driver, events, gone, run, starts, story, write_experiment


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


@pytest.mark.parametrize("number", [signal.SIGINT], ids=["ctrl-c"])
def test_ctrl_c_ends_a_local_cluster_with_all_its_processes(undisturbed, tmp_path, number, say):
    output, path = tmp_path / "output", write_experiment(tmp_path)
    with driver(path, output, None) as search:
        search.until(lambda: starts(output), "a running trial")
        family = search.family()
        os.killpg(search.process.pid, number)  # as a terminal does: everyone in the foreground gets it
        assert search.wait() == 130, search.text
        assert len(family) > 3
        assert gone(family) == []
        assert "Resume with: rst-tune run" in search.text
    run(path, output, None)
    assert story(output) == story(undisturbed)
    say("Ctrl-C in a terminal, local cluster", 1)


def test_two_drivers_do_not_write_to_one_search(cluster, tmp_path):
    output, path = tmp_path / "output", write_experiment(tmp_path)
    with driver(path, output, cluster.address) as search:
        search.until(lambda: events(output), "the event log")
        other = subprocess.run(search.process.args, capture_output=True, text=True, timeout=200, cwd=tmp_path)
        assert other.returncode == 2
        assert "another process is running the search" in other.stderr
