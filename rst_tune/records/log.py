"""The event log: one append-only JSONL file per search."""

import contextlib
import errno
import json
import os
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from rst_tune.errors import InputError
from rst_tune.records.events import EpochsReported, Event, parse_event
from rst_tune.records.state import Search, SearchState
from rst_tune.redaction import redact

LOG_NAME = "events.jsonl"
LOCK_NAME = "lock"
"""The file that the process which runs a search holds a lock on."""
LONGEST_LINE = 64 * 2**20  # no event of ours comes near it; a longer line is damage
NAMED_LINES = 3  # damaged lines of which each has a warning of its own

E = TypeVar("E", bound=Event)


class EventLog:
    """The writer. A line is written whole, freed of credentials, and flushed to the disk before `append` returns."""

    def __init__(self, directory: Path) -> None:
        self.path = Path(directory) / LOG_NAME
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self.path.open("ab+", buffering=0)
        if self._file.tell():
            self._file.seek(-1, os.SEEK_END)
            if self._file.read(1) != b"\n":  # a line that a killed writer left open
                self._file.write(b"\n")

    def append(self, event: E) -> E:
        """Append one event with the present time, and return it with that time."""
        event = replace(event, time=time.time())
        line = json.dumps(redact(event.to_dict()), separators=(",", ":"), allow_nan=True) + "\n"
        # Metrics of epochs are not flushed one by one: a trial that is taken up again reports them again.
        self._write(line.encode(), flush=not isinstance(event, EpochsReported))
        return event

    def _write(self, line: bytes, *, flush: bool) -> None:
        """Write a line whole or not at all: of what a full disk takes in part, the part is removed."""
        size = os.fstat(self._file.fileno()).st_size
        try:
            if self._file.write(line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
            if flush:
                os.fsync(self._file.fileno())
        except OSError:
            with contextlib.suppress(OSError):
                self._file.truncate(size)
            raise

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def parse_line(raw: bytes) -> Event:
    """Return the event of one line; ValueError where the line is damaged."""
    try:
        data = json.loads(raw)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(data, dict):
        raise ValueError("not a JSON object")
    return parse_event(data)


def new_lines(path: Path, offset: int) -> Iterator[tuple[int, bytes]]:
    """Yield the lines after byte `offset`, each with the byte at which it ends; one that is being written is left."""
    with path.open("rb") as file:
        file.seek(offset)
        for raw in file:
            if not raw.endswith(b"\n"):
                return
            offset += len(raw)
            yield offset, raw


def read_events(path: Path) -> Iterator[Event]:
    """Yield the events of a log. A damaged line is dropped with a warning that names it; of many, the first few."""
    damaged = 0
    with Path(path).open("rb") as file:
        for number, raw in enumerate(iter(lambda: file.readline(LONGEST_LINE), b""), start=1):
            if not raw.strip():
                continue
            try:
                yield parse_line(raw)
            except ValueError:
                damaged += 1
                if damaged <= NAMED_LINES:
                    warnings.warn(f"{path}:{number}: a damaged line was dropped ({len(raw)} bytes)", stacklevel=2)
    if damaged > NAMED_LINES:
        warnings.warn(f"{path}: {damaged - NAMED_LINES} more damaged lines were dropped", stacklevel=2)


def find_log(directory: Path | str) -> Path:
    """Return the event log in `directory`; the path of the log itself works as well."""
    directory = Path(directory)
    path = directory / LOG_NAME if directory.is_dir() or not directory.suffix else directory
    if not path.exists():
        raise InputError(
            f"a search has a file {LOG_NAME}, but {path.parent} has none: give the output directory of a run"
        )
    return path


def load(directory: Path | str) -> Search:
    """Return the search whose event log lies in `directory`."""
    path = find_log(directory)
    state, events = SearchState(path.parent), 0
    for event in read_events(path):
        state.apply(event)
        events += 1
    if not events and path.stat().st_size:
        raise InputError(f"{path} must have the events of a search, but no line of it is one: give another directory")
    return state.search()
