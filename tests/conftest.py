"""What all tests share: the long form of those that repeat themselves."""

import os
import secrets

import pytest

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
