"""The page of a running search, served on loopback: an open page asks for updates and redraws what changed.

It is a process of its own beside the search, from which it takes nothing but the event log.
"""

import re
import socket
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from rst_tune.analysis.analysis import analyze
from rst_tune.errors import InputError
from rst_tune.files import is_locked
from rst_tune.records import LOCK_NAME, LOG_NAME, Phase, SearchState
from rst_tune.records.log import new_lines, parse_line
from rst_tune.report import page
from rst_tune.report.status import NOT_RUNNING

LOOPBACK = "127.0.0.1"
OWN_HOST = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:\d+)?")
PERIOD = 3.0
"""Shortest time between two analyses, in seconds."""
CPU_SHARE = 0.1
"""An analysis of n seconds of CPU time is followed by a pause of at least n / CPU_SHARE: trials need the cores."""
LAST_LOOK = 20.0
"""How long the page of an ended search waits for an open browser to fetch it, in seconds."""


class LivePage:
    """The page of the search in a directory. It is analysed when a browser asks, and only if the event log grew.

    A version of the page is the number of bytes of the log that it shows; `sent` is the latest one that a browser has.
    """

    def __init__(self, directory: Path) -> None:
        self.path = Path(directory) / LOG_NAME
        self.address = ""
        self.sent = 0
        self._state = SearchState(self.path.parent)
        self._offset = self._drawn = 0  # bytes of the log that are read, and that the content shows
        self._content: page.Content | None = None
        self._due = self._asked = 0.0
        self._lock = threading.Lock()

    def content(self) -> tuple[int, page.Content]:
        """Return the version of the page and what it shows."""
        with self._lock:
            self._read()
            self._asked = time.monotonic()
            if self._content is None or (self._offset > self._drawn and (self._asked >= self._due or self._is_done())):
                begin = time.thread_time()
                self._content, self._drawn = page.content(analyze(self._state.search())), self._offset
                self._due = time.monotonic() + max(PERIOD, (time.thread_time() - begin) / CPU_SHARE)
            return self._drawn, self._content

    def state(self, since: int) -> tuple[int, str]:
        """Return the version of the page, and the page as JSON: nothing where it is that of version `since`."""
        version, content = self.content()
        if version == since:
            return version, ""
        sections = "".join(content.sections)
        done = self._is_done() and version == self._offset
        data = {"version": version, "done": done, "nav": content.nav, "sections": sections, **content.data}
        return version, page.script_json(data)

    def html(self) -> str:
        """Return the whole page."""
        version, content = self.content()
        return content.to_html(live=True, version=version)

    def wait(self) -> None:
        """Return when the search is over and an open page shows its end."""
        while not self._is_done():
            time.sleep(1.0)
            with self._lock:
                self._read()
        end = time.monotonic() + LAST_LOOK
        while self.sent < self._offset and time.monotonic() < min(end, self._asked + LAST_LOOK):
            time.sleep(0.1)

    def text(self) -> str:
        """Return the address, and how to reach it from another machine."""
        port = urlsplit(self.address).port
        stopped = "" if self.running() or self._is_done() else f"\n{NOT_RUNNING}"
        tunnel = f"ssh -N -L {port}:{LOOPBACK}:{port} {socket.gethostname()}"
        return f"page:                     {self.address}\nfrom another machine:     {tunnel}{stopped}"

    def running(self) -> bool:
        """Return whether a process is running the search."""
        return is_locked(self.path.parent / LOCK_NAME)

    def _is_done(self) -> bool:
        return self._state.phase is Phase.DONE

    def _read(self) -> None:
        if self.path.stat().st_size < self._offset:  # another search took the place of this one
            self._state, self._offset, self._drawn = SearchState(self.path.parent), 0, 0
        for end, raw in new_lines(self.path, self._offset):
            self._offset = end
            try:
                self._state.apply(parse_line(raw))
            except ValueError:
                warnings.warn(f"{self.path}: the damaged line before byte {self._offset} is left out", stacklevel=2)


class _Handler(BaseHTTPRequestHandler):
    def __init__(self, live: LivePage, *args: object) -> None:
        self._live = live
        super().__init__(*args)  # type: ignore[arg-type]  # those of the server

    def do_GET(self) -> None:
        """Answer with the page or its state; a browser that is closed meanwhile needs none."""
        with suppress(ConnectionError):
            self._answer()

    def _answer(self) -> None:
        """Send the answer. A page of another host, which a rebound name leads here, is refused."""
        if not OWN_HOST.fullmatch(self.headers.get("Host", "")):
            return self._send(HTTPStatus.FORBIDDEN, "text/plain", "this page is for the loopback interface only")
        target = urlsplit(self.path)
        if target.path == "/":
            return self._send(HTTPStatus.OK, "text/html", self._live.html())
        if target.path == "/state":
            since = "".join(parse_qs(target.query).get("since", []))
            version, text = self._live.state(int(since) if since.isdecimal() else -1)
            self._send(HTTPStatus.OK if text else HTTPStatus.NO_CONTENT, "application/json", text)
            self._live.sent = version
            return None
        return self._send(HTTPStatus.NOT_FOUND, "text/plain", "not found")

    def _send(self, status: HTTPStatus, kind: str, text: str) -> None:
        body = text.encode("utf-8", "replace")
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("X-Search-Running", "yes" if self._live.running() else "no")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextmanager
def serve(directory: Path, port: int = 0) -> Iterator[LivePage]:
    """Serve the page of a search until the context ends; port 0 is any free one."""
    live = LivePage(directory)
    try:
        server = ThreadingHTTPServer((LOOPBACK, port), partial(_Handler, live))
    except (OSError, OverflowError) as error:
        raise InputError(f"the port must be free, but {port} is not: take another one, or 0 for any") from error
    live.address = f"http://{LOOPBACK}:{server.server_port}/"
    thread = threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True)
    thread.start()
    try:
        yield live
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
