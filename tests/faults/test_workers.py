"""A worker dies, a node dies: trials go on from their checkpoints, bit for bit."""

from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from tests.faults.harness import (
    add_node,
    assert_whole,
    checkpointed,
    driver,
    events,
    kill,
    patient_task,
    results,
    run,
    starts,
    story,
    write_experiment,
)


def test_a_killed_worker_costs_nothing(cluster, undisturbed, tmp_path, long, say):
    times, output = (5 if long else 1), tmp_path / "output"
    with driver(write_experiment(tmp_path), output, cluster.address) as search:
        while len(restarted(output)) < times:
            # In the middle of an epoch after the first one: it has saved something and trains on. A kill that comes
            # late on a busy machine hits the worker between two trials, costs nothing either, and does not count.
            known = set(restarted(output))
            search.until(lambda k=known: unfinished(output) & set(checkpointed(output)) - k, "a further checkpoint")
            begun = len(starts(output))
            kill(int(starts(output)[-1]["worker"]))
            search.until(lambda b=begun: len(starts(output)) > b, "another attempt")
        assert search.wait() == 0, search.text
    assert set(Counter(start["key"] for start in starts(output)).values()) == {1, 2}
    assert story(output) == story(undisturbed)
    say("a worker process, kill -9 in the middle of an epoch", len(restarted(output)))


def restarted(output: Path) -> list[str]:
    """Return the trials that were started again."""
    return [key for key, times in Counter(start["key"] for start in starts(output)).items() if times > 1]


def unfinished(output: Path) -> set[str]:
    """Return the trials that were started and have not ended."""
    ended = {event["key"] for event in events(output) if event["event"] == "end"}
    return {start["key"] for start in starts(output)} - ended


def test_a_killed_worker_of_two_takes_its_group_along_and_the_trial_goes_on(cluster, undisturbed, tmp_path, say):
    node = add_node(cluster, num_cpus=2, node_ip_address="127.0.0.3")
    settings = ("resources.workers=2", "budget.trials=2", "confirm.enabled=false")
    output, go = tmp_path / "output", tmp_path / "go"
    path = write_experiment(tmp_path, task=patient_task(go, passes=8))
    try:
        with driver(path, output, cluster.address, *settings) as search:
            search.until(lambda: checkpointed(output), "a checkpoint")
            kill(_second_worker(int(starts(output)[-1]["worker"])))
            go.touch()
            assert search.wait() == 0, search.text
        run(path, tmp_path / "calm", cluster.address, *settings)
    finally:
        cluster.remove_node(node)
    assert_whole(output)
    assert len(starts(output)) == 3
    assert results(output) == results(tmp_path / "calm")
    (plain,) = (k for k, end in results(output).items() if end["metrics"]["extra_propagation"] == 0)
    one, two = results(undisturbed)[plain]["metrics"], results(output)[plain]["metrics"]
    assert two == pytest.approx(one, rel=1e-3), "two workers train what one does"
    say("one of a trial's two workers, kill -9", 1)


def _second_worker(first: int) -> int:
    import psutil

    raylet = psutil.Process(first).parent()
    others = [p for p in raylet.children() if "RankActor" in " ".join(p.cmdline())]
    assert len(others) == 1
    return others[0].pid


def test_a_killed_node_loses_no_trial(cluster, undisturbed, tmp_path, say):
    node = add_node(cluster, num_cpus=1, num_gpus=1, node_ip_address="127.0.0.2")
    there, output, go = node.node_id[:8], tmp_path / "output", tmp_path / "go"
    settings = ("resources.gpus_per_worker=0.5", "resources.cpus_per_worker=0.5", "resources.max_concurrent_trials=4")
    path = write_experiment(tmp_path, task=patient_task(go, passes=8))
    with driver(path, output, cluster.address, *settings) as search:
        search.until(lambda: len(starts(output)) >= 4 and _moving(output, there), "a checkpoint on the second node")
        moved = _moving(output, there)
        workers = {int(s["worker"]) for s in starts(output) if s["node"].endswith(there)}
        kill(node.all_processes["raylet"][0].process.pid)
        for worker in workers:  # a node that dies takes its workers along; they would live on for seconds
            with suppress(ProcessLookupError):
                kill(worker)
        go.touch()
        assert search.wait() == 0, search.text
        assert "raylet" not in search.text, "Ray's report about the dead node belongs to log.txt"
    assert_whole(output)
    assert moved
    assert sorted(start["node"].endswith(there) for start in starts(output)[:4]) == [False, False, True, True]
    assert all(len({s["node"] for s in starts(output) if s["key"] == key}) == 2 for key in moved)
    same, calm = results(output), results(undisturbed)
    assert len(same.keys() & calm.keys()) >= 3
    assert all(same[key]["metrics"] == calm[key]["metrics"] for key in same.keys() & calm.keys())
    say("a node with half a GPU per trial, its raylet killed", 1)


def _moving(output, node: str) -> set[str]:
    """Return the unfinished trials of a node that have saved something."""
    there = {start["key"] for start in starts(output) if start["node"].endswith(node)}
    return there & set(checkpointed(output)) & unfinished(output)
