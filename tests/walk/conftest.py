"""One Ray cluster for the whole walk."""

import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def address():
    """Start one node; its workers import the package that is tested."""
    import ray
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
        patch.setenv("RAY_worker_niceness", "0")
        head = {"num_cpus": 1, "node_ip_address": ray.util.get_node_ip_address()}
        cluster = Cluster(initialize_head=True, head_node_args=head)
    yield cluster.address
    cluster.shutdown()


@pytest.fixture
def own_path(monkeypatch):
    """Let each test extend its own copy of sys.path."""
    monkeypatch.setattr(sys, "path", list(sys.path))
