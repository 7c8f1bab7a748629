"""The studies: each is an ordinary search of `rst-tune`, kept afterwards as a small compressed event log."""

import gzip
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rst_tune import api
from rst_tune.analysis.analysis import Analysis
from rst_tune.records import (
    LOG_NAME,
    EpochsReported,
    Event,
    Search,
    SearchStarted,
    SearchState,
    TrialEnded,
    TrialSampled,
    TrialStarted,
    load,
    read_events,
)
from rst_tune.records.log import parse_line
from rst_tune.tuning.experiment import Experiment

__all__ = ["KEPT", "STUDIES", "WORK", "Study", "keep", "keep_as", "kept", "train", "write_lines"]

KEPT = Path(__file__).with_name("records")
WORK = Path("output/results")


@dataclass(frozen=True, kw_only=True)
class Study:
    """A study: an experiment of `rst-tune run`."""

    name: str
    experiment: str

    @property
    def command(self) -> str:
        """The command line that trains it."""
        return f"rst-tune run {self.experiment} --output {WORK / self.name}"

    def load(self, *more: str) -> Experiment:
        """Return the experiment, with further settings. MLflow is off: the event log is what is kept."""
        return api.load_experiment(self.experiment, ["tracking.enabled=false", *more])


STUDIES = {name: Study(name=name, experiment=f"results/{name}") for name in ("paper", "gamma_map")}


def train(study: Study, work: Path = WORK, *more: str) -> Analysis:
    """Run a study, or resume it."""
    return api.search(study.load(*more), work / study.name)


def keep(study: Study, work: Path = WORK, records: Path = KEPT) -> Path:
    """Write the record of a finished study, without what the page does not need."""
    return keep_as(study.name, work / study.name, records)


def keep_as(name: str, directory: Path, records: Path = KEPT) -> Path:
    """Write the record of the search in a directory under a name."""
    slim = _slim(read_events(directory / LOG_NAME), load(directory))
    return write_lines(records / f"{name}.jsonl.gz", (event.to_dict() for event in slim))


def write_lines(path: Path, lines: Iterable[dict[str, Any]]) -> Path:
    """Write JSON lines, compressed; the same lines give the same bytes."""
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode(), mtime=0))
    return path


def read_lines(path: Path) -> list[bytes]:
    """Return the lines of a compressed file."""
    return gzip.decompress(path.read_bytes()).splitlines()


def _slim(events: Iterable[Event], search: Search) -> Iterator[Event]:
    """Yield what the page reads. Paths, nodes and workers, which identify a machine, are left out."""
    histories = {trial.key: trial.history for trial in search.trials}
    for event in events:
        match event:
            case TrialStarted() | EpochsReported():
                continue
            case SearchStarted():
                yield replace(event, experiment=_without_paths(event.experiment))
            case TrialSampled():
                yield replace(event, preview=replace(event.preview, coins=()))
            case TrialEnded():
                # The metrics of an end are those of the last epoch; the page needs the seconds of the whole run.
                history = histories[event.key]
                seconds = {name: sum(values) for name, values in history.items() if name.startswith("seconds")}
                yield replace(event, metrics={**event.metrics, **seconds})
            case _:
                yield event


def _without_paths(tree: Any) -> Any:
    if not isinstance(tree, dict):
        return tree
    return {key: None if key == "root" else _without_paths(value) for key, value in tree.items()}


def kept(name: str, records: Path = KEPT) -> Search | None:
    """Return the kept search of a study; None where there is none or it is not finished."""
    path = records / f"{name}.jsonl.gz"
    if not path.exists():
        return None
    state = SearchState(records)
    for line in read_lines(path):
        state.apply(parse_line(line))
    search = state.search()
    return search if search.done else None
