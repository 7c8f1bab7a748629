"""Everything the command line does, one call each. Imports are late: each call loads only what it needs."""

import json
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rst_tune import files
from rst_tune.errors import InputError, unknown_name
from rst_tune.redaction import redact_text

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from rst_tune.analysis.analysis import Analysis
    from rst_tune.analysis.compare import Comparison
    from rst_tune.analysis.replicates import ConfigSummary
    from rst_tune.method.cost import Listed
    from rst_tune.records import Metric, Search
    from rst_tune.report.live import LivePage
    from rst_tune.report.progress import ProgressView
    from rst_tune.tracking import SyncResult, UiLinks
    from rst_tune.training.workload import Training
    from rst_tune.tuning.controller import SearchController
    from rst_tune.tuning.doctor import Check
    from rst_tune.tuning.estimate import Estimate
    from rst_tune.tuning.experiment import Experiment

REPORT_NAME = "report.html"
_log = logging.getLogger(__name__)


# --- searches -----------------------------------------------------------------------------------------------------


def load_experiment(
    name: str, settings: Iterable[str] = (), *, search: bool = True, warm_start: Sequence[Path | str] = ()
) -> "Experiment":
    """Return a shipped experiment by name, or one by its path, with `a.b=c` settings applied.

    `search=False`: only its task is used, for `train`. `warm_start`: directories of earlier searches that inform the
    prior of the surrogate.
    """
    from rst_tune.tuning.experiment import load_experiment as load

    experiment = load(name, settings, search=search)
    return _warm_started(experiment, warm_start)


def _warm_started(experiment: "Experiment", directories: Sequence[Path | str]) -> "Experiment":
    from rst_tune.tuning.warm_start import warm_started

    return warm_started(experiment, directories)


def output_directory(experiment: "Experiment", output: Path | None = None) -> Path:
    """Return where a search of the experiment lives: `output`, or its name and identity below `output/`."""
    from rst_tune.tuning.search import output_directory as directory

    return directory(experiment, output)


def text_log(directory: Path) -> Path:
    """Return the file that the libraries' log messages go to."""
    from rst_tune.tuning.search import TEXT_LOG_NAME

    return directory / TEXT_LOG_NAME


def find_search(directory: Path | str | None = None) -> "Search":
    """Return the search in a directory, or the latest one below `output/`."""
    from rst_tune.records import load
    from rst_tune.tuning.search import latest_search

    return load(directory if directory is not None else latest_search())


def analyze(directory: Path | str | None = None, cost: str | None = None) -> "Analysis":
    """Return the analysis of the search in a directory, or of the latest one, over `cost` (None: the search's own)."""
    from rst_tune.analysis.analysis import analyze as analysis_of

    return analysis_of(find_search(directory), cost)


def front_point(analysis: "Analysis", *, at: float | None, error: float | None) -> "ConfigSummary | None":
    """Return the point of the front for a compute or an error; None where neither is given."""
    if at is not None and error is not None:
        raise InputError(f"one of --at and --error asks for a point, but both are given ({at:g}, {error:g}): drop one")
    if at is not None:
        return analysis.at(at)
    return analysis.for_error(error) if error is not None else None


