"""A figure as a PNG that an installed Chromium renders: subplots and heatmaps, which `write_picture` does not draw."""

import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import plotly.graph_objects as go

from rst_tune.errors import InputError

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--virtual-time-budget=8000",
)  # fmt: skip
BARE = {"displayModeBar": False}


def write_png(figure: go.Figure, path: Path, *, width: int = 900, scale: int = 2) -> Path:
    """Write a figure as a PNG of `scale` times its size and return its path."""
    path = Path(path).resolve()
    html: str = figure.to_html(include_plotlyjs=True, config=BARE, default_width=f"{width}px")
    # The default margin of a browser would shift the image.
    html = html.replace("<head>", "<head><style>body{margin:0;background:#fff}</style>", 1)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        source = Path(folder) / "figure.html"
        source.write_text(html, encoding="utf-8")
        size = [f"--window-size={width},{int(figure.layout.height or 500)}", f"--force-device-scale-factor={scale}"]
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
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
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
