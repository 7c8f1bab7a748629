"""Sends the event log of a search to an MLflow store: in order, once, continuing where the last sync stopped.

A crash between a request and the note of it does no harm: a run is found again by its tags, and a metric has its time
from the event, so the store recognises the second copy as equal and keeps one.
"""

import hashlib
import json
import logging
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rst_tune.analysis.analysis import Analysis, analyze
from rst_tune.errors import InputError
from rst_tune.files import BusyError, file_lock, write_text
from rst_tune.records import Phase, PhaseEntered, TrialEnded, TrialSampled
from rst_tune.records.events import TrialEvent
from rst_tune.redaction import redact_text
from rst_tune.tracking import names
from rst_tune.tracking.client import FOLDER, explain, resolve_uri, store_name
from rst_tune.tracking.event_index import Entry, EventLogIndex
from rst_tune.tracking.mapping import (
    Batch,
    MetricPoint,
    SearchRecord,
    extend_batch,
    front_description,
    front_tags,
    milliseconds,
    new_batch,
    search_record,
)
from rst_tune.tracking.store import Outcome, PermanentStoreError, Store, UploadJob, upload_pool

log = logging.getLogger(__name__)

# Small enough that little is repeated after a crash, large enough that the state is not written all the time.
ENDS_PER_CHUNK = 40
EVENTS_PER_CHUNK = 1000

OUTBOX = "outbox.json"
REDACTED_FILES = (".yaml", ".yml", ".json", ".csv", ".md", ".txt")
"""Files that are redacted on upload. An HTML page is not: it is made from redacted events, and carries scripts."""


@dataclass(kw_only=True)
class SyncState:
    """The sync position of one store. The file only saves work: without it, the store is searched by tags.

    Attributes:
        offset: everything before this byte of the event log is delivered.
        experiment: the id of the experiment.
        parent: the run of the search.
        described: whether parameters, files and data set of the parent are written.
        up_to_date: whether front, description and files match `offset`.
        runs: trial key to run.
        unsure: keys whose run may have been created by an interrupted sync.
        tags: trial key to the tags of the front as they were set last.
        front: hypervolume, size and description of the front as they were written last.
        files: artifact of the search to the digest of what was uploaded.
        models: trial key to logged model.
    """

    offset: int = 0
    experiment: str = ""
    parent: str = ""
    described: bool = False
    up_to_date: bool = False
    runs: dict[str, str] = field(default_factory=dict)
    unsure: list[str] = field(default_factory=list)
    tags: dict[str, dict[str, str]] = field(default_factory=dict)
    front: list[str] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    models: dict[str, str] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path) -> "SyncState":
        """Return the state in a file; for a missing or damaged file, the initial state."""
        try:
            return cls(**json.loads(path.read_text()))
        except (FileNotFoundError, ValueError, TypeError):
            return cls()

    def reset(self) -> None:
        """Return to the initial state: the store does not have the search any more."""
        vars(self).update(vars(SyncState()))

    def save(self, path: Path) -> None:
        """Replace the file."""
        write_text(path, json.dumps(asdict(self), separators=(",", ":")))


@dataclass(kw_only=True)
class SyncResult:
    """What a sync did.

    Attributes:
        runs: runs created.
        metrics: metric values sent.
        rejected: batches that the store did not accept; they are logged and not repeated.
        pending: events and files that are not delivered yet.
        problem: why they are not: one line with host, port and reason.
    """

    runs: int = 0
    metrics: int = 0
    rejected: int = 0
    pending: int = 0
    problem: str = ""