def search_function(
    train: Callable[..., Any],
    *,
    epochs: int,
    budget: "str | Mapping[str, Any]",
    metric: "str | Metric | Mapping[str, Any]" = "error",
    space: "str | Mapping[str, Any]" = "compute",
    resources: Mapping[str, Any] | None = None,
    output: Path | str | None = None,
    address: str | None = None,
    overwrite: bool = False,
    warm_start: Sequence[Path | str] = (),
    quiet: bool = False,
    **settings: Any,
) -> "Analysis":
    """Search over a training function and return the analysis, which shows its front in a notebook.

    Run again, it resumes; a finished search is analysed at once.

    Args:
        train: called with a `FunctionTrial` on a worker; see the README.
        epochs: the length of one plain training, 1 × of compute.
        budget: for example "60 trainings", "2000 epochs", "50000 pairs", "40 trials" or "8 device-hours".
        metric: its name, or a `Metric` with unit and direction. What `train` reports, to be minimized by default.
        space: a shipped space by name, a file, or the fields of one.
        resources: of one trial, such as {"cpu": 1, "gpu": 0.5}, and other fields of `Resources`.
        output: the directory of the search; on a cluster one that every node sees.
        address: a Ray cluster; None starts a local one.
        overwrite: move an earlier search there aside first.
        warm_start: directories of earlier searches, over whatever data, model, length or metric, that inform the prior
            of the surrogate. What was learnt is kept: to resume the search needs none of them.
        quiet: print nothing.
        settings: rho, steps_per_epoch and options of the task, and any other field of an experiment: name, seed,
            sampler, confirm, stopping, tracking.
    """
    from rich.console import Console

    from rst_tune.tuning.experiment import function_experiment

    short = {"cpu": "cpus_per_worker", "gpu": "gpus_per_worker"}
    fields = {short.get(name, name): value for name, value in (resources or {}).items()}
    experiment = function_experiment(
        train, epochs=epochs, metric=metric, budget=budget, space=space, resources=fields, **settings
    )
    experiment = _warm_started(experiment, warm_start)
    with progress_view(Console(stderr=True), quiet=quiet) as view:
        where = None if output is None else Path(output)
        return search(experiment, where, address=address, overwrite=overwrite, view=view)


def search(
    experiment: "Experiment",
    output: Path | None = None,
    *,
    address: str | None = None,
    overwrite: bool = False,
    view: "ProgressView | None" = None,
    say: Callable[[str], None] = lambda _: None,
    on_result: Callable[["Analysis"], None] = lambda _: None,
    register: str | None = None,
) -> "Analysis":
    """Search, confirm, read the test set, write front and report, and send everything to MLflow.

    `on_result` is called when front and report are written; what MLflow does not have yet is sent after that.

    Returns:
        The analysis of the finished search. In a notebook it shows the front.
    """
    from rst_tune.analysis.analysis import analyze as analysis_of
    from rst_tune.tracking import check_uri
    from rst_tune.tuning.search import run_search

    uri = experiment.tracking.uri or os.environ.get("MLFLOW_TRACKING_URI")
    if experiment.tracking.enabled and uri:
        check_uri(uri)

    def show_progress(controller: "SearchController") -> None:
        if view is not None:
            view.update(controller.search, controller.spent, controller.limit)

    with ExitStack() as tracking:
        found = run_search(
            experiment,
            output,
            address=address,
            overwrite=overwrite,
            on_start=lambda directory: _track(experiment, directory, tracking),
            on_progress=show_progress,
            say=say,
        )
        analysis = analysis_of(found)
        finished = register is None and _has_results(analysis, experiment)
        paths = [] if finished else [*_write_front(analysis), write_report(analysis)]
        sends = not finished and experiment.tracking.enabled
        on_result(analysis)
        if sends:
            say("sending the rest to MLflow")
    if sends:
        _send_results(analysis, paths, experiment, register)
    return analysis


def _track(experiment: "Experiment", directory: Path, until: ExitStack) -> None:
    """Send events to MLflow in the background; what is left is sent when the stack is closed."""
    from rst_tune.tracking import Tracker

    settings = experiment.tracking
    if settings.enabled:
        tracker = Tracker(
            directory, settings.uri, settings.experiment, draw_front=_draw_front, system_metrics=settings.system_metrics
        )
        until.enter_context(closing(tracker))
        tracker.start()


def _has_results(analysis: "Analysis", experiment: "Experiment") -> bool:
    """Return whether a finished search was run again: everything is written, and MLflow has all of it."""
    from rst_tune import tracking
    from rst_tune.records import LOG_NAME

    log, page = (analysis.search.directory / name for name in (LOG_NAME, REPORT_NAME))
    if not analysis.search.done or not page.exists() or page.stat().st_mtime < log.stat().st_mtime:
        return False
    return not experiment.tracking.enabled or tracking.has_results(analysis, experiment.tracking.uri)


