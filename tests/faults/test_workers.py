"""A worker dies, a node dies: trials go on from their checkpoints, bit for bit."""

import time
from contextlib import suppress

import pytest

from rst_tune.records import load
from tests.faults.harness import (
    assert_whole,
    checkpointed,
    driver,
    events,
    kill,
    results,
    run,
    starts,
    story,
    write_experiment,
)


def test_a_killed_worker_costs_nothing(cluster, undisturbed, tmp_path, long, say):
    times, output = (5 if long else 1), tmp_path / "output"
    killed: list[str] = []
    with driver(write_experiment(tmp_path), output, cluster.address) as search:
        for _ in range(times):
            # In the middle of an epoch after the first one: it has saved something and trains on.
            search.until(lambda: set(checkpointed(output)) - set(killed), "a further checkpoint")
            key = (set(checkpointed(output)) - set(killed)).pop()
            kill(int([s for s in starts(output) if s["key"] == key][-1]["worker"]))
            killed.append(key)
        assert search.wait() == 0, search.text
    restarted = [s["key"] for s in starts(output)]
    assert [restarted.count(key) for key in killed] == [2] * times
    assert story(output) == story(undisturbed)
    say("a worker process, kill -9 in the middle of an epoch", times)


def test_a_killed_worker_of_two_takes_its_group_along_and_the_trial_goes_on(cluster, undisturbed, tmp_path, say):
    node = cluster.add_node(num_cpus=2, node_ip_address="127.0.0.3")
    settings = ("resources.workers=2", "budget.trials=2", "confirm.enabled=false")
    try:
        run(write_experiment(tmp_path), tmp_path / "calm", cluster.address, *settings)
        output = tmp_path / "output"
        with driver(write_experiment(tmp_path), output, cluster.address, *settings) as search:
            search.until(lambda: checkpointed(output), "a checkpoint")
            kill(_second_worker(int(starts(output)[-1]["worker"])))
            assert search.wait() == 0, search.text
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
    node = cluster.add_node(num_cpus=1, num_gpus=1, node_ip_address="127.0.0.2")
    there, output = node.node_id[:8], tmp_path / "output"
    settings = ("resources.gpus_per_worker=0.5", "resources.cpus_per_worker=0.5", "resources.max_concurrent_trials=4")
    with driver(write_experiment(tmp_path), output, cluster.address, *settings) as search:
        search.until(lambda: len(starts(output)) >= 4 and _moving(output, there), "a checkpoint on the second node")
        moved = _moving(output, there)
        workers = {int(s["worker"]) for s in starts(output) if s["node"].endswith(there)}
        kill(node.all_processes["raylet"][0].process.pid)
        for worker in workers:  # a node that dies takes its workers along; they would live on for seconds
            with suppress(ProcessLookupError):
                kill(worker)
        killed = time.time()
        assert search.wait() == 0, search.text
        assert "raylet" not in search.text, "Ray's report about the dead node belongs to log.txt"
    assert_whole(output)
    ended = {trial.key: trial.ended_at for trial in load(output).trials}
    moved = {key for key in moved if ended[key] > killed}  # one may have ended in the moment of the kill
    assert sorted(start["node"].endswith(there) for start in starts(output)[:4]) == [False, False, True, True]
    assert all(len({s["node"] for s in starts(output) if s["key"] == key}) == 2 for key in moved)
    same, calm = results(output), results(undisturbed)
    assert len(same.keys() & calm.keys()) >= 3
    assert all(same[key]["metrics"] == calm[key]["metrics"] for key in same.keys() & calm.keys())
    say("a node with half a GPU per trial, its raylet killed", 1)


def _moving(output, node: str) -> set[str]:
    """Return the unfinished trials of a node that have saved something."""
    ended = {event["key"] for event in events(output) if event["event"] == "end"}
    there = {start["key"] for start in starts(output) if start["node"].endswith(node)}
    return there & set(checkpointed(output)) - ended
