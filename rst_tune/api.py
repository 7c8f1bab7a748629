"""Everything the command line does, one call each from Python. Imports are late: each call loads what it needs."""

import csv
import json
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rst_tune.analysis.compare import Comparison
    from rst_tune.analysis.fronts import Front
    from rst_tune.analysis.records import Search
    from rst_tune.report.progress import Snapshot
    from rst_tune.training.loop import Progress, Run
    from rst_tune.tuning.conductor import Conductor
    from rst_tune.tuning.experiment import Experiment

__all__ = ["compare", "export", "find_search", "finish", "search", "status", "train", "write_report"]

REPORT_NAME = "report.html"


def find_search(directory: Path | str | None = None) -> "Search":
    """Return the search in a directory, or the latest one."""
    from rst_tune.analysis.records import load
    from rst_tune.tuning.run import latest_search

    return load(directory if directory is not None else latest_search())


def is_finished(directory: Path) -> bool:
    """Return whether a search in this directory has come to its end."""
    from rst_tune.analysis.records import RECORD_NAME, load

    return (directory / RECORD_NAME).exists() and load(directory).done


def search(
    experiment: "Experiment",
    output: Path | None = None,
    *,
    address: str | None = None,
    fresh: bool = False,
    show: Callable[["Snapshot"], None] | None = None,
    due: Callable[[], bool] = lambda: True,
    register: str | None = None,
) -> "Search":
    """Search, confirm, read the test set, write front and report, and hand both to MLflow."""
    from rst_tune.tuning.run import run_search

    watch = _watcher(show, due) if show is not None else None
    found = run_search(experiment, output, address=address, fresh=fresh, watch=watch)
    finish(found, experiment, register=register)
    return found


def _watcher(show: Callable[["Snapshot"], None], due: Callable[[], bool]) -> Callable[["Conductor"], None]:
    from rst_tune.report.progress import snapshot

    begun: list[tuple[float, float]] = []

    def watch(conductor: "Conductor") -> None:
        if not due():
            return
        spent, limit = conductor.spent(), conductor.limit()
        begun[:] = begun or [(time.monotonic(), spent)]
        done, passed = spent - begun[0][1], time.monotonic() - begun[0][0]
        finite = 0 < limit < float("inf")
        eta = passed * max(limit - spent, 0.0) / done if finite and done > 0 else None
        show(snapshot(conductor.search(), share=spent / limit if finite else None, eta=eta))

    return watch


def finish(found: "Search", experiment: "Experiment | None" = None, *, register: str | None = None) -> "Front":
    """Write the front and the report of a search beside its record, and hand them to MLflow."""
    from rst_tune import tracking
    from rst_tune.analysis import fronts

    front = fronts.delivered(found)
    paths = [*_write_front(front, found.directory), write_report(found)]
    if experiment is None or experiment.tracking.enabled:
        uri = experiment.tracking.uri if experiment is not None else None
        tracking.log_results(found.directory, paths, _summary(front), uri)
        if found.done and (front.confirmed or register is not None):
            _log_models(found, register, uri)
    return front


def _summary(front: "Front") -> str:
    """Return the description of the search in MLflow: there the metrics go by measured errors, the front does not."""
    if not front.points:
        return front.answer
    points = f"{len(front.points)} point{'s' if len(front.points) > 1 else ''}"
    return (
        f"{front.answer}\n\nThe front has {points} and, by the expected errors, a hypervolume of "
        f"{front.hypervolume:.4g}. The metrics hypervolume and front_size follow the errors as measured, luck included."
    )


def _log_models(found: "Search", register: str | None, uri: str | None) -> None:
    """Log the models of the confirmed front. A store that is away costs a warning, unless they are to be registered."""
    from rst_tune import tracking

    try:
        tracking.log_models(found.directory, model_loader(found), register=register, uri=uri)
    except RuntimeError as problem:
        if register is not None:
            raise
        logging.getLogger(__name__).warning("%s", problem)


def model_loader(found: "Search") -> Callable[[str], Any]:
    """Return a function from a confirmed trial's key to its trained model."""
    from rst_tune.training.data import load_dataset
    from rst_tune.training.loop import Run
    from rst_tune.training.task import Method, Task
    from rst_tune.tuning.job import model_path

    task = Task.model_validate(found.header["experiment"]["task"])
    trials = {trial.key: trial for trial in found.trials}
    data = load_dataset(task.data)

    def load(key: str) -> Any:
        trial = trials[key]
        method = Method.from_config(dict(trial.config))
        run = Run(task, method, seed=trial.seed, epochs=trial.epochs, device="cpu", data=data)
        run.restore(model_path(found.directory, key))
        return run.model

    return load


def _write_front(front: "Front", directory: Path) -> list[Path]:
    rows = front.rows()
    as_json, as_csv = directory / "front.json", directory / "front.csv"
    as_json.write_text(json.dumps(rows, indent=2) + "\n")
    with as_csv.open("w", newline="") as file:
        write_csv(rows, file)
    return [as_json, as_csv]


