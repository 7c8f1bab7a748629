"""What is run: each study is an ordinary search of `rst-tune`, kept afterwards as a small compressed record."""

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rst_tune import workflow
from rst_tune.analysis.records import RECORD_NAME, Event, Search, read_events, replay
from rst_tune.tuning.experiment import Experiment, load_experiment

__all__ = ["KEPT", "STUDIES", "WORK", "Study", "keep", "keep_as", "kept", "train", "write_lines"]

KEPT = Path(__file__).with_name("records")
WORK = Path("output/results")
# The page reads none of these, and the last two would say on whose machine it was.
DROPPED = ("history", "coins", "node", "worker")


@dataclass(frozen=True, kw_only=True)
class Study:
    """A study: the experiment that `rst-tune run` is given, and what it has to be told besides."""

    name: str
    experiment: str
    settings: tuple[str, ...] = ()

    @property
    def command(self) -> str:
        """What a person types to train it."""
        told = "".join(f" --set {setting}" for setting in self.settings)
        return f"rst-tune run {self.experiment}{told} --output {WORK / self.name}"

    def resolved(self, *more: str) -> Experiment:
        """Return the experiment, with further settings. Nothing is tracked: the record is what is kept."""
        return load_experiment(self.experiment, [*self.settings, "tracking.enabled=false", *more])


STUDIES = {
    study.name: study
    for study in (
        Study(name="paper", experiment="results/paper"),
        Study(name="decide", experiment="results/decide"),
        Study(name="gamma_map", experiment="results/gamma_map"),
        Study(name="rules", experiment="results/rules"),
        Study(
            name="cifar10",
            experiment="cifar10_small",
            settings=("task.data.name=npz", "task.data.root=data/cifar10.npz"),
        ),
    )
}


def train(study: Study, work: Path = WORK, *more: str) -> Search:
    """Run a study, or take it up where it was left."""
    return workflow.search(study.resolved(*more), work / study.name)


def keep(study: Study, work: Path = WORK, records: Path = KEPT) -> Path:
    """Write the record of a study that is done, without what the page does not need."""
    return keep_as(study.name, work / study.name, records)


def keep_as(name: str, directory: Path, records: Path = KEPT) -> Path:
    """Write the record of the search in a directory under a name."""
    return write_lines(records / f"{name}.jsonl.gz", _slim(read_events(directory / RECORD_NAME)))


def write_lines(path: Path, lines: Iterator[Event] | list[Event]) -> Path:
    """Write JSON lines, compressed; the same lines give the same bytes."""
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode(), mtime=0))
    return path


def _slim(events: Iterator[Event]) -> Iterator[Event]:
    for event in events:
        if event["event"] == "start":
            continue
        if event["event"] == "end":
            event["metrics"] = event.get("metrics", {}) | _whole_run(event.get("history", {}))
        yield _without(event)


def _whole_run(history: dict[str, list[float]]) -> dict[str, float]:
    """Return the seconds of the whole run where the metrics have those of its last epoch."""
    return {name: sum(values) for name, values in history.items() if name.startswith("seconds")}


def _without(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {key: _without(part) for key, part in value.items() if key not in DROPPED}
        return kept | {"root": None} if "root" in kept else kept
    return value


def kept(name: str, records: Path = KEPT) -> Search | None:
    """Return the kept search of a study, or None where there is none or it was not trained to its end."""
    path = records / f"{name}.jsonl.gz"
    if not path.exists():
        return None
    search = replay((json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()), path.parent)
    return search if search.done else None
