"""Nodes that join in the middle of a search, and a node that cannot write to the output directory or read the data."""

import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from rst_tune.records import Status, load
from tests.faults.harness import (
    PATIENCE,
    add_node,
    assert_whole,
    driver,
    patient_task,
    results,
    starts,
    write_experiment,
)
from tests.walk.sources import write_source

MANY = "resources.max_concurrent_trials=null"


def test_a_node_that_joins_in_the_middle_is_used(cluster, undisturbed, tmp_path, say):
    output, go, node = tmp_path / "output", tmp_path / "go", None
    # Nobody trains before both nodes have a trial.
    path = write_experiment(tmp_path, task=patient_task(go))
    try:
        with driver(path, output, cluster.address, MANY) as search:
            search.until(lambda: starts(output), "a running trial")
            node = add_node(cluster, num_cpus=1, num_gpus=1, node_ip_address="127.0.0.5")
            there = node.node_id[:8]
            search.until(lambda: any(s["node"].endswith(there) for s in starts(output)), "a trial on the new node")
            go.touch()
            assert search.wait() == 0, search.text
    finally:
        if node is not None:
            cluster.remove_node(node)
    assert_whole(output)
    assert_same_results(output, undisturbed)
    say("a node joins in the middle", 1)


def assert_same_results(output: Path, undisturbed: Path) -> None:
    """Configurations that both searches trained came out the same, wherever they were trained."""
    same, calm = results(output), results(undisturbed)
    assert len(same.keys() & calm.keys()) >= 3
    assert all(same[key]["metrics"] == calm[key]["metrics"] for key in same.keys() & calm.keys())


READ_ONLY = "mount --bind '{0}' '{0}' && mount -o remount,ro,bind '{0}'"
EMPTY = "mount -t tmpfs tmpfs '{0}'"


@contextmanager
def node_with(mount: str, folder: Path, cluster, cpus: int = 1):
    """Add a node in a mount namespace of its own, in which a folder is read-only or empty."""
    ray = f"{sys.executable} -m ray.scripts.scripts start --address={cluster.address} --node-ip-address=127.0.0.6"
    ray += f" --num-cpus={cpus} --num-gpus=1 --disable-usage-stats --block"
    # Ray gives it 30 s to start, which a busy machine may not keep: then once more.
    script = f"{mount.format(folder)} && for attempt in 1 2 3; do {ray}; done"
    command = ["unshare", "--mount", "--propagation", "private", "bash", "-c", script]
    node = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        wait_for_nodes(cluster, 2)
        yield
    finally:
        family = [psutil.Process(node.pid), *psutil.Process(node.pid).children(recursive=True)]
        for process in family:
            if process.is_running():
                process.kill()
        node.wait()
        wait_for_nodes(cluster, 1)  # the cluster is shared: no later test may count on this node


def can_unshare(folder: Path) -> bool:
    script = f"mount --bind '{folder}' '{folder}'"
    command = ["unshare", "--mount", "--propagation", "private", "bash", "-c", script]
    return os.geteuid() == 0 and subprocess.run(command, capture_output=True).returncode == 0


def test_trials_of_a_node_that_cannot_write_move_elsewhere(cluster, undisturbed, tmp_path, say):
    output, go = tmp_path / "output", tmp_path / "go"
    output.mkdir()
    if not can_unshare(output):
        pytest.skip("needs the right to make a mount namespace")
    experiment = write_experiment(tmp_path, task=patient_task(go))
    with node_with(READ_ONLY, output, cluster), driver(experiment, output, cluster.address, MANY) as search:
        search.until(lambda: len({start["node"] for start in starts(output)}) == 2, "a trial on each node")
        go.touch()
        assert search.wait() == 0, search.text
    moved = assert_moved(output)
    assert f"cannot write to {output}" in (output / "log.txt").read_text()
    assert_same_results(output, undisturbed)
    say("a mount that is read-only on one node", moved)


