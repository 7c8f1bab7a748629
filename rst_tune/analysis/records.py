"""The record of a search: one append-only JSONL file, the truth from which all else is rebuilt.

Every line is one event, `{"event": name, "time": seconds, ...}`. The events, in the life of a search:

| event | says |
| --- | --- |
| `search` | identity, the experiment as resolved, the space, versions, devices; written once |
| `reference` | the fixed reference point (error, extra propagation) of the hypervolume; written once |
| `trial` | a trial was drawn: key, number, role, configuration, seed, horizon |
| `start` | a worker took it: node, worker (process id), Ray's trial id; again after each restart |
| `rung` | it reached a rung: epoch, error, and what was decided |
| `end` | it ended: status, reason, last metrics, pairs, seconds, the history of its epochs as columns |
| `test` | the test set was read for it, once, after confirmation |
| `phase` | the search went on to `search`, `confirm`, `test` or `done` |

Errors are in percent, everywhere. Extra propagation is the expected number of extra forward-backward pairs a
step: 0 is the base optimizer, 1 is SAM.
"""

import contextlib
import errno
import hashlib
import json
import math
import os
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from rst_tune.errors import InputError

__all__ = [
    "RECORD_NAME",
    "Record",
    "Replay",
    "Search",
    "Trial",
    "config_id",
    "counted",
    "load",
    "read_events",
    "trial_key",
]

RECORD_NAME = "record.jsonl"

Status = Literal["waiting", "running", "complete", "stopped", "diverged", "failed"]
Event = dict[str, Any]


