"""One synthetic search, its page, and one browser for all tests of this room."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "analysis")]

from browser import MISSING, Browser, browser  # noqa: E402
from synthetic import write_search  # noqa: E402

from rst_tune.analysis.records import Search, load  # noqa: E402
from rst_tune.report import page  # noqa: E402


@pytest.fixture(scope="session")
def search(tmp_path_factory) -> Search:
    return load(write_search(tmp_path_factory.mktemp("searches") / "small", trials=60))


@pytest.fixture(scope="session")
def other(tmp_path_factory) -> Search:
    return load(write_search(tmp_path_factory.mktemp("searches") / "other", trials=30, seed=3))


@pytest.fixture(scope="session")
def page_file(search, tmp_path_factory) -> Path:
    return page.write(search, tmp_path_factory.mktemp("pages") / "page.html")


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    if MISSING:
        pytest.skip(MISSING)
    with browser() as session:
        yield session