def _send_results(analysis: "Analysis", paths: Sequence[Path], experiment: "Experiment", register: str | None) -> None:
    """Send files, summary and models. An unreachable store costs a warning, unless models are to be registered."""
    from rst_tune import tracking

    uri, directory = experiment.tracking.uri, analysis.search.directory
    tracking.log_results(directory, paths, uri, analysis=analysis)
    if not analysis.search.done or not (analysis.confirmed or register):
        return
    try:
        load = _model_loader(analysis, experiment)
        tracking.log_models(directory, load, register=register, uri=uri, analysis=analysis)
    except (RuntimeError, InputError) as error:
        if register is not None:
            raise
        _log.warning("%s", error)


def _model_loader(analysis: "Analysis", experiment: "Experiment") -> Callable[[str], Any]:
    """Return a function from the key of a replicate to its trained model."""
    from rst_tune.tuning.backend.runner import model_path, to_method

    workload = experiment.workload()
    trials = {trial.key: trial for trial in analysis.search.trials}

    def load(key: str) -> Any:
        trial = trials[key]
        method = to_method(trial.config)
        run = workload.start(method, seed=trial.seed, epochs=trial.epochs, device="cpu", replicate=True)
        run.restore(model_path(analysis.search.directory, key))
        model = run.model
        run.close()
        return model

    return load


def _write_front(analysis: "Analysis") -> list[Path]:
    rows, directory = analysis.rows(), analysis.search.directory
    files.write_text(directory / "front.json", json.dumps(rows, indent=2) + "\n")
    files.write_text(directory / "front.csv", front_csv(rows))
    return [directory / "front.json", directory / "front.csv", _draw_front(analysis)]


def _draw_front(analysis: "Analysis") -> Path:
    """Draw the front beside the event log and return the picture."""
    from rst_tune.report.figures import write_picture
    from rst_tune.report.panels import front_figure

    return write_picture(front_figure(analysis), analysis.search.directory / "front.png")


def front_csv(rows: Sequence[dict[str, Any]]) -> str:
    """Return the rows of a front as CSV; nothing without rows."""
    from rst_tune.analysis.export import csv_text

    return csv_text(list(rows), list(rows[0])) if rows else ""


def write_report(analysis: "Analysis", path: Path | None = None) -> Path:
    """Write the offline page of a search and return its path."""
    from rst_tune.report import page

    return page.write(analysis, path or analysis.search.directory / REPORT_NAME)


def watch(directory: Path | None = None, port: int = 0) -> "AbstractContextManager[LivePage]":
    """Return a context in which the page of a search is served on loopback, and updated while the search runs."""
    from rst_tune.report.live import serve

    return serve(find_search(directory).directory, port)


def status(directory: Path | None = None) -> dict[str, Any]:
    """Return how far a search is, as plain data."""
    from rst_tune.report.status import status_rows

    analysis = analyze(directory)
    return {**status_rows(analysis), "tracking_uri": tracking_uri(analysis)}


def tracking_uri(analysis: "Analysis") -> str | None:
    """Return where MLflow has the search, without credentials; None: it is not tracked."""
    from rst_tune import tracking

    settings = analysis.search.header.settings.tracking
    if settings is not None and not settings.enabled:
        return None
    try:
        return tracking.public_uri(analysis.search.directory)
    except InputError:  # to connect one would need the credentials, which are not kept; to name it one does not
        return settings.uri if settings is not None else None


def export(directory: Path | None, form: str, output: Path | None = None) -> Path:
    """Write every trial of a search as csv, parquet or json, and return the file."""
    from rst_tune.analysis.export import write_export

    found = find_search(directory)
    return write_export(found, output or found.directory / f"trials.{form}", form)


def compare(directories: Iterable[Path], output: Path | None = None, cost: str | None = None) -> "Comparison":
    """Compare searches; with `output`, draw them on one page. Directories of equal names are told apart by parents."""
    from rst_tune.analysis.compare import compare as comparison_of
    from rst_tune.report import comparison_page

    paths = [Path(d).resolve() for d in directories]
    made = comparison_of([analyze(path, cost) for path in paths], _short_names(paths))
    if output is not None:
        comparison_page.write(made, output)
    return made


