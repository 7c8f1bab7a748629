"""What a search hands over at its end: files and a summary. They wait on disk until the store has them."""

import hashlib
import json
import os
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rst_tune.errors import InputError
from rst_tune.tracking import names
from rst_tune.tracking.cursor import FOLDER, write_atomically
from rst_tune.tracking.secrets import scrub_text
from rst_tune.tracking.store import Store

__all__ = ["hand_over", "upload", "waiting"]

OUTBOX = "outbox.json"
SUMMARY = "(summary)"
"""The name of the summary among the files of an outbox."""
SCRUBBED = (".yaml", ".yml", ".json", ".csv", ".md", ".txt")
"""Files whose text is freed of credentials on the way. A page carries scripts, which must stay as they are."""


def hand_over(directory: Path, artifacts: Iterable[Path | str], summary: str) -> None:
    """Note the files and the summary for delivery; they replace what was noted before under the same name."""
    directory = Path(directory).resolve()
    paths = [Path(p) if Path(p).is_absolute() else directory / p for p in artifacts]
    missing = [str(p) for p in paths if not p.is_file()]
    if missing:
        raise InputError(f"an artifact is a file that exists, but these do not: {', '.join(missing)}")
    box = _read(directory)
    box["files"] |= {p.name: os.path.relpath(p, directory) for p in paths}
    box["summary"] = scrub_text(summary) or box["summary"]
    write_atomically(directory / FOLDER / OUTBOX, json.dumps(box))


def waiting(directory: Path, delivered: Mapping[str, str]) -> dict[str, str]:
    """Return the names that the store does not have as they are now, with their digests."""
    box = _read(directory)
    now = {
        name: _digest((directory / path).read_bytes()) for name, path in box["files"].items() if _there(directory, path)
    }
    if box["summary"]:
        now[SUMMARY] = _digest(box["summary"].encode())
    return {name: digest for name, digest in now.items() if delivered.get(name) != digest}


def upload(store: Store, run_id: str, directory: Path, delivered: dict[str, str]) -> None:
    """Bring what waits to the run of the search, and note it in `delivered`."""
    box = _read(directory)
    for name, digest in waiting(directory, delivered).items():
        if name == SUMMARY:
            store.write(run_id, tags={names.NOTE: box["summary"]})
        else:
            _send(store, run_id, directory / box["files"][name])
        delivered[name] = digest


def _send(store: Store, run_id: str, path: Path) -> None:
    if path.suffix.lower() not in SCRUBBED:
        store.client.log_artifact(run_id, str(path))
        return
    with tempfile.TemporaryDirectory() as folder:
        clean = Path(folder) / path.name
        clean.write_text(scrub_text(path.read_text()))
        store.client.log_artifact(run_id, str(clean))


def _there(directory: Path, path: str) -> bool:
    return (directory / path).is_file()


def _read(directory: Path) -> dict[str, Any]:
    path = Path(directory) / FOLDER / OUTBOX
    return dict(json.loads(path.read_text())) if path.exists() else {"files": {}, "summary": ""}


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
