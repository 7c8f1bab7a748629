"""What all tests share: a real cluster, the order of files, the long form of those that repeat themselves."""

import os
import secrets
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

# Two processes test at a time: with a thread per core each, small matrices take many times as long.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Ray reads these when it is imported, which collecting the tests does.
os.environ.setdefault("RAY_AUTH_MODE", "token")
os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")


def pytest_addoption(parser):
    parser.addoption("--long", action="store_true", help="the long form of the fault tests: more repetitions")


@pytest.fixture(scope="session")
def long(request):
    return request.config.getoption("--long")


@pytest.hookimpl(trylast=True)  # tests/faults marks its items in a hook of its own
def pytest_collection_modifyitems(items):
    """Put the files that take minutes first: the last file decides when two processes end."""
    slow = {item.path for item in items if item.get_closest_marker("slow") or item.get_closest_marker("faults")}
    items.sort(key=lambda item: item.path not in slow)


def _start_cluster(attempts: int = 3):
    """Start a head node. Ray gives its processes 30 s, which a busy machine may not keep: then once more."""
    import ray
    from ray.cluster_utils import Cluster

    address = ray.util.get_node_ip_address()
    head = {"num_cpus": 1, "num_gpus": 1, "node_ip_address": address, "include_dashboard": False}
    try:
        return Cluster(initialize_head=True, head_node_args=head)
    except Exception:
        if attempts == 1:
            raise
        return _start_cluster(attempts - 1)


@pytest.fixture(scope="session")
def cluster():
    """A cluster of one node for all tests of a process; a test may add another node, at an address of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
        patch.setenv("RAY_worker_niceness", "0")  # on a busy machine a nice worker starves, and rows take minutes
        started = _start_cluster()
    yield started
    started.shutdown()


@pytest.fixture
def say(record_property):
    """Write a line of the fault table; it is printed at the end of the session."""

    def line(row: str, injections: int, lost: int = 0) -> None:
        record_property("fault", f"{row:<62} {injections:>3} injected, {lost} lost")

    return line


def pytest_terminal_summary(terminalreporter):
    """Print the fault table: one line for each row that held."""
    passed = terminalreporter.stats.get("passed", [])
    rows = [value for report in passed for name, value in report.user_properties if name == "fault"]
    if rows:
        terminalreporter.section("what was killed, and what was lost")
        for row in rows:
            terminalreporter.write_line(row)
