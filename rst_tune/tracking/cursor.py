"""How far a store was told: a small file beside the record, replaced atomically, one a store."""

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

__all__ = ["FOLDER", "BusyError", "Cursor", "exclusive", "write_atomically"]

FOLDER = "tracking"


class BusyError(RuntimeError):
    """Another process delivers the same search to the same store."""


@dataclass(kw_only=True)
class Cursor:
    """What one store has. All of it can be rebuilt from the record and the store's tags; the file saves the work.

    `offset`: the byte of the record up to which everything is delivered. `runs`: key of a trial to its run.
    `unsure`: keys whose run may have been created by an attempt that was cut off. `tags`: the moving tags as they
    were set last. `settled`: these tags and the files are up to date with `offset`. `files`: artifact of the search
    to the digest of what was uploaded. `models`: key of a trial to its logged model.
    """

    offset: int = 0
    experiment: str = ""
    parent: str = ""
    introduced: bool = False
    settled: bool = False
    runs: dict[str, str] = field(default_factory=dict)
    unsure: list[str] = field(default_factory=list)
    tags: dict[str, dict[str, str]] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    models: dict[str, str] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path) -> "Cursor":
        """Return the cursor of a file; a missing or damaged one is a new cursor, because the store is asked then."""
        try:
            return cls(**json.loads(path.read_text()))
        except (FileNotFoundError, ValueError, TypeError):
            return cls()

    def reset(self) -> None:
        """Forget everything: the store does not have it any more."""
        self.__init__()  # type: ignore[misc]

    def save(self, path: Path) -> None:
        """Replace the file in one step."""
        write_atomically(path, json.dumps(asdict(self), separators=(",", ":")))


def write_atomically(path: Path, text: str) -> None:
    """Replace a file in one step: a reader sees the old one or the new one, whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(f".{os.getpid()}.tmp")
    with draft.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


@contextmanager
def exclusive(path: Path, timeout: float) -> Iterator[None]:
    """Hold the right to deliver by this cursor; the right ends with the process, however it ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w") as file:
        end = time.monotonic() + timeout
        while not _try_lock(file.fileno()):
            if time.monotonic() > end:
                raise BusyError(
                    f"another process has been delivering this search for {timeout:g} s: wait for it to end"
                )
            time.sleep(0.05)
        yield


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
