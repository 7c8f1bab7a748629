"""The surroundings of drivers and nodes, and an undisturbed search to compare with."""

import os
from pathlib import Path

import pytest

from tests.faults.harness import run, write_experiment

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def pytest_collection_modifyitems(config, items):
    for item in items:
        if HERE in Path(item.path).parents:
            item.add_marker(pytest.mark.faults)
            if config.getoption("--long"):
                item.add_marker(pytest.mark.timeout(3600))  # a row starts many processes


@pytest.fixture(scope="session", autouse=True)
def environment():
    """What drivers and workers inherit. The misbehaving models must be importable on every node."""
    changes = {
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_niceness": "0",  # of the nodes that a test adds
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in changes.items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="session")
def undisturbed(cluster, tmp_path_factory):
    """The output of a search that nothing happened to."""
    folder = tmp_path_factory.mktemp("undisturbed")
    run(write_experiment(folder), folder / "output", cluster.address)
    return folder / "output"