def _short_names(paths: Sequence[Path]) -> list[str]:
    """Return the shortest endings of the paths that differ."""
    for length in range(1, max(len(path.parts) for path in paths) + 1):
        names = ["/".join(path.parts[-length:]) for path in paths]
        if len(set(names)) == len(names):
            return names
    raise InputError(f"the searches must be different ones, but {paths[0]} is given twice")


# --- before a search ----------------------------------------------------------------------------------------------


def plan(experiment: "Experiment", *, address: str | None = None, measure: bool = True) -> "Estimate":
    """Return what a search costs; nothing is spent but a few timed steps."""
    from rst_tune.tuning.doctor import slots_of
    from rst_tune.tuning.estimate import estimate

    return estimate(experiment, slots=slots_of(experiment.resources, address), measure=measure)


def doctor(experiment: "Experiment", *, address: str | None = None, output: Path | None = None) -> "list[Check]":
    """Return the checks of everything a search needs, from the driver and from every node."""
    from rst_tune import tracking
    from rst_tune.tuning.doctor import examine

    uri = experiment.tracking.uri
    # The driver's store, which nodes need not know; they get the address without credentials.
    host = redact_text(uri or os.environ.get("MLFLOW_TRACKING_URI", ""))
    return examine(
        experiment,
        address,
        output,
        check_store=lambda directory: tracking.check_store(directory, uri),
        check_host=partial(tracking.check_host, host) if experiment.tracking.enabled else lambda: (True, "off"),
    )


# --- one training -------------------------------------------------------------------------------------------------


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
) -> "Training":
    """Return one training run of an experiment's task that has not begun.

    `method_file` is a YAML with the fields of `Method`, as the report copies it; it replaces the other options, and its
    `horizon` is the length as a share of the recipe's epochs.
    """
    from rst_tune.method import schedules
    from rst_tune.training.task import Method
    from rst_tune.tuning import yaml_files

    family = schedules.parse(schedule).to_dict()
    given: dict[str, Any] = {"schedule": family, "gamma_gnr": gamma_gnr, "rule": rule, "rho": rho}
    where, horizon = "the options", 1.0
    if method_file is not None:
        where = str(method_file)
        given = yaml_files.read_yaml(yaml_files.existing(method_file))
        seed, horizon = given.pop("seed", seed), given.pop("horizon", 1.0)
        if not isinstance(horizon, int | float) or isinstance(horizon, bool) or not 0 < horizon < 1000:
            raise InputError(f"{where}: horizon: a share of the recipe's epochs above 0 is needed (got {horizon!r})")
        if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < 2**63:
            raise InputError(f"{where}: seed: a whole number from 0 to 2^63 - 1 is needed (got {str(seed)[:80]!r})")
    method = yaml_files.validate(Method, given, where)
    epochs = max(1, round(horizon * experiment.task.epochs))
    return experiment.workload().start(method, seed=seed, epochs=epochs, device=device)


def training_result(run: "Training", metric: "Metric | None" = None) -> dict[str, Any]:
    """Return the outcome of a training: its metric (the error of a classifier by default), pairs, sharpness."""
    last = run.last_metrics
    name = metric.name if metric is not None and metric.name in last else "validation_error"
    return {
        "status": run.status,
        "seed": run.seed,
        "epochs": run.epoch_index,
        name: last.get(name),
        "pairs": run.pairs,
        "extra_propagation": run.extra_propagation,
        "realized_extra_propagation": last.get("realized_extra_propagation"),
        "seconds": sum(run.history.get("seconds", [])),
        **(run.sharpness() if run.status == "complete" else {}),
    }


def save_model(run: "Training", path: Path) -> Path:
    """Write the weights of a training as a plain state_dict, and return the path."""
    from rst_tune.training.checkpoint import write_checkpoint

    path = Path(path).resolve()
    write_checkpoint(dict(run.model.state_dict()), path)
    return path


# --- MLflow -------------------------------------------------------------------------------------------------------