def config_id(coordinates: Mapping[str, Any]) -> str:
    """Return the identity of a configuration: a hash of what was drawn, free of seeds, horizons and Ray.

    >>> config_id({"a": 1, "b": 2.0}) == config_id({"b": 2.0, "a": 1})
    True
    """
    text = json.dumps(coordinates, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def trial_key(config: str, epochs: int, seed: int) -> str:
    """Return the key of one training: configuration, horizon in epochs, seed."""
    return f"{config}-e{epochs}-s{seed}"


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One training, as far as the record knows it.

    `config` holds `family`, `schedule` (a plain dict), `rule`, `rule_options`, `rho`, `gamma_gnr`, `gamma_rst`,
    `extra_propagation`, and `coordinates` (what was drawn). `history` maps a metric's name to one value an epoch.
    """

    key: str
    number: int
    role: Literal["search", "confirm"]
    config_id: str
    config: Mapping[str, Any]
    seed: int
    epochs: int
    full: bool
    drawn: float
    status: Status = "waiting"
    reason: str = ""
    error: float | None = None
    test_error: float | None = None
    pairs: float = 0.0
    seconds: float = 0.0
    metrics: Mapping[str, float] = field(default_factory=dict)
    history: Mapping[str, list[float]] = field(default_factory=dict)
    rungs: Mapping[int, float] = field(default_factory=dict)
    halted: bool = False
    started: float | None = None
    ended: float | None = None
    node: str = ""
    worker: str = ""
    ray_trial: str = ""

    @property
    def finished(self) -> bool:
        """Whether it was trained to the full horizon, its error and cost finite: only then may it be on a front."""
        whole = self.full and self.status == "complete" and self.error is not None
        return whole and math.isfinite(self.error or 0.0) and math.isfinite(self.extra_propagation)

    @property
    def extra_propagation(self) -> float:
        """The cost: expected extra pairs a step, known before training; not a number where it was not recorded."""
        return float(self.config.get("extra_propagation", math.nan))


@dataclass(frozen=True, kw_only=True)
class Search:
    """A search as its record tells it."""

    directory: Path
    header: Mapping[str, Any]
    trials: tuple[Trial, ...]
    reference: tuple[float, float] | None = None
    phase: str = "search"
    updated: float = 0.0

    @property
    def done(self) -> bool:
        """Whether the search, its confirmation and the reading of the test set are over."""
        return self.phase == "done"

    @property
    def pairs(self) -> float:
        """Every propagation pair that was spent: stopped, failed and confirming trials included."""
        return sum(t.pairs for t in self.trials)

    def _repr_html_(self) -> str:
        """A notebook shows the answer of a search."""
        from rst_tune.analysis.fronts import delivered

        return delivered(self)._repr_html_()

    def finished(self) -> list[Trial]:
        """Return the trials trained to the full horizon."""
        return [t for t in self.trials if t.finished]

    def by_config(self) -> dict[str, list[Trial]]:
        """Return the finished trials of each configuration, in order of number."""
        groups: dict[str, list[Trial]] = {}
        for trial in self.finished():
            groups.setdefault(trial.config_id, []).append(trial)
        return groups


def counted(trials: Iterable[Trial]) -> list[Trial]:
    """Return the trials of one configuration that its mean counts: the confirming ones alone, once there are two.

    A configuration is confirmed because its searching trial looked good, so that trial is biased by luck.
    """
    trials = list(trials)
    fresh = [t for t in trials if t.role == "confirm"]
    return fresh if len(fresh) >= 2 else trials


class Record:
    """The writer. A line is written whole and flushed to disk before `append` returns."""

    def __init__(self, directory: Path) -> None:
        self.path = Path(directory) / RECORD_NAME
        self.path.parent.mkdir(parents=True, exist_ok=True)
        _end_last_line(self.path)
        self._file = self.path.open("ab", buffering=0)

    def append(self, event: str, **fields: Any) -> Event:
        """Append one event with the present time, and return it."""
        line: Event = {"event": event, "time": time.time(), **fields}
        text = json.dumps(line, separators=(",", ":"), allow_nan=True) + "\n"
        self._write(text.encode())
        return line

    def _write(self, line: bytes) -> None:
        """Write a line whole or not at all: a full disk takes a part of it, which is cut off again."""
        size = os.fstat(self._file.fileno()).st_size
        try:
            if self._file.write(line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
            os.fsync(self._file.fileno())
        except OSError:
            with contextlib.suppress(OSError):
                self._file.truncate(size)
            raise

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _end_last_line(path: Path) -> None:
    """End a line that a killed writer left open, so that the next event does not join it."""
    if not path.exists() or path.stat().st_size == 0:
        return
    with path.open("rb+") as file:
        file.seek(-1, os.SEEK_END)
        if file.read(1) != b"\n":
            file.write(b"\n")


def read_events(path: Path) -> Iterator[Event]:
    """Yield the events of a record. A damaged line is named and dropped with a warning; the rest goes on."""
    with Path(path).open("rb") as file:
        for number, raw in enumerate(file, start=1):
            if not raw.strip():
                continue
            try:
                event = json.loads(raw)
                if not isinstance(event, dict) or "event" not in event:
                    raise ValueError("not an event")
            except ValueError:
                warnings.warn(f"{path}:{number}: a damaged line was dropped ({len(raw)} bytes)", stacklevel=2)
                continue
            yield event


def load(directory: Path | str) -> Search:
    """Return the search recorded in `directory`."""
    directory = Path(directory)
    path = directory / RECORD_NAME if directory.is_dir() or not directory.suffix else directory
    if not path.exists():
        raise InputError(
            f"a search has a file {RECORD_NAME}, but {path.parent} has none: give the output directory of a run"
        )
    return replay(read_events(path), path.parent)


def replay(events: Iterable[Event], directory: Path) -> Search:
    """Return the search that a sequence of events tells."""
    state = Replay(directory)
    for event in events:
        state.apply(event)
    return state.search()


class Replay:
    """What the events so far amount to. A running search holds one, so that a resumed one knows exactly as much."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.header: Mapping[str, Any] = {}
        self.trials: dict[str, Trial] = {}
        self.reference: tuple[float, float] | None = None
        self.phase = "search"
        self.updated = 0.0

    def apply(self, event: Event) -> None:
        """Take one event into account."""
        self.updated = event.get("time", self.updated)
        match event["event"]:
            case "search":
                self.header = self.header or event
            case "reference":
                self.reference = (float(event["error"]), float(event["extra_propagation"]))
            case "phase":
                self.phase = event["name"]
            case "trial":
                self.trials.setdefault(event["key"], _drawn(event))
            case kind if event.get("key") in self.trials:
                self.trials[event["key"]] = _advance(self.trials[event["key"]], kind, event)
            case kind:
                warnings.warn(f"{self.directory}: an event {kind!r} of no known trial was dropped", stacklevel=2)

    def search(self) -> Search:
        """Return the search as it stands."""
        return Search(
            directory=self.directory,
            header=self.header,
            trials=tuple(self.trials.values()),
            reference=self.reference,
            phase=self.phase,
            updated=self.updated,
        )


def _drawn(event: Event) -> Trial:
    names = ("key", "number", "role", "config_id", "config", "seed", "epochs", "full")
    return Trial(drawn=event["time"], **{name: event[name] for name in names})


def _advance(trial: Trial, kind: str, event: Event) -> Trial:
    match kind:
        case "start":
            return replace(
                trial,
                status="running" if trial.status == "waiting" else trial.status,
                started=trial.started or event["time"],
                node=event.get("node", ""),
                worker=event.get("worker", ""),
                ray_trial=event.get("ray_trial", ""),
            )
        case "rung":
            rungs = {**trial.rungs, int(event["epoch"]): float(event["error"])}
            return replace(trial, rungs=rungs, halted=bool(event.get("stop", False)))
        case "end":
            names = ("status", "reason", "error", "pairs", "seconds", "metrics", "history")
            return replace(trial, ended=event["time"], **{name: event[name] for name in names if name in event})
        case "test":
            return replace(trial, test_error=float(event["error"]))
    warnings.warn(f"an unknown event {kind!r} was dropped", stacklevel=2)
    return trial
