"""MLflow's UI for a search: a server on the loopback interface, with links and filters for the front."""

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

from rst_tune.errors import InputError
from rst_tune.redaction import redact_text
from rst_tune.tracking import names
from rst_tune.tracking.client import ARTIFACTS, quiet
from rst_tune.tracking.syncer import Syncer, SyncState
from rst_tune.tracking.tracker import LOCK_SECONDS

LOOPBACK = "127.0.0.1"
START_SECONDS = 120.0
END_SECONDS = 10.0
MODE = "workflowType=machine_learning"
"""Without it the UI opens with its pages for language models."""
FILTERS = {
    "the front at most at the compute of a plain training": "metrics.compute <= 1 and tags.front = 'true'",
    "replicates of the front": "tags.front = 'true' and tags.role = 'confirm'",
    "trained to the full horizon": "tags.full_horizon = 'true' and attributes.status = 'FINISHED'",
    "running": "attributes.status = 'RUNNING'",
    "stopped early": "tags.status = 'stopped'",
    "failed or diverged": "attributes.status = 'FAILED'",
}


@dataclass(frozen=True, kw_only=True)
class UiLinks:
    """Addresses in the UI. `filters` maps a description to the text for the search field, `links` to its address.

    `pid` is the process of the server, None for a server that was there already; `problem` says why the last sync was
    incomplete, if it was.
    """

    search: str
    trials: str
    compare: str
    filters: dict[str, str]
    links: dict[str, str]
    pid: int | None = None
    problem: str = ""

    def text(self) -> str:
        """Return the addresses for a terminal; those of the filters open with the filter in the search field."""
        found = [f"  {what}:\n    {link}" for what, link in self.links.items()]
        lines = [f"search   {self.search}", f"trials   {self.trials}"]
        lines += [f"compare  {self.compare}"] if self.compare else []
        lines += [f"not everything is there yet: {self.problem}"] if self.problem else []
        return "\n".join([*lines, "tables of trials, filtered:", *found])


@contextmanager
def serve_ui(directory: Path | str, port: int = 0, uri: str | None = None) -> Iterator[UiLinks]:
    """Sync a search and serve MLflow's UI for it until the context ends. An http(s) store has its own server."""
    syncer = Syncer(Path(directory), uri)
    remote = syncer.uri.startswith("http")
    port = 0 if remote else _free_port(port)
    result = syncer.run(lock_timeout=LOCK_SECONDS, verify=True)
    if remote:
        yield _links(syncer, redact_text(syncer.uri).rstrip("/"), None, result.problem)
        return
    with _exit_on_signals(), _server(syncer, port) as process:
        yield _links(syncer, f"http://{LOOPBACK}:{port}", process.pid, result.problem)


def _free_port(port: int) -> int:
    """Return the port if it is free; for 0, any free one."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except (OSError, OverflowError) as error:
            raise InputError(f"the port must be free, but {port} is not: take another one, or 0 for any") from error
        return int(probe.getsockname()[1])


@contextmanager
def _server(syncer: Syncer, port: int) -> Iterator[subprocess.Popen[bytes]]:
    quiet()
    # The URI is passed by the environment: arguments of a process, with a password, are visible to every user.
    environment = {
        **os.environ,
        "MLFLOW_BACKEND_STORE_URI": syncer.uri,
        "MLFLOW_REGISTRY_STORE_URI": syncer.uri,
        "MLFLOW_ARTIFACTS_DESTINATION": str(syncer.directory.resolve() / ARTIFACTS),
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    }
    command = [sys.executable, "-m", "mlflow", "server", "--host", LOOPBACK, "--port", str(port), "--workers", "1"]
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(  # noqa: S603 - a fixed command
            command, env=environment, stdout=output, stderr=output, start_new_session=True
        )
        try:
            _wait_until_healthy(process, port, output)
            yield process
        finally:
            _end_group(process)


def _wait_until_healthy(process: subprocess.Popen[bytes], port: int, output: IO[bytes]) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        try:
            with urllib.request.urlopen(f"http://{LOOPBACK}:{port}/health", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    output.seek(0)
    text = redact_text(output.read()[-2000:].decode(errors="replace"))
    raise RuntimeError(f"MLflow's server did not start within {START_SECONDS:g} s. Its output:\n{text}")


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End the server and its children, which survive the end of their parent."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(END_SECONDS)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue
    process.wait()


@contextmanager
def _exit_on_signals() -> Iterator[None]:
    """Make SIGTERM and SIGHUP (a closed terminal) end the context as Ctrl-C does."""

    def leave(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    try:
        before: dict[int, Any] = {each: signal.signal(each, leave) for each in (signal.SIGTERM, signal.SIGHUP)}
    except ValueError:  # only the main thread may set handlers
        yield
        return
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _links(syncer: Syncer, base: str, pid: int | None, problem: str) -> UiLinks:
    state = SyncState.load(syncer.path)
    analysis = syncer.analysis()
    own = f"tags.{names.SEARCH_ID} = '{analysis.search.header.uid}'"
    runs = [state.runs[point.trial_key] for point in analysis.points if point.trial_key in state.runs]
    place = f"{base}/#/experiments/{state.experiment}"
    filters = {what: f"{own} and {text}" for what, text in FILTERS.items()}
    both = f"runs={_quote_list(runs)}&experiments={_quote_list([state.experiment])}"
    return UiLinks(
        search=f"{place}/runs/{state.parent}?{MODE}",
        trials=_table_link(place, f"{own} and tags.role != 'search'"),
        compare=f"{base}/#/compare-runs?{both}&{MODE}" if runs else "",
        filters=filters,
        links={what: _table_link(place, text) for what, text in filters.items()},
        pid=pid,
        problem=problem,
    )


def _table_link(place: str, text: str) -> str:
    """Return the address of a filtered table of runs. It is sorted by a metric: by date, MLflow nests the children."""
    order = quote(f"metrics.`{names.EXTRA_PROPAGATION}`")
    return f"{place}/runs?searchFilter={quote(text)}&orderByKey={order}&orderByAsc=true&{MODE}"


def _quote_list(items: list[str]) -> str:
    return quote(json.dumps(items, separators=(",", ":")))
