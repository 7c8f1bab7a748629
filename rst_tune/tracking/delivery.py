"""Brings a record to an MLflow store: in order, once, from where it stopped.

A crash between a request and the note that it was made is harmless. A run is found again by its tags; a metric
point has its time from the record, so that a second one is equal to the first and the store keeps one of them.
"""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rst_tune.tracking import introduction, names, results
from rst_tune.tracking.cursor import FOLDER, Cursor, exclusive
from rst_tune.tracking.door import store_name
from rst_tune.tracking.lanes import Job, Outcome, lanes
from rst_tune.tracking.progress import milliseconds
from rst_tune.tracking.projection import Batch, extend, open_batch
from rst_tune.tracking.secrets import scrub_text
from rst_tune.tracking.standing import standing
from rst_tune.tracking.store import RefusedError, Store
from rst_tune.tracking.tail import DRAWN, Entry, Tail
from rst_tune.tracking.target import choose

__all__ = ["Delivered", "Delivery"]

log = logging.getLogger(__name__)

# Small enough that little is repeated after a crash, large enough that the cursor is not written all the time.
ENDS_A_CHUNK = 40
EVENTS_A_CHUNK = 200


Tags = dict[str, dict[str, str]]
Deliver = Callable[[list[Job]], list[Outcome]]


@dataclass(frozen=True, kw_only=True)
class Delivered:
    """What a delivery did. `left`: events and files that wait. `refused`: batches the store did not accept."""

    runs: int = 0
    metrics: int = 0
    left: int = 0
    refused: int = 0
    problem: str = ""


@dataclass
class _Count:
    runs: int = 0
    metrics: int = 0
    refused: int = 0