def sync(directory: Path | None = None, uri: str | None = None) -> "SyncResult":
    """Send what MLflow does not have yet."""
    from rst_tune import tracking

    return tracking.sync(find_search(directory).directory, uri)


def ui(directory: Path | None = None, port: int = 0) -> "AbstractContextManager[UiLinks]":
    """Return a context in which MLflow's UI is served for a search."""
    from rst_tune import tracking

    return tracking.serve_ui(find_search(directory).directory, port=port)


# --- what there is ------------------------------------------------------------------------------------------------


def paper(table: str) -> list[dict[str, Any]]:
    """Return the rows of a table of the paper."""
    from rst_tune.analysis import published

    return [asdict(row) for row in published.table(table)]


LISTINGS = ("schedules", "rules", "policies", "models", "data", "spaces", "experiments", "tables")


def list_entries(kind: str) -> list[dict[str, str]]:
    """Return name and description of everything of a kind: schedules, rules, models, data, spaces, experiments …"""
    match kind:
        case "schedules":
            from rst_tune.method import schedules

            families = {"native": schedules.FAMILIES, "cost": schedules.MEAN_FAMILIES}
            return [{**_entry(each), "used": used} for used, registry in families.items() for each in registry]
        case "rules" | "policies":
            from rst_tune.method.cost import describe_policies, describe_rules

            return [_described(row) for row in (describe_rules() if kind == "rules" else describe_policies())]
        case "models":
            from rst_tune.training.models import MODELS

            return [_entry(each) for each in MODELS]
        case "data":
            from rst_tune.training.sources import CLASSIFICATION_SETS, SOURCES

            others = f"other sets of torchvision: {', '.join(CLASSIFICATION_SETS)}"
            return [*(_entry(each) for each in SOURCES), {"name": "(others)", "description": others}]
        case "spaces" | "experiments":
            from rst_tune.tuning import yaml_files

            found = yaml_files.shipped("search_spaces" if kind == "spaces" else kind).items()
            return [{"name": n, "description": str(yaml_files.read_yaml(p).get("description", ""))} for n, p in found]
        case "tables":
            from rst_tune.analysis.published import TABLES

            return [{"name": name, "description": text} for name, text in TABLES.items()]
    raise unknown_name("kind", kind, LISTINGS)


def _entry(each: Any) -> dict[str, str]:
    return {"name": each.name, "description": each.description, "citation": each.citation}


def _described(row: "Listed") -> dict[str, str]:
    """Return a row as text: the cost in pairs per ascent, options with their defaults."""
    cost = {"cost": f"{row.cost:.3g}"} if row.cost is not None else {}
    return {**_entry(row), **cost, "options": ", ".join(f"{name}={value}" for name, value in row.options.items())}


# --- what a terminal shows ----------------------------------------------------------------------------------------


def progress_view(console: "Console", *, quiet: bool) -> "ProgressView":
    """Return what shows the progress of a search."""
    from rst_tune.report.progress import ProgressView

    return ProgressView(console, quiet=quiet)


def follow(run: "Training", metric: "Metric", console: "Console", *, quiet: bool) -> None:
    """Train to the end and show the progress."""
    from rst_tune.report import tables

    steps = ((s.step, s.total_steps, "" if s.metrics is None else metric.phrase(run.error)) for s in run.progress())
    tables.follow(steps, console, quiet=quiet)


def compare_rows(comparison: "Comparison") -> dict[str, Any]:
    """Return a comparison as plain data."""
    from rst_tune.report import tables

    return tables.comparison_rows(comparison)


def table(kind: str, value: Any, **options: Any) -> "RenderableType":
    """Return a value as a table for a terminal; the kinds are the names of the functions below."""
    from rst_tune.report import tables, terminal

    render: Mapping[str, Callable[..., RenderableType]] = {
        "front": terminal.front_table,
        "status": terminal.status_table,
        "comparison": terminal.compare_table,
        "paper": terminal.paper_table,
        "estimate": tables.estimate_table,
        "training": tables.training_table,
        "listing": tables.listing_table,
        "checks": tables.checks_table,
    }
    return render[kind](value, **options)