def write_csv(rows: Iterable[dict[str, Any]], file: Any) -> None:
    """Write rows as CSV; what is nested becomes JSON text."""
    rows = list(rows)
    if not rows:
        return
    writer = csv.DictWriter(file, fieldnames=list(rows[0]))
    writer.writeheader()
    for row in rows:
        writer.writerow({k: json.dumps(v) if isinstance(v, dict | list) else v for k, v in row.items()})


def write_report(found: "Search", path: Path | None = None) -> Path:
    """Write the offline page of a search and return its path."""
    from rst_tune.report import page

    return page.write(found, path or found.directory / REPORT_NAME)


def train(
    experiment: "Experiment",
    *,
    method_file: Path | None = None,
    schedule: str = "constant:p=0.5",
    gamma_gnr: float = 1.0,
    rule: str = "sam",
    rho: float | None = None,
    seed: int = 0,
    device: str | None = None,
) -> "tuple[Run, Iterator[Progress]]":
    """Return one training run of an experiment's task, and the iterator that trains it.

    `method_file` is a YAML with the fields of `Method`, as the report copies it; it stands instead of the rest.
    """
    from rst_tune.method import schedules
    from rst_tune.training.loop import Run
    from rst_tune.training.task import Method
    from rst_tune.tuning import files

    given: dict[str, Any] = {"gamma_gnr": gamma_gnr, "rule": rule, "rho": rho}
    given["schedule"] = schedules.parse(schedule).to_dict()
    where = "the options"
    if method_file is not None:
        where = str(method_file)
        given = files.read_yaml(files.existing(method_file))
        seed = int(given.pop("seed", seed))
    run = Run(experiment.task, files.validate(Method, given, where), seed=seed, device=device)
    return run, run.progress()


def training_result(run: "Run") -> dict[str, Any]:
    """Return what a finished run came to: error, pairs, sharpness."""
    last = run.last_metrics
    return {
        "status": run.status,
        "seed": run.seed,
        "epochs": run.epoch_index,
        "validation_error": last.get("validation_error"),
        "pairs": run.pairs,
        "extra_propagation": run.extra_propagation,
        "realized_extra_propagation": last.get("realized_extra_propagation"),
        "seconds": sum(run.history.get("seconds", [])),
        **(run.sharpness() if run.status == "complete" else {}),
    }


def status(directory: Path | None = None) -> dict[str, Any]:
    """Return how a search stands, as plain data."""
    from dataclasses import asdict

    from rst_tune.report.progress import snapshot

    found = find_search(directory)
    left = time_left(found)
    return {"directory": str(found.directory), **asdict(snapshot(found, share=budget_share(found), eta=left))}


def budget_share(found: "Search") -> float | None:
    """Return how much of a budget in pairs is spent."""
    budget = found.header.get("experiment", {}).get("budget", {}).get("pairs")
    return found.pairs / budget if budget else None


def time_left(found: "Search") -> float | None:
    """Return the seconds that a search with a budget in pairs will still take at its pace so far."""
    share, begun = budget_share(found), found.header.get("time")
    if found.done or not share or begun is None or share >= 1:
        return None
    return float((found.updated - begun) * (1 - share) / share)


def export(directory: Path | None, form: str, output: Path | None = None) -> Path:
    """Write every trial of a search as csv, parquet or json, and return the file."""
    from rst_tune.analysis.export import write_export

    found = find_search(directory)
    return write_export(found, output or found.directory / f"trials.{form}", form)


def compare(directories: Iterable[Path], output: Path | None = None) -> "Comparison":
    """Compare searches; with `output`, draw them on one page."""
    from rst_tune.analysis.compare import compare as compared
    from rst_tune.report import comparison_page

    searches = {Path(d).name: find_search(d) for d in directories}
    if output is not None:
        comparison_page.write(searches, output)
    return compared(list(searches.values()), list(searches))


def _registry(entries: Iterable[Any]) -> list[dict[str, str]]:
    return [{"name": e.name, "description": e.description, "citation": e.citation} for e in entries]


def _schedules() -> list[dict[str, str]]:
    from rst_tune.method import schedules

    native = [{**row, "used": "native"} for row in _registry(schedules.FAMILIES)]
    return native + [{**row, "used": "cost"} for row in _registry(schedules.MEAN_FAMILIES)]


def _rules() -> list[dict[str, str]]:
    from rst_tune.method.ascent import RULES

    return _registry(RULES)


def _models() -> list[dict[str, str]]:
    from rst_tune.training.models import MODELS

    return _registry(MODELS)


def _data() -> list[dict[str, str]]:
    from rst_tune.training.sources import CLASSIFICATION_SETS, SOURCES

    other = ", ".join(CLASSIFICATION_SETS)
    return [*_registry(SOURCES), {"name": "(others)", "description": f"any fitting set of torchvision: {other} …"}]


def _shipped(kind: str) -> list[dict[str, str]]:
    from rst_tune.tuning import files

    found = files.shipped(kind).items()
    return [{"name": n, "description": str(files.read_yaml(p).get("description", ""))} for n, p in found]


LISTINGS: dict[str, Callable[[], list[dict[str, str]]]] = {
    "schedules": _schedules,
    "rules": _rules,
    "models": _models,
    "data": _data,
    "spaces": lambda: _shipped("search_spaces"),
    "experiments": lambda: _shipped("experiments"),
}
