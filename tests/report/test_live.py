"""`rst-tune watch`: the page of a search that is really running, in a real Chromium; and what its server refuses."""

import http.client
import json
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from rst_tune.analysis.analysis import analyze
from rst_tune.errors import InputError
from rst_tune.files import file_lock
from rst_tune.records import LOCK_NAME, LOG_NAME, load
from rst_tune.report import live
from rst_tune.report.status import NOT_RUNNING, status_rows
from rst_tune.tracking.client import connect, embedded_uri
from tests.analysis.synthetic import write_search

ROOT = Path(__file__).parents[2]
# Epochs take their time until the test has seen what it wants to see; then the search ends quickly.
TRAINING = """
import time
from pathlib import Path

import torch


def train(trial):
    x = torch.linspace(-1, 1, 64).unsqueeze(1)
    model = torch.nn.Linear(1, 1)
    opt = trial.optimizer(torch.optim.SGD(model.parameters(), lr=0.1), model, steps_per_epoch=1)
    for _ in trial.epochs():
        opt.step(lambda: (model(x) - x.sin()).square().mean())
        if not Path({gate!r}).exists():
            time.sleep(0.5)
        trial.report(float((model(x) - x.sin()).square().mean().sqrt()))
"""
EXPERIMENT = """
task: {function: "watched_training:train", epochs: 60, metric: RMSE}
space: constant
budget: {trials: 5}
sampler: {name: random}
confirm: {enabled: false}
resources: {max_concurrent_trials: 1}
"""
FACTS = (
    "Object.fromEntries([...document.querySelectorAll('.facts div')].map(d => [...d.children].map(c => c.textContent)))"
)


def start(*words: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "rst_tune.cli", *map(str, words)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def until(found, seconds: float = 600.0):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if value := found():
            return value
        time.sleep(0.1)
    raise TimeoutError


def running_in_mlflow(directory: Path) -> list[str]:
    """Return the names of the runs that MLflow shows as running, with epochs."""
    if not (directory / "tracking" / "embedded.json").exists():
        return []
    client = connect(embedded_uri(directory))
    experiments = [each.experiment_id for each in client.search_experiments()]
    runs = client.search_runs(experiments, "attributes.status = 'RUNNING' and tags.role = 'trial'")
    return [run.info.run_name for run in runs if "RMSE" in run.data.metrics]


def test_a_running_search_is_watched_without_a_reload_and_ends_with_its_page(chromium, tmp_path):
    gate, output = tmp_path / "gate", tmp_path / "output"
    (tmp_path / "watched_training.py").write_text(TRAINING.replace("{gate!r}", repr(str(gate))))
    (tmp_path / "watched.yaml").write_text(EXPERIMENT)
    run = start("run", tmp_path / "watched.yaml", "--output", output)
    try:
        until(lambda: run.poll() is not None or (output / LOG_NAME).exists())
        watch = start("watch", output)
        assert watch.stdout is not None
        page, tunnel = watch.stdout.readline(), watch.stdout.readline()
        address = re.search(r"http://127\.0\.0\.1:(\d+)/", page)
        assert f"ssh -N -L {address[1]}:127.0.0.1:{address[1]} " in tunnel
        chromium.dark(False)
        chromium.resize(1280, 900)
        chromium.open(address[0])
        chromium.wait("document.documentElement.dataset.ready === 'yes'")
        chromium.run("window.kept = 'since the first load'")
        chromium.wait("document.querySelector('#running .plot.drawn')")
        early = chromium.run(f"return {FACTS}")
        assert early["state"] == "searching"
        assert chromium.run("return document.querySelectorAll('#running tbody tr').length") >= 1
        assert until(lambda: running_in_mlflow(output)), "epochs are in MLflow while their trial trains"
        # The rest arrives by itself: what was typed stays, and so does the page.
        chromium.wait("document.querySelector('#filter')")
        chromium.type("#filter", "constant")
        gate.touch()
        chromium.wait("document.getElementById('live').textContent === 'finished'")
        late = chromium.run(f"return {FACTS}")
        assert late["state"] == "done"
        assert int(late["trained to the end"]) > int(early["trained to the end"])
        assert chromium.run("return [window.kept, document.getElementById('filter').value]") == [
            "since the first load",
            "constant",
        ]
        assert not chromium.run("return document.getElementById('running')")
        assert chromium.run("return document.querySelectorAll('[data-figure=front-0].drawn svg').length") >= 1
        assert chromium.console() == []
        assert all(url.startswith((address[0], "data:", "blob:")) for url in chromium.requests() if "127.0.0.1" in url)
        rest = watch.communicate(timeout=600)[0]
        assert watch.returncode == 0
        assert f"report: {output / 'report.html'}" in rest
        assert load(output).done
        assert run.wait(600) == 0
    finally:
        for process in (run, *([watch] if "watch" in locals() else [])):
            process.terminate()
            process.communicate(timeout=600)


@pytest.fixture
def served(tmp_path):
    directory = write_search(tmp_path / "search", trials=12)
    with live.serve(directory) as page:
        yield page


def get(page: live.LivePage, path: str, host: str | None = None) -> tuple[int, str]:
    port = int(page.address.rsplit(":", 1)[1].strip("/"))
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    connection.request("GET", path, headers={} if host is None else {"Host": host})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def test_it_listens_on_loopback_alone_and_answers_no_other_host(served):
    places = {c.laddr.ip for c in psutil.Process().net_connections("tcp") if c.status == psutil.CONN_LISTEN}
    assert "127.0.0.1" in places
    assert not places & {"0.0.0.0", "::"}
    assert get(served, "/", "localhost:8080")[0] == 200, "a tunnel may have another port"
    for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "[::1].evil.example"):
        for path in ("/", "/state"):
            assert get(served, path, host)[0] == 403, host
    assert get(served, "/../../etc/passwd")[0] == 404
    assert "connect-src 'self'" in get(served, "/")[1]