class Syncer:
    """Syncs one search to one store."""

    def __init__(
        self,
        directory: Path,
        uri: str | None = None,
        experiment: str | None = None,
        draw_front: Callable[[Analysis], Path] | None = None,
    ) -> None:
        self.directory = Path(directory)
        self._draw_front = draw_front
        target = resolve_uri(self.directory, uri, experiment)
        self.uri = target.uri
        self.path = self.directory / FOLDER / f"{store_name(self.directory, self.uri)}.json"
        self.index = EventLogIndex(self.directory)
        self._experiment = target.experiment
        self._store: Store | None = None
        self._analysis: tuple[object, Analysis] | None = None

    def run(
        self,
        *,
        lock_timeout: float = 5.0,
        verify: bool = False,
        analysis: Analysis | None = None,
        with_front: bool = True,
    ) -> SyncResult:
        """Send what is pending. An unreachable store is not an error: the result names the problem.

        Args:
            lock_timeout: seconds to wait for another process that syncs the same search.
            verify: ask the store whether it still has the search even if nothing is pending, and upload in parallel
                if much is. A running search needs neither.
            analysis: the analysis of the search, if there is one; it is used if it is that of the present state.
            with_front: analyse the search and send its front, too; without it, events alone are sent.

        Raises:
            BusyError: another process syncs the search.
        """
        try:
            with file_lock(self.path.with_suffix(".lock"), timeout=lock_timeout):
                return self._run(verify, analysis, with_front)
        except BusyError as error:
            raise BusyError(
                f"another process has been syncing {self.directory} for {lock_timeout:g} s: wait until it ends"
            ) from error

    def analysis(self) -> Analysis:
        """Return the analysis of the search as it was read last. It depends on ended trials and the reference alone."""
        version = (self.index.ends, self.index.state.reference)
        if self._analysis is None or self._analysis[0] != version:
            self._analysis = (version, analyze(self.index.state.search()))
        return self._analysis[1]

    def pending(self, state: SyncState) -> int:
        """Return how many events and files are not delivered."""
        return len(self.index.since(state.offset)) + len(_changed_files(self.directory, state.files))

    def _run(self, verify: bool, analysis: Analysis | None, with_front: bool) -> SyncResult:
        self.index.read()
        if analysis is not None and analysis.search.updated_at == self.index.state.updated_at:
            self._analysis = ((self.index.ends, self.index.state.reference), analysis)
        state = SyncState.load(self.path)
        result = SyncResult()
        try:
            self._send(state, result, verify, with_front)
        except Exception as error:  # noqa: BLE001 - no error of MLflow may end the search
            self._store, result.problem = None, explain(self.uri, error)
        result.pending = self.pending(state)
        return result

    def _send(self, state: SyncState, result: SyncResult, verify: bool, with_front: bool) -> None:
        header = self.index.state.header
        if header is None or (state.up_to_date and not verify and not self.pending(state)):
            return
        self._store = store = self._store or Store(self.uri)
        search = search_record(header)
        self._ensure_parent(store, state, search)
        tags = front_tags(self.analysis()) if self.index.ends and with_front else {}
        entries = self.index.since(state.offset)
        trials = len({entry.key for entry in entries}) if verify else 0
        with upload_pool(store, trials) as upload:
            for chunk in _chunks(entries):
                batches = self._batches(chunk, search)
                for batch in batches:
                    batch.tags |= tags.get(batch.key, {})
                accepted = self._upload(upload, state, result, batches)
                state.tags |= {key: tags[key] for key in accepted if key in tags}
                self._write_search_metrics(store, state, result, chunk)
                state.offset = chunk[-1].end
                state.save(self.path)
        for key, wanted in tags.items():
            if state.tags.get(key) != wanted and key in state.runs:
                store.write(state.runs[key], tags=wanted)
                state.tags[key] = wanted
        if with_front:
            result.metrics += self.describe_front(store, state)
            _upload_files(store, state, self.directory)
        state.up_to_date = with_front
        state.save(self.path)

    def _ensure_parent(self, store: Store, state: SyncState, search: SearchRecord) -> None:
        """Find or create the parent run, and find the runs that an interrupted sync may have created."""
        if state.parent and not store.has(state.parent):
            state.reset()
        if not state.parent:
            state.experiment = store.experiment(self._experiment or search.name, self.directory)
            found, state.runs = store.find_runs(state.experiment, search.search_id)
            name = f"{search.name} {search.search_id[:8]}"
            state.parent = found or store.create(state.experiment, name, search.start, search.tags)
            state.save(self.path)
        for key in state.unsure:
            state.runs |= store.find_runs(state.experiment, search.search_id, key)[1]
        if not state.described:
            store.describe_parent(state.parent, search)
            state.described = True

    def _batches(self, chunk: list[Entry], search: SearchRecord) -> list[Batch]:
        """Return the events of a chunk, grouped by trial. A trial that was only sampled has no run yet."""
        batches: dict[str, Batch] = {}
        entries = [entry for entry in chunk if entry.key and entry.kind is not TrialSampled]
        for entry, event in zip(entries, self.index.events(entries), strict=True):
            assert isinstance(event, TrialEvent)
            trial = self.index.state.trials[entry.key]
            batch = batches.setdefault(entry.key, new_batch(trial, search))
            extend_batch(batch, event, trial=trial, search=search, first=entry.first, epochs=entry.epochs)
        return list(batches.values())

    def _upload(
        self,
        upload: Callable[[list[UploadJob]], list[Outcome]],
        state: SyncState,
        result: SyncResult,
        batches: list[Batch],
    ) -> list[str]:
        """Send batches, note their runs, and return the keys of the accepted ones.

        A rejected batch is logged and skipped: it would block all others.
        """
        new = [batch.key for batch in batches if batch.key not in state.runs]
        if new or state.up_to_date:
            state.unsure, state.up_to_date = new, False
            state.save(self.path)
        jobs = [UploadJob(state.experiment, state.parent, batch, state.runs.get(batch.key)) for batch in batches]
        outcomes = upload(jobs)
        for batch, outcome in zip(batches, outcomes, strict=True):
            if isinstance(outcome.error, PermanentStoreError):
                log.error("MLflow rejected a batch of trial %s: %s", batch.key, redact_text(str(outcome.error)))
                result.rejected += 1
            elif outcome.error is None:
                result.metrics += len(batch.metrics)
            if outcome.run_id is not None:
                result.runs += batch.key not in state.runs
                state.runs[batch.key] = outcome.run_id
        state.unsure = [key for key in new if key not in state.runs]
        for outcome in outcomes:
            if outcome.error is not None and not isinstance(outcome.error, PermanentStoreError):
                state.save(self.path)
                raise outcome.error
        return [batch.key for batch, outcome in zip(batches, outcomes, strict=True) if outcome.error is None]

    def _write_search_metrics(self, store: Store, state: SyncState, result: SyncResult, chunk: list[Entry]) -> None:
        points = [point for entry in chunk for point in entry.points]
        phases = self.index.events(entry for entry in chunk if entry.kind is PhaseEntered)
        last = phases[-1] if phases else None
        assert last is None or isinstance(last, PhaseEntered)
        store.write(state.parent, metrics=points, tags={names.PHASE: last.phase.value} if last else {})
        if last is not None and last.phase is Phase.DONE:
            store.finish(state.parent, "FINISHED", milliseconds(last.time))
        result.metrics += len(points)

    def describe_front(self, store: Store, state: SyncState) -> int:
        """Write hypervolume, size and description of the front if they changed; return the number of metric values.

        Step and time are those of the last event that may have changed the front, so that repeating a sync writes the
        same values.
        """
        if not self.index.ends:
            return 0
        analysis = self.analysis()
        values = {names.HYPERVOLUME: analysis.hypervolume, names.FRONT_SIZE: float(len(analysis.points))}
        time, step = self.index.front_time, self.index.ends
        points = [MetricPoint(name, value, time, step) for name, value in values.items() if value is not None]
        links = {key: f"#/experiments/{state.experiment}/models/{model}" for key, model in state.models.items()}
        text = front_description(analysis, links)
        if state.front == [repr(points), text]:
            return 0
        store.write(state.parent, metrics=points, tags={names.NOTE: text})
        if self._draw_front is not None and analysis.points:
            enqueue(self.directory, [self._draw_front(analysis)])
        state.front = [repr(points), text]
        return len(points)

    def write_to_parent(self, metrics: list[MetricPoint]) -> None:
        """Write metrics that the event log does not have to the run of the search, once there is one."""
        parent = SyncState.load(self.path).parent
        if self._store is not None and parent:
            self._store.write(parent, metrics=metrics)


