"""A real cluster for the fault tests, started once per session, and an undisturbed search to compare with."""

import os
from pathlib import Path

import pytest

from tests.faults.harness import run, write_experiment

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def pytest_collection_modifyitems(items):
    for item in items:
        if HERE in Path(item.path).parents:
            item.add_marker(pytest.mark.faults)
            item.add_marker(pytest.mark.timeout(3600))  # a row starts many processes, on a machine that may be busy


@pytest.fixture(scope="session", autouse=True)
def environment():
    """What drivers and workers inherit. The misbehaving models must be importable on every node."""
    changes = {
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_niceness": "0",  # on a busy machine a nice worker starves, and every row takes minutes
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in changes.items():
            patch.setenv(name, value)
        yield


def _start_cluster(attempts: int = 3):
    """Start a head node. Ray gives its processes 30 s, which a busy machine may not keep: then once more."""
    import ray
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 1, "num_gpus": 1, "node_ip_address": ray.util.get_node_ip_address()}
    try:
        return Cluster(initialize_head=True, head_node_args=head)
    except Exception:
        if attempts == 1:
            raise
        return _start_cluster(attempts - 1)


@pytest.fixture(scope="session")
def cluster(environment):
    """A cluster of one node; a test may add another one, at an address of its own."""
    started = _start_cluster()
    yield started
    started.shutdown()


@pytest.fixture(scope="session")
def undisturbed(cluster, tmp_path_factory):
    """The output of a search that nothing happened to."""
    folder = tmp_path_factory.mktemp("undisturbed")
    run(write_experiment(folder), folder / "output", cluster.address)
    return folder / "output"
