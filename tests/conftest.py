"""What all tests share: the long form of those that repeat themselves."""

import pytest


def pytest_addoption(parser):
    parser.addoption("--long", action="store_true", help="the long form of the fault tests: more repetitions")


@pytest.fixture(scope="session")
def long(request):
    return request.config.getoption("--long")


def pytest_terminal_summary(terminalreporter):
    """Print the fault table: one line for each row that held."""
    passed = terminalreporter.stats.get("passed", [])
    rows = [value for report in passed for name, value in report.user_properties if name == "fault"]
    if rows:
        terminalreporter.section("what was killed, and what was lost")
        for row in rows:
            terminalreporter.write_line(row)
