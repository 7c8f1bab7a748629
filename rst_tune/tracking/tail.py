"""Follows a record as it grows: an index of its events, and the state they amount to."""

import json
import logging
from bisect import bisect_left
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rst_tune.analysis.records import RECORD_NAME, Replay, Search
from rst_tune.errors import InputError
from rst_tune.tracking.progress import Point, Progress

__all__ = ["DRAWN", "Entry", "Tail"]

log = logging.getLogger(__name__)

DRAWN = "trial"


@dataclass(frozen=True, slots=True)
class Entry:
    """Where an event lies in the record. `first`: it is the one that gives a trial its run.

    `epochs` were told by an earlier end of the same trial (it was resumed later). `points` belong to the search.
    """

    start: int
    end: int
    kind: str
    key: str
    first: bool
    epochs: int
    points: tuple[Point, ...]


class Tail:
    """Reads only whole lines, and each once. Histories stay in the file: a long search costs little memory."""

    def __init__(self, directory: Path) -> None:
        self.path = Path(directory) / RECORD_NAME
        if not self.path.exists():
            raise InputError(
                f"a search has a file {RECORD_NAME}, but {directory} has none: give the output directory of a run"
            )
        self.state = Replay(self.path.parent)
        self.entries: list[Entry] = []
        self._progress = Progress()
        self._epochs: dict[str, int] = {}
        self._begun: set[str] = set()
        self._offset = 0

    def read(self) -> None:
        """Take in what was appended since the last call; a line that is still being written waits."""
        with self.path.open("rb") as file:
            file.seek(self._offset)
            for raw in file:
                if not raw.endswith(b"\n"):
                    break
                start, self._offset = self._offset, self._offset + len(raw)
                self._take(raw, start)

    def since(self, offset: int) -> list[Entry]:
        """Return the events that lie after `offset`."""
        return self.entries[bisect_left(self.entries, offset, key=lambda e: e.start) :]

    def events(self, entries: list[Entry]) -> list[dict[str, Any]]:
        """Return the events themselves, read again from the file."""
        with self.path.open("rb") as file:
            return [self._at(file, entry) for entry in entries]

    def search(self) -> Search:
        """Return the search as it stands, without histories."""
        return self.state.search()

    @staticmethod
    def _at(file: Any, entry: Entry) -> dict[str, Any]:
        file.seek(entry.start)
        event: dict[str, Any] = json.loads(file.read(entry.end - entry.start))
        return event

    def _take(self, raw: bytes, start: int) -> None:
        try:
            event = json.loads(raw)
            kind, key = str(event["event"]), str(event.get("key", ""))
            if key and kind != DRAWN and key not in self.state.trials:
                raise ValueError("an event of no known trial")
            self.state.apply(event)
        except (ValueError, TypeError, KeyError):
            if raw.strip():
                log.warning("%s: a damaged line at byte %d was left out", self.path, start)
            return
        self.entries.append(self._entry(event, kind, key, start, start + len(raw)))
        self._forget_history(key)

    def _entry(self, event: dict[str, Any], kind: str, key: str, start: int, end: int) -> Entry:
        first = bool(key) and kind != DRAWN and key not in self._begun
        if first:
            self._begun.add(key)
        epochs = self._epochs.get(key, 0)
        points: tuple[Point, ...] = ()
        if kind == "end":
            self._epochs[key] = max(epochs, _length(event.get("history", {})))
            points = self._progress.end(self.state.trials[key], event["time"])
        elif kind == "reference":
            points = self._progress.reference(event)
        return Entry(start, end, kind, key, first, epochs, points)

    def _forget_history(self, key: str) -> None:
        if key and self.state.trials[key].history:
            self.state.trials[key] = replace(self.state.trials[key], history={})


def _length(history: dict[str, list[float]]) -> int:
    return max((len(column) for column in history.values()), default=0)
