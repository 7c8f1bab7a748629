"""What all tests share: the long form of those that repeat themselves."""

import pytest


def pytest_addoption(parser):
    parser.addoption("--long", action="store_true", help="the long form of the fault tests: more repetitions")


@pytest.fixture(scope="session")
def long(request):
    return request.config.getoption("--long")
