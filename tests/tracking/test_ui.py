"""MLflow's UI for a search, in a real browser: the report inline, the filters, and nothing left behind."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import plotly.graph_objects as go
import psutil
import pytest
import torch

from rst_tune.errors import InputError
from rst_tune.tracking import UiLinks, log_models, log_results, serve_ui
from tests.browser import MISSING, Browser, browser
from tests.tracking.writing import small_search

pytestmark = pytest.mark.slow
PICTURES = os.environ.get("RST_TUNE_PICTURES")


def test_a_port_in_use_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with (
            pytest.raises(InputError, match=f"{port} is not: take another one"),
            serve_ui(small_search().save(tmp_path), port=port),
        ):
            pass


def test_a_team_server_is_used_as_it_is(tmp_path: Path) -> None:
    with serve_ui(small_search().save(tmp_path), uri="http://ann:hunter2@127.0.0.1:9") as links:
        assert links.pid is None
        assert links.search.startswith("http://***@127.0.0.1:9/#/experiments/")


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UiLinks]:
    directory = small_search().save(tmp_path_factory.mktemp("review"))
    figure = go.Figure(go.Scatter(x=[0.0, 0.25, 0.75], y=[5.1, 4.1, 3.2]))
    figure.write_html(directory / "report.html", include_plotlyjs=True)
    (directory / "front.csv").write_text("family,extra_propagation\nconstant,0.25\n")
    log_results(directory, ["report.html", "front.csv"])
    log_models(directory, lambda _: torch.nn.Linear(3, 2))
    with serve_ui(directory) as links:
        yield links


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    if MISSING:
        pytest.skip(MISSING)
    with browser() as session:
        yield session


def picture(window: Browser, name: str) -> None:
    if PICTURES:
        window.screenshot(Path(PICTURES) / f"{name}.png")


def text_of(window: Browser) -> str:
    return str(window.run("return document.body.innerText"))


def test_the_page_of_the_search_describes_it(opened: UiLinks, window: Browser) -> None:
    window.open(opened.search)
    window.wait("document.body.innerText.includes('The front has 3 points')")
    window.wait("document.body.innerText.includes('hypervolume')")
    assert window.run("return document.querySelectorAll('a[href*=\"/models/m-\"]').length") >= 3
    picture(window, "search")
    assert "digits-quick" in text_of(window)


def test_the_report_is_shown_inline_and_offline(opened: UiLinks, window: Browser) -> None:
    window.open(opened.search.replace("?", "/artifacts/report.html?"))
    window.wait("document.querySelector('iframe')")
    window.post("/frame", id={"element-6066-11e4-a52e-4f735466cecf": window.find("iframe")})
    window.wait("document.querySelectorAll('.main-svg, canvas').length")
    window.post("/frame", id=None)
    time.sleep(1)
    picture(window, "report")
    outside = [url for url in window.requests() if url.startswith("http") and "127.0.0.1" not in url]
    assert outside == []


def test_the_filter_finds_the_front_at_the_compute_of_a_plain_training(opened: UiLinks, window: Browser) -> None:
    what = "the front at most at the compute of a plain training"
    assert opened.filters[what].endswith("metrics.compute <= 1 and tags.front = 'true'")
    window.open("about:blank")
    window.open(opened.links[what])
    window.wait("document.body.innerText.includes('constant 1x s0')")
    picture(window, "filter")
    shown = text_of(window)
    assert "1.25x" not in shown
    assert "1.75x" not in shown
    assert "3 matching runs" in shown


def test_the_compare_link_opens_the_runs_of_the_front(opened: UiLinks, window: Browser) -> None:
    window.open("about:blank")
    window.open(opened.compare)
    window.wait("document.body.innerText.includes('Comparing 3 Runs')")
    picture(window, "compare")


def test_a_kill_ends_the_whole_group(tmp_path: Path) -> None:
    script = (
        "import signal, sys; from rst_tune.tracking import serve_ui\n"
        "with serve_ui(sys.argv[1]) as links:\n    print(links.pid, flush=True)\n    signal.pause()"
    )
    directory = str(small_search().save(tmp_path))
    process = subprocess.Popen([sys.executable, "-c", script, directory], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    server = int(process.stdout.readline())
    group = [p for p in psutil.process_iter() if in_group(p, server)]
    assert group
    process.terminate()
    assert process.wait(600) == 128 + 15
    _, alive = psutil.wait_procs(group, timeout=300)
    assert alive == []


def in_group(process: psutil.Process, group: int) -> bool:
    try:
        return os.getpgid(process.pid) == group
    except ProcessLookupError:  # it has ended since it was listed
        return False
