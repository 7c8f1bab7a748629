"""An index of the event log, extended as the log grows, with the state and the metrics of the search."""

import logging
import os
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from rst_tune.analysis import pareto
from rst_tune.records import (
    EpochsReported,
    Event,
    ReferenceSet,
    SearchState,
    Status,
    Trial,
    TrialEnded,
    TrialSampled,
    scored_trials,
)
from rst_tune.records.events import TrialEvent
from rst_tune.records.log import find_log, new_lines, parse_line
from rst_tune.tracking import names
from rst_tune.tracking.mapping import MetricPoint, milliseconds

log = logging.getLogger(__name__)

COUNTERS = {Status.COMPLETE: names.TRIALS_FINISHED, Status.STOPPED: names.TRIALS_STOPPED}


@dataclass(frozen=True, slots=True)
class Entry:
    """Where an event lies in the log.

    Attributes:
        start: its first byte.
        end: the byte after its last one.
        kind: its type.
        key: the trial, empty for an event of the search.
        first: whether it creates the run of its trial. A trial that was only sampled has no run yet.
        epochs: how many epochs of the trial were reported before it.
        points: metrics of the search that follow from it.
    """

    start: int
    end: int
    kind: type[Event]
    key: str
    first: bool
    epochs: int
    points: tuple[MetricPoint, ...]


class EventLogIndex:
    """Reads whole lines, each once. Histories stay in the file, so a long search needs little memory.

    `state` is the search at the end of the log, `ends` the number of ended trials, `front_time` the time of the last
    event that may have changed the front.
    """

    def __init__(self, directory: Path) -> None:
        self.path = find_log(directory)
        self.state = SearchState(self.path.parent)
        self.entries: list[Entry] = []
        self.ends = 0
        self.front_time = 0
        self._metrics = _SearchMetrics()
        self._epochs: dict[str, int] = {}
        self._with_run: set[str] = set()
        self._offset = 0

    def read(self) -> None:
        """Read what was appended since the last call, up to the last complete line."""
        begin = self._offset
        for end, raw in new_lines(self.path, begin):
            self._offset = end
            self._add_line(raw, end - len(raw))
        if self._offset > begin:
            # The writer does not flush epochs. Without this, a crash of the machine could take back lines whose
            # delivery was noted already, and the lines written in their place would never be sent.
            with self.path.open("rb") as file:
                os.fsync(file.fileno())

    def since(self, offset: int) -> list[Entry]:
        """Return the events that lie after `offset`."""
        return self.entries[bisect_left(self.entries, offset, key=lambda entry: entry.start) :]

    def events(self, entries: Iterable[Entry]) -> list[Event]:
        """Return the events themselves, read again from the file."""
        found = []
        with self.path.open("rb") as file:
            for entry in entries:
                file.seek(entry.start)
                found.append(parse_line(file.read(entry.end - entry.start)))
        return found

    def _add_line(self, raw: bytes, start: int) -> None:
        try:
            event = parse_line(raw)
            key = event.key if isinstance(event, TrialEvent) else ""
            if key and not isinstance(event, TrialSampled) and key not in self.state.trials:
                raise ValueError("an event of an unknown trial")
            self.state.apply(event)
            self.entries.append(self._entry(event, key, start, start + len(raw)))
        except (ValueError, TypeError, KeyError, AttributeError):
            if raw.strip():
                log.warning("%s: the damaged line at byte %d is left out", self.path, start)
            return
        if key and self.state.trials[key].history:
            trial = self.state.trials[key]
            self.state.trials[key] = replace(trial, history={name: [] for name in trial.history})

    def _entry(self, event: Event, key: str, start: int, end: int) -> Entry:
        time = milliseconds(event.time)
        first = bool(key) and not isinstance(event, TrialSampled) and key not in self._with_run
        if first:
            self._with_run.add(key)
        epochs = self._epochs.get(key, 0)
        points: tuple[MetricPoint, ...] = ()
        match event:
            case EpochsReported():
                longest = max(map(len, event.metrics.values()), default=0)
                self._epochs[key] = max(epochs, event.first_epoch - 1 + longest)
            case TrialEnded():
                self.ends, self.front_time = self.ends + 1, time
                points = self._metrics.end_trial(self.state.trials[key], time, self.ends)
            case ReferenceSet():
                self.front_time = time
                points = self._metrics.set_reference(event)
        return Entry(start, end, type(event), key, first, epochs, points)


class _SearchMetrics:
    """The metrics of the search after each ended trial, computed from the events alone.

    Step and time come from the event, so reading the log again gives the same points. A trial that was lost, resumed
    and ended again makes a second step, and counts once, by its last status.
    """

    def __init__(self) -> None:
        self._ended: dict[str, Trial] = {}
        self._finished: dict[str, dict[str, Trial]] = {}
        self._means: dict[str, tuple[float, float]] = {}
        self._reference: tuple[float, float] | None = None
        self._without_reference: list[tuple[int, int, list[tuple[float, float]]]] = []
        self._row = dict.fromkeys(
            (names.TRIALS_FINISHED, names.TRIALS_STOPPED, names.TRIALS_FAILED, names.SEARCH_PAIRS), 0.0
        )

    def end_trial(self, trial: Trial, time: int, step: int) -> tuple[MetricPoint, ...]:
        """Return the metrics after a trial ended. The hypervolume follows once there is a reference point."""
        for sign, each in ((-1, self._ended.get(trial.key)), (1, trial)):
            if each is not None:
                self._row[COUNTERS.get(each.status, names.TRIALS_FAILED)] += sign
                self._row[names.SEARCH_PAIRS] += sign * each.pairs
        self._ended[trial.key] = trial
        if trial.finished:
            group = self._finished.setdefault(trial.config_id, {})
            group[trial.key] = trial
            errors = [t.error for t in scored_trials(group.values()) if t.error is not None]
            self._means[trial.config_id] = (fmean(errors), trial.compute)
        means = list(self._means.values())
        front = [mean for mean, kept in zip(means, pareto.nondominated(means), strict=True) if kept] if means else []
        self._without_reference.append((time, step, front))
        return (*(MetricPoint(name, value, time, step) for name, value in self._row.items()), *self._hypervolumes())

    def set_reference(self, event: ReferenceSet) -> tuple[MetricPoint, ...]:
        """Return the reference point, and the hypervolumes that waited for it."""
        self._reference = (float(event.error), float(event.compute))
        both = zip((names.REFERENCE_ERROR, names.REFERENCE_COMPUTE), self._reference, strict=True)
        time = milliseconds(event.time)
        return (*(MetricPoint(name, value, time, 0) for name, value in both), *self._hypervolumes())

    def _hypervolumes(self) -> list[MetricPoint]:
        if self._reference is None:
            return []
        rows, self._without_reference = self._without_reference, []
        return [
            MetricPoint(names.HYPERVOLUME_MEASURED, float(pareto.hypervolume(front, self._reference)), time, step)
            for time, step, front in rows
        ]