class Delivery:
    """Delivers one search to one store. Each call of `run` goes as far as it can and tells what is left."""

    def __init__(self, directory: Path, uri: str | None = None, experiment: str | None = None) -> None:
        self.directory = Path(directory)
        target = choose(self.directory, uri, experiment)
        self.uri = target.uri
        self.path = self.directory / FOLDER / f"{store_name(self.directory, self.uri)}.json"
        self.tail = Tail(self.directory)
        self._experiment = target.experiment
        self._store: Store | None = None

    def run(self, patience: float = 5.0, check: bool = False) -> Delivered:
        """Deliver what waits. A store that cannot be reached is not an error: the answer names the problem.

        `check`: ask the store whether it still has the search, even when nothing waits, and use several processes
        when much does. A running search does without both.
        """
        count, problem = _Count(), ""
        with exclusive(self.path, patience):
            self.tail.read()
            cursor = Cursor.load(self.path)
            try:
                self._run(cursor, count, check)
            except Exception as caught:  # noqa: BLE001 - whatever MLflow raises, the search goes on
                self._store, problem = None, scrub_text(f"{type(caught).__name__}: {caught}")
            left = self.left(cursor)
        return Delivered(runs=count.runs, metrics=count.metrics, refused=count.refused, left=left, problem=problem)

    def left(self, cursor: Cursor | None = None) -> int:
        """Return how many events and files wait, as far as the record was read."""
        cursor = cursor or Cursor.load(self.path)
        return len(self.tail.since(cursor.offset)) + len(results.waiting(self.directory, cursor.files))

    def _run(self, cursor: Cursor, count: _Count, check: bool) -> None:
        if not self.tail.state.header or (cursor.settled and not check and not self.left(cursor)):
            return
        self._store = store = self._store or Store(self.uri)
        self._settle(store, cursor)
        wanted = standing(self.tail.search())
        entries = self.tail.since(cursor.offset)
        trials = len({entry.key for entry in entries}) if check else 0
        with lanes(store, trials) as deliver:
            for chunk in _chunks(entries):
                self._chunk(store, deliver, cursor, chunk, wanted, count)
        self._move_tags(store, cursor, wanted)
        results.upload(store, cursor.parent, self.directory, cursor.files)
        cursor.settled = True
        cursor.save(self.path)

    def _settle(self, store: Store, cursor: Cursor) -> None:
        """Make sure of the parent run, and of the runs that an attempt may have left behind."""
        if cursor.parent and not store.has(cursor.parent):
            cursor.reset()
        search_id = self.tail.state.header["search_id"]
        if not cursor.parent:
            name = self._experiment or str(self.tail.state.header.get("name") or "rst-tune")
            cursor.experiment = store.experiment(name, self.directory)
            cursor.runs = store.children(cursor.experiment, search_id)
            found = store.parent(cursor.experiment, search_id)
            cursor.parent = found or introduction.create(store, cursor.experiment, self.tail.state.header)
            cursor.save(self.path)
        for key in cursor.unsure:
            if run_id := store.child(cursor.experiment, search_id, key):
                cursor.runs[key] = run_id
        if not cursor.introduced:
            introduction.describe(store, cursor.parent, self.tail.state.header)
            cursor.introduced = True

    def _chunk(
        self, store: Store, deliver: Deliver, cursor: Cursor, chunk: list[Entry], wanted: Tags, count: _Count
    ) -> None:
        batches = self._batches(chunk)
        for batch in batches:
            batch.tags |= wanted.get(batch.key, {})
        jobs = [(cursor.experiment, cursor.parent, batch, cursor.runs.get(batch.key)) for batch in batches]
        new = [batch.key for batch in batches if batch.key not in cursor.runs]
        cursor.unsure, cursor.settled = new, False
        cursor.save(self.path)
        try:
            outcomes = list(zip(batches, deliver(jobs), strict=True))
            for batch, outcome in outcomes:
                _note(cursor, batch, outcome, wanted, count)
            for _, outcome in outcomes:
                if isinstance(outcome, Exception) and not isinstance(outcome, RefusedError):
                    raise outcome
            self._tell_search(store, cursor, chunk, count)
            cursor.offset = chunk[-1].end
        finally:
            cursor.unsure = [key for key in new if key not in cursor.runs]
            cursor.save(self.path)

    def _batches(self, chunk: list[Entry]) -> list[Batch]:
        """Gather the events of a chunk by trial. A trial that was only drawn gets its run when it starts."""
        batches: dict[str, Batch] = {}
        mine = [entry for entry in chunk if entry.key and entry.kind != DRAWN]
        for entry, event in zip(mine, self.tail.events(mine), strict=True):
            trial = self.tail.state.trials[entry.key]
            batch = batches.setdefault(entry.key, open_batch(trial, self.tail.state.header["search_id"]))
            extend(batch, event, trial, entry.first, entry.epochs)
        return list(batches.values())

    def _tell_search(self, store: Store, cursor: Cursor, chunk: list[Entry], count: _Count) -> None:
        points = [point for entry in chunk for point in entry.points]
        phases = self.tail.events([entry for entry in chunk if entry.kind == "phase"])
        tags = {names.PHASE: str(phases[-1]["name"])} if phases else {}
        store.write(cursor.parent, metrics=points, tags=tags)
        if tags.get(names.PHASE) == "done":
            store.finish(cursor.parent, "FINISHED", milliseconds(phases[-1]["time"]))
        count.metrics += len(points)

    def _move_tags(self, store: Store, cursor: Cursor, wanted: Tags) -> None:
        """Set the front's tags on the runs where they changed, and on no other."""
        for key, tags in wanted.items():
            if cursor.tags.get(key) != tags and key in cursor.runs:
                store.write(cursor.runs[key], tags=tags)
                cursor.tags[key] = tags


def _note(cursor: Cursor, batch: Batch, outcome: Outcome, wanted: Tags, count: _Count) -> None:
    """Note what became of a batch. A refused one is named and not tried again: it would hold up all the others."""
    if isinstance(outcome, RefusedError):
        log.error("MLflow did not accept trial %s: %s", batch.key, scrub_text(str(outcome)))
        count.refused += 1
    elif isinstance(outcome, str):
        count.runs += batch.key not in cursor.runs
        count.metrics += len(batch.metrics)
        cursor.runs[batch.key] = outcome
        if batch.key in wanted:
            cursor.tags[batch.key] = wanted[batch.key]


def _chunks(entries: list[Entry]) -> Iterator[list[Entry]]:
    """Cut the events into pieces that are noted as a whole."""
    chunk: list[Entry] = []
    ends = 0
    for entry in entries:
        chunk.append(entry)
        ends += entry.kind == "end"
        if ends >= ENDS_A_CHUNK or len(chunk) >= EVENTS_A_CHUNK:
            yield chunk
            chunk, ends = [], 0
    if chunk:
        yield chunk