def _chunks(entries: list[Entry]) -> Iterator[list[Entry]]:
    """Yield the events in groups after which the sync position is saved."""
    chunk: list[Entry] = []
    ends = 0
    for entry in entries:
        chunk.append(entry)
        ends += entry.kind is TrialEnded
        if ends >= ENDS_PER_CHUNK or len(chunk) >= EVENTS_PER_CHUNK:
            yield chunk
            chunk, ends = [], 0
    if chunk:
        yield chunk


def enqueue(directory: Path, artifacts: Iterable[Path | str]) -> None:
    """Note files of the search for upload; they replace earlier ones of the same name."""
    directory = Path(directory).resolve()
    paths = [Path(path) if Path(path).is_absolute() else directory / path for path in artifacts]
    missing = [str(path) for path in paths if not path.is_file()]
    if missing:
        raise InputError(f"an artifact must be an existing file, but these do not exist: {', '.join(missing)}")
    files = _outbox(directory) | {path.name: os.path.relpath(path, directory) for path in paths}
    write_text(directory / FOLDER / OUTBOX, json.dumps(files))


def _outbox(directory: Path) -> dict[str, str]:
    path = Path(directory) / FOLDER / OUTBOX
    return dict(json.loads(path.read_text())) if path.exists() else {}


def _changed_files(directory: Path, uploaded: Mapping[str, str]) -> dict[str, str]:
    """Return the files of the outbox that the store does not have as they are now, with their digests."""
    paths = {name: directory / path for name, path in _outbox(directory).items()}
    digests = {name: hashlib.sha256(p.read_bytes()).hexdigest() for name, p in paths.items() if p.is_file()}
    return {name: digest for name, digest in digests.items() if uploaded.get(name) != digest}


def _upload_files(store: Store, state: SyncState, directory: Path) -> None:
    """Upload the changed files of the outbox as artifacts of the search."""
    for name, digest in _changed_files(directory, state.files).items():
        path = directory / _outbox(directory)[name]
        with tempfile.TemporaryDirectory() as folder:
            if path.suffix.lower() in REDACTED_FILES:
                content = redact_text(path.read_text())
                path = Path(folder) / path.name
                path.write_text(content)
            store.client.log_artifact(state.parent, str(path))
        state.files[name] = digest
