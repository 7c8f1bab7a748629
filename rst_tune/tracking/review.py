"""MLflow's UI on a search: a server on this machine only, and the links and filters worth opening."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO, Any
from urllib.parse import quote

from rst_tune.analysis import fronts, records
from rst_tune.errors import InputError
from rst_tune.tracking.cursor import Cursor
from rst_tune.tracking.delivery import Delivery
from rst_tune.tracking.door import ARTIFACTS, quiet
from rst_tune.tracking.secrets import scrub_text

__all__ = ["Page", "review"]

LOOPBACK = "127.0.0.1"
START_SECONDS = 120.0
END_SECONDS = 10.0
MODE = "workflowType=machine_learning"
"""Without it the UI opens on its pages for language models."""


@dataclass(frozen=True, kw_only=True)
class Page:
    """Where to look. `filters` maps what is found to the text for MLflow's search field, `links` to its address."""

    search: str
    trials: str
    compare: str
    filters: dict[str, str]
    links: dict[str, str]
    pid: int | None = None

    def text(self) -> str:
        """Return all of it for a terminal."""
        found = [f"  {what}:\n    {text}\n    {self.links[what]}" for what, text in self.filters.items()]
        lines = [f"search   {self.search}", f"trials   {self.trials}"]
        lines += [f"compare  {self.compare}"] if self.compare else []
        return "\n".join([*lines, "filters (text for the search field, and a link):", *found])


@contextmanager
def review(directory: Path | str, port: int = 0, uri: str | None = None) -> Iterator[Page]:
    """Serve MLflow's UI for a search as long as the context lasts. A team's server is used as it is."""
    delivery = Delivery(Path(directory), uri)
    if delivery.uri.startswith("http"):
        delivery.run(patience=60.0, check=True)
        yield _page(delivery, scrub_text(delivery.uri).rstrip("/"), None)
        return
    port = _checked_port(port)
    delivery.run(patience=60.0, check=True)
    with _ending_on_signals(), _server(delivery, port) as process:
        yield _page(delivery, f"http://{LOOPBACK}:{port}", process.pid)


def _checked_port(port: int) -> int:
    """Return the port, or a free one for 0."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except (OSError, OverflowError) as problem:
            raise InputError(f"the port must be free, but {port} is not: take another one, or 0 for any") from problem
        return int(probe.getsockname()[1])


@contextmanager
def _server(delivery: Delivery, port: int) -> Iterator[subprocess.Popen[bytes]]:
    quiet()
    # The address goes through the environment: an argument would show its password to every user of the machine.
    environment = {
        **os.environ,
        "MLFLOW_BACKEND_STORE_URI": delivery.uri,
        "MLFLOW_REGISTRY_STORE_URI": delivery.uri,
        "MLFLOW_ARTIFACTS_DESTINATION": str(delivery.directory.resolve() / ARTIFACTS),
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    }
    command = [sys.executable, "-m", "mlflow", "server", "--host", LOOPBACK, "--port", str(port), "--workers", "1"]
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(  # noqa: S603 - a fixed command
            command, env=environment, stdout=output, stderr=output, start_new_session=True
        )
        try:
            _wait(process, port, output)
            yield process
        finally:
            _end(process)


def _wait(process: subprocess.Popen[bytes], port: int, output: IO[bytes]) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        if process.poll() is not None:
            break
        try:
            with urllib.request.urlopen(f"http://{LOOPBACK}:{port}/health", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    output.seek(0)
    said = output.read()[-2000:].decode(errors="replace")
    raise RuntimeError(f"MLflow's server did not start within {START_SECONDS:g} s. It said:\n{scrub_text(said)}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the server with everything it started: MLflow's own children outlive a polite request."""
    for word in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, word)
            process.wait(END_SECONDS)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue
    process.wait()


@contextmanager
def _ending_on_signals() -> Iterator[None]:
    """Let a closed terminal and a polite kill end the context as Ctrl-C does."""
    words = (signal.SIGTERM, signal.SIGHUP)

    def leave(word: int, _: FrameType | None) -> None:
        raise SystemExit(128 + word)

    try:
        before: dict[int, Any] = {word: signal.signal(word, leave) for word in words}
    except ValueError:  # signals belong to the main thread
        yield
        return
    try:
        yield
    finally:
        for word, handler in before.items():
            signal.signal(word, handler)


def _page(delivery: Delivery, base: str, pid: int | None) -> Page:
    cursor = Cursor.load(delivery.path)
    search = records.load(delivery.directory)
    mine = f"tags.search_id = '{search.header.get('search_id', '')}'"
    front = [p.run_id for p in fronts.delivered(search).points]
    runs = [cursor.runs[key] for key in front if key in cursor.runs]
    place = f"{base}/#/experiments/{cursor.experiment}"
    filters = {what: f"{mine} and {text}" for what, text in _FILTERS.items()}
    return Page(
        search=f"{place}/runs/{cursor.parent}?{MODE}",
        trials=_listing(place, f"{mine} and tags.role != 'search'"),
        compare=f"{base}/#/compare-runs?runs={_list(runs)}&experiments={_list([cursor.experiment])}&{MODE}"
        if runs
        else "",
        filters=filters,
        links={what: _listing(place, text) for what, text in filters.items()},
        pid=pid,
    )


_FILTERS = {
    "the cheaper half of the front": "metrics.extra_propagation < 0.5 and tags.front = 'true'",
    "the front, confirming seeds only": "tags.front = 'true' and tags.role = 'confirm'",
    "trained to the full horizon": "tags.full_horizon = 'true' and attributes.status = 'FINISHED'",
    "stopped early": "tags.status = 'stopped'",
    "failed or diverged": "attributes.status = 'FAILED'",
}


def _listing(place: str, wanted: str) -> str:
    """Return the address of a list of trials, sorted by a metric: by date, MLflow would fold them under the search."""
    order = quote("metrics.`extra_propagation`")
    return f"{place}/runs?searchFilter={quote(wanted)}&orderByKey={order}&orderByAsc=true&{MODE}"


def _list(items: list[str]) -> str:
    return quote(json.dumps(items, separators=(",", ":")))
