"""Two synthetic searches, their analyses, a page, and one browser for all tests of this room."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rst_tune.analysis.analysis import Analysis, analyze
from rst_tune.records import load
from rst_tune.report import page
from tests.analysis.synthetic import write_search
from tests.browser import MISSING, Browser, browser
from tests.report import builders


@pytest.fixture(scope="session")
def analysis(tmp_path_factory) -> Analysis:
    return analyze(load(write_search(tmp_path_factory.mktemp("searches") / "small", trials=60)))


@pytest.fixture(scope="session")
def other(tmp_path_factory) -> Analysis:
    return analyze(load(write_search(tmp_path_factory.mktemp("searches") / "other", trials=30, seed=3)))


@pytest.fixture(scope="session")
def lengths() -> Analysis:
    return builders.several_lengths()


@pytest.fixture(scope="session")
def page_file(analysis, tmp_path_factory) -> Path:
    return page.write(analysis, tmp_path_factory.mktemp("pages") / "page.html")


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    if MISSING:
        pytest.skip(MISSING)
    with browser() as session:
        yield session