def assert_moved(output: Path) -> int:
    """Return how many trials another node had to take over; all of them came to a good end."""
    assert_whole(output)
    trials = load(output).trials
    assert {trial.status for trial in trials} <= {Status.COMPLETE, Status.STOPPED}, "a trial was lost to that node"
    nodes: dict[str, list[str]] = {}
    for start in starts(output):
        nodes.setdefault(start["key"], []).append(start["node"])
    moved = [places for places in nodes.values() if len(set(places)) == 2]
    assert moved, "the node was never tried"
    assert all(len(places) <= 2 for places in nodes.values()), "a trial was placed there again"
    return len(moved)


def test_trials_of_a_node_that_cannot_read_an_image_move_elsewhere(cluster, tmp_path, long, say):
    if not long:
        pytest.skip("`make faults` runs it; the node that cannot write is always tested")
    output, go, data = tmp_path / "output", tmp_path / "go", write_source("folder", tmp_path)
    hidden = tmp_path / str(data["root"]) / "train" / "class 1"
    if not can_unshare(hidden):
        pytest.skip("needs the right to make a mount namespace")
    task = {**patient_task(go), "data": data, "recipe": {"base": "digits", "epochs": 2, "batch_size": 8}}
    path = write_experiment(tmp_path, task=task, budget={"trials": 4}, confirm={"enabled": False})
    with node_with(EMPTY, hidden, cluster), driver(path, output, cluster.address, MANY) as search:
        search.until(lambda: len({start["node"] for start in starts(output)}) == 2, "a trial on each node")
        go.touch()
        assert search.wait() == 0, search.text
    moved = assert_moved(output)
    assert "cannot read the data" in (output / "log.txt").read_text()
    say("images that one node cannot read", moved)


def wait_for_nodes(cluster, count: int) -> None:
    end = time.monotonic() + PATIENCE
    while (alive := sum(node["Alive"] for node in cluster.global_state.node_table())) != count:
        assert time.monotonic() < end, f"there are {alive} nodes, not {count}"
        time.sleep(0.2)


def test_where_no_node_can_write_the_search_stops_with_a_message(cluster, tmp_path, say):
    output = tmp_path / "output"
    output.mkdir()
    if not can_unshare(output):
        pytest.skip("needs the right to make a mount namespace")
    with node_with(READ_ONLY, output, cluster, cpus=2):
        two = "resources.cpus_per_worker=2"  # it fits on that node only
        with driver(write_experiment(tmp_path), output, cluster.address, two) as search:
            assert search.wait() == 1, search.text
            assert "no node that has room for a trial can write to" in search.text
            assert "resume with: rst-tune run" in search.text
    assert not [trial for trial in load(output).trials if trial.status.has_ended]
    say("no node can write", 1)


def test_where_the_last_node_that_can_write_leaves_the_search_stops_with_a_message(cluster, tmp_path, long, say):
    if not long:
        pytest.skip("`make faults` runs it; that no node can write is always tested")
    output, gone = tmp_path / "output", False
    output.mkdir()
    if not can_unshare(output):
        pytest.skip("needs the right to make a mount namespace")
    with node_with(READ_ONLY, output, cluster, cpus=2):
        writable = add_node(cluster, num_cpus=2, node_ip_address="127.0.0.7")
        try:
            wait_for_nodes(cluster, 3)
            two = "resources.cpus_per_worker=2"  # it fits on these two nodes only
            with driver(
                write_experiment(tmp_path, budget={"trials": 40}), output, cluster.address, two, MANY
            ) as search:
                log = output / "log.txt"
                search.until(lambda: log.exists() and "trying elsewhere" in log.read_text(), "an excluded node")
                cluster.remove_node(writable)
                gone = True
                assert search.wait() == 1, search.text
                assert "no node that has room for a trial can write to" in search.text
        finally:
            if not gone:
                cluster.remove_node(writable)
    say("the last node that can write leaves", 1)
