"""A real headless Chromium for tests, driven through chromedriver's W3C WebDriver protocol over plain HTTP."""

import base64
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
MISSING = (
    "" if CHROMIUM and DRIVER else "needs Chromium and its driver: apt-get install chromium chromium-driver (Debian)"
)
FLAGS = [
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage", "--hide-scrollbars"),
]
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"


class Browser:
    """One session. `run` evaluates JavaScript; `requests` and `console` return what the pages did so far."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._requests: list[str] = []
        self._session = ""

    def open_session(self, profile: str) -> None:
        options = {"binary": CHROMIUM, "args": [*FLAGS, f"--user-data-dir={profile}", "--window-size=1280,900"]}
        logs = {"browser": "ALL", "performance": "ALL"}
        wanted = {"browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": logs}
        answer = self._send("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self._session = f"/session/{answer['sessionId']}"

    def _send(self, verb: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._address + path, data, {"Content-Type": "application/json"}, method=verb)
        try:
            with urllib.request.urlopen(request, timeout=600) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(json.load(error)["value"]["message"]) from error

    def close(self) -> None:
        """End the session; the browser then ends its own child processes."""
        if self._session:
            self._send("DELETE", self._session)

    def post(self, path: str, **body: Any) -> Any:
        return self._send("POST", self._session + path, body)

    def devtools(self, command: str, **params: Any) -> Any:
        return self.post("/goog/cdp/execute", cmd=command, params=params)

    def open(self, page: Path | str) -> None:
        self.post("/url", url=page.resolve().as_uri() if isinstance(page, Path) else page)

    def run(self, script: str, *args: Any) -> Any:
        return self.post("/execute/sync", script=script, args=list(args))

    def wait(self, condition: str, seconds: float = 300.0) -> Any:
        """Return the first true value of a JavaScript expression."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            value = self.run(f"return {condition}")
            if value:
                return value
            time.sleep(0.05)
        raise TimeoutError(f"never true within {seconds} s: {condition}")

    def find(self, css: str) -> str:
        found: str = self.post("/element", using="css selector", value=css)[ELEMENT]
        return found

    def click(self, css: str) -> None:
        self.post(f"/element/{self.find(css)}/click")

    def type(self, css: str, text: str) -> None:
        """Type into a field with real key events."""
        self.post(f"/element/{self.find(css)}/value", text=text)

    def press(self, key: str) -> None:
        """Press one key, wherever the focus is."""
        strokes = [{"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}]
        self.post("/actions", actions=[{"type": "key", "id": "keyboard", "actions": strokes}])

    def move_to(self, x: float, y: float) -> None:
        """Move the pointer to a place in the window."""
        move = {"type": "pointerMove", "duration": 50, "x": round(x), "y": round(y), "origin": "viewport"}
        self.post("/actions", actions=[{"type": "pointer", "id": "mouse", "actions": [move]}])

    def click_at(self, x: float, y: float) -> None:
        """Move the pointer to a place in the window and click after 0.2 s, when hover effects have settled."""
        self.move_to(x, y)
        press = [
            {"type": "pause", "duration": 200},
            {"type": "pointerDown", "button": 0},
            {"type": "pointerUp", "button": 0},
        ]
        self.post("/actions", actions=[{"type": "pointer", "id": "mouse", "actions": press}])

    def resize(self, width: int, height: int, scale: float = 1.0) -> None:
        self.devtools(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=False
        )

    def dark(self, on: bool) -> None:
        value = "dark" if on else "light"
        self.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": value}])

    def screenshot(self, path: Path, whole_page: bool = False) -> None:
        picture = self.devtools("Page.captureScreenshot", format="png", captureBeyondViewport=whole_page)
        path.write_bytes(base64.b64decode(picture["data"]))

    def console(self) -> list[str]:
        """Return the console's warnings and errors since the last call."""
        lines = self._send("POST", self._session + "/se/log", {"type": "browser"})
        return [line["message"] for line in lines if line["level"] in ("WARNING", "SEVERE")]

    def requests(self) -> list[str]:
        """Return every address that the pages requested so far, the opened files included."""
        for line in self._send("POST", self._session + "/se/log", {"type": "performance"}):
            message = json.loads(line["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                self._requests.append(message["params"]["request"]["url"])
        return self._requests

    def outside(self) -> list[str]:
        """Return the requests to other addresses than the file itself and data within it."""
        return [url for url in self.requests() if not url.startswith(("file:", "data:", "blob:", "chrome:", "about:"))]


def _port(driver: subprocess.Popen[str]) -> int:
    assert driver.stdout is not None
    for line in driver.stdout:
        if found := re.search(r"started successfully on port (\d+)", line):
            return int(found[1])
    raise RuntimeError("chromedriver ended before it printed its port")


@contextmanager
def browser() -> Iterator[Browser]:
    """Start a browser with an empty profile, and end it with its whole process group."""
    assert DRIVER is not None, MISSING
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        driver = subprocess.Popen(
            [DRIVER, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
        )
        session = Browser("")
        try:
            session = Browser(f"http://127.0.0.1:{_port(driver)}")
            session.open_session(profile)
            yield session
        finally:
            session.close()
            os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