def test_a_browser_that_is_closed_while_it_is_answered_prints_nothing(served, capfd):
    place = ("127.0.0.1", int(served.address.rsplit(":", 1)[1].strip("/")))
    with socket.create_connection(place) as gone:
        gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # closed with a reset
        gone.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert get(served, "/")[0] == 200  # served after the first one: an analysis is made once at a time
    time.sleep(0.5)
    assert capfd.readouterr().err == ""


def test_a_busy_port_is_an_input_error(served, tmp_path):
    port = int(served.address.rsplit(":", 1)[1].strip("/"))
    with pytest.raises(InputError, match="the port must be free"), live.serve(tmp_path / "search", port):
        pass


def test_a_search_is_analysed_only_when_its_log_grew_and_a_browser_asks(tmp_path, monkeypatch):
    directory = write_search(tmp_path / "search", trials=12)
    lines = (directory / LOG_NAME).read_bytes().splitlines(keepends=True)
    (directory / LOG_NAME).write_bytes(b"".join(lines[:20]) + lines[20][:10])
    analysed = []
    analyze = live.analyze
    monkeypatch.setattr(live, "analyze", lambda search: (analysed.append(search), analyze(search))[1])
    monkeypatch.setattr(live, "PERIOD", 0.0)
    monkeypatch.setattr(live, "CPU_SHARE", 1e9)
    page = live.LivePage(directory)
    assert analysed == []
    version, text = page.state(-1)
    assert json.loads(text)["version"] == version == sum(map(len, lines[:20])), "the line that is being written waits"
    assert page.state(version) == (version, "")
    assert len(analysed) == 1
    with (directory / LOG_NAME).open("ab") as log:
        log.write(lines[20][10:] + b"".join(lines[21:]))
    version, text = page.state(version)
    assert json.loads(text)["done"]
    assert len(analysed) == 2
    monkeypatch.setattr(live, "LAST_LOOK", 0.5)
    waiting = threading.Thread(target=page.wait)
    waiting.start()
    waiting.join(300)
    assert not waiting.is_alive()


def test_a_search_that_no_process_runs_is_not_called_live(tmp_path, chromium):
    """The lock of the driver decides: status, the server's header and the badge of an open page follow it."""
    directory = write_search(tmp_path / "search", trials=12)
    lines = (directory / LOG_NAME).read_bytes().splitlines(keepends=True)
    (directory / LOG_NAME).write_bytes(b"".join(lines[:20]))
    status = lambda: status_rows(analyze(load(directory)))["running"]  # noqa: E731
    with live.serve(directory) as page:
        assert NOT_RUNNING in page.text()
        assert not status()
        chromium.open(page.address)
        chromium.wait("document.getElementById('live').textContent.startsWith('not running')")
        with file_lock(directory / LOCK_NAME):
            assert status()
            assert NOT_RUNNING not in page.text()
            chromium.wait("document.getElementById('live').textContent === 'live'")
        assert not status()
        with file_lock(directory / LOCK_NAME, timeout=1.0):  # as the driver takes it; the open page keeps asking
            pass


def test_a_search_that_takes_the_place_of_another_is_shown(tmp_path):
    directory = write_search(tmp_path / "search", trials=30)
    page = live.LivePage(directory)
    assert len(page.content()[1].data["trials"]["key"]) == len(load(directory).trials)
    shutil.copy(write_search(tmp_path / "other", trials=3) / LOG_NAME, directory / LOG_NAME)
    assert len(page.content()[1].data["trials"]["key"]) == len(load(directory).trials)
