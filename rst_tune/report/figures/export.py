"""A figure as a file: HTML that needs no network, or a PNG that an installed Chromium renders."""

import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import plotly.graph_objects as go

from rst_tune.errors import InputError

__all__ = ["to_html", "write_png"]

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--virtual-time-budget=8000",
)  # fmt: skip
BARE = {"displayModeBar": False}


def to_html(figure: go.Figure, *, width: int | None = None) -> str:
    """Return a figure as one HTML page that contains Plotly and works offline."""
    size = {} if width is None else {"default_width": f"{width}px"}
    html: str = figure.to_html(include_plotlyjs=True, full_html=True, config=BARE, **size)
    # The default margin of a browser would shift the image.
    return html.replace("<head>", "<head><style>body{margin:0;background:#fff}</style>", 1)


def write_png(figure: go.Figure | str, path: Path | str, *, width: int = 900, height: int = 0, scale: int = 2) -> Path:
    """Write a figure, or any HTML, as a PNG of `scale` times its size and return its path.

    The default height is the figure's own.
    """
    path = Path(path).resolve()
    html = figure if isinstance(figure, str) else to_html(figure, width=width)
    height = height or (500 if isinstance(figure, str) else int(figure.layout.height or 500))
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        source = Path(folder) / "figure.html"
        source.write_text(html, encoding="utf-8")
        size = [f"--window-size={width},{height}", f"--force-device-scale-factor={scale}"]
        _run([_browser(), *FLAGS, *size, f"--user-data-dir={folder}/profile", f"--screenshot={path}", source.as_uri()])
    if not path.exists():
        raise InputError(f"the browser wrote no image to {path}: check that its directory exists and is writable")
    return path


def _browser() -> str:
    found = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if found is None:
        raise InputError("a PNG needs Chromium, but none is installed: apt-get install chromium, or use the HTML")
    return found


def _run(command: list[str]) -> None:
    """Run a browser, and end its whole process group after 60 s."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)  # noqa: S603
    try:
        process.wait(timeout=60)
    except subprocess.TimeoutExpired as slow:
        raise InputError(
            "the browser must render a figure within 60 s, but did not: try again with less load on the machine"
        ) from slow
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
