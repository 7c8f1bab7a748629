"""One whole search: lock the directory, check it, connect, run the trials. Run again, it resumes."""

import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from rst_tune import files
from rst_tune.errors import InputError
from rst_tune.records import (
    LOCK_NAME,
    LOG_NAME,
    EventLog,
    RuleTimes,
    Search,
    SearchStarted,
    SearchState,
    load,
    read_events,
)
from rst_tune.redaction import register_environment
from rst_tune.training.workload import Workload
from rst_tune.tuning import yaml_files
from rst_tune.tuning.backend.cluster import connected
from rst_tune.tuning.backend.resources import Resources
from rst_tune.tuning.backend.runner import TrialContext
from rst_tune.tuning.controller import SearchController
from rst_tune.tuning.estimate import timing
from rst_tune.tuning.experiment import Experiment
from rst_tune.tuning.study import JOURNAL_NAME, SearchStudy, open_database

if TYPE_CHECKING:
    from rst_tune.tuning.backend.ray import RayBackend

__all__ = ["TEXT_LOG_NAME", "default_output", "latest_search", "output_directory", "run_search"]

OUTPUT_ROOT = Path("output")
TEXT_LOG_NAME = "log.txt"
OVERWRITE_NAME = "overwrite.json"
EARLIER = "--from"
# Everything a search writes. `--overwrite` moves these aside and touches nothing else.
OWN_FILES = (
    "checkpoints", "damaged", "experiment.yaml", "front.csv", "front.json", "front.png", LOG_NAME, TEXT_LOG_NAME,
    "mlartifacts", "mlflow.db", "mlflow.db-shm", "mlflow.db-wal", "models", "ray", "report.html", JOURNAL_NAME,
    f"{JOURNAL_NAME}.lock", "tracking",
)  # fmt: skip
_PACKAGES = ("rst_tune", "torch", "torchvision", "ray", "optuna", "mlflow", "numpy")

Progress = Callable[[SearchController], None]


def default_output(experiment: Experiment) -> Path:
    """Return where a search writes by default: its name and identity, below `output/`."""
    return OUTPUT_ROOT / f"{experiment.name}-{experiment.search_id[:8]}"


def output_directory(experiment: Experiment, output: Path | None) -> Path:
    """Return the absolute output directory."""
    given = str(output or default_output(experiment))
    if ":/" in given:  # pathlib has made one slash of two
        address = given.replace(":/", "://", 1)
        raise InputError(
            f"the output must be a directory that every node can write to, but got {address}: mount the store as a "
            "file system, or copy the directory there when the search is over"
        )
    return yaml_files.home(given).resolve()


def latest_search(root: Path = OUTPUT_ROOT) -> Path:
    """Return the directory of the search that was written to last."""
    logs = sorted(root.glob(f"*/{LOG_NAME}"), key=lambda path: path.stat().st_mtime)
    if not logs:
        raise InputError(f"there is no search below {root}/ yet: start one with `rst-tune run digits`")
    return logs[-1].parent


def _is_finished(directory: Path) -> bool:
    """Return whether the directory holds a search that has come to its end."""
    return _load_state(directory).search().done


def run_search(
    experiment: Experiment,
    output: Path | None = None,
    *,
    address: str | None = None,
    overwrite: bool = False,
    on_start: Callable[[Path], None] = lambda _: None,
    on_progress: Progress = lambda _: None,
    say: Callable[[str], None] = lambda _: None,
) -> Search:
    """Search, confirm and read the test set; return the search. An unfinished search in `output` is resumed.

    Args:
        experiment: what to search.
        output: the directory of the search; on a cluster, one that every node sees.
        address: a Ray cluster; None starts a local one.
        overwrite: move the files of an earlier search aside first.
        on_start: called with the directory before the first trial; never for a finished search.
        on_progress: called several times per second with the controller.
        say: called with messages for the user.
    """
    directory = output_directory(experiment, output)
    register_environment()
    workload = experiment.workload()
    if overwrite or not _is_finished(directory):  # seconds, in which a finished search would print its front
        workload.check(experiment.rules, experiment.resources.workers)
    header = _header(experiment, workload)
    with _locked(directory):
        if overwrite or (directory / OVERWRITE_NAME).exists():
            _move_aside(directory)
        state = _load_state(directory)
        experiment = _with_recorded_prior(experiment, state)
        header = replace(header, search_id=experiment.search_id, experiment=experiment.public())
        _check_resumable(header, state, directory)
        if state.search().done:
            say("it is finished and nothing is trained; --overwrite starts it again")
        else:
            _run(experiment, directory, workload, header, state, address, on_start, on_progress, say)
    return load(directory)


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Allow one driver at a time to write to a search."""
    files.check_writable(directory)
    try:
        # Not at once: `status` and `watch` hold the lock for the moment in which they ask whether a search is running.
        with files.file_lock(directory / LOCK_NAME, timeout=1.0):
            yield
    except files.BusyError:
        raise InputError(
            f"another process is running the search in {directory}: wait for it, or stop it first"
        ) from None


def _move_aside(directory: Path) -> None:
    """Move the files of a search into a folder beside them. Killed on the way, the next start completes it."""
    marker = directory / OVERWRITE_NAME
    if not marker.exists():
        if not (directory / LOG_NAME).exists():
            return
        files.write_text(marker, json.dumps({"to": f"previous-{time.strftime('%Y%m%d-%H%M%S')}"}))
    aside = directory / Path(json.loads(marker.read_text())["to"]).name
    aside.mkdir(exist_ok=True)
    for name in OWN_FILES:
        if (directory / name).exists():
            os.replace(directory / name, aside / name)
    marker.unlink()


def _load_state(directory: Path) -> SearchState:
    """Return what the event log amounts to. A log without the line that begins a search is not ours, or damaged."""
    state, path = SearchState(directory), directory / LOG_NAME
    if not os.path.exists(path):
        return state
    for event in read_events(path):
        state.apply(event)
    if state.header is None and not all(map(_may_begin_search, path.read_bytes().splitlines())):
        raise InputError(
            f"{path} must begin with the description of its search, but does not: it is damaged or of another "
            "program; give another --output, or --overwrite to move it aside"
        )
    return state


def _with_recorded_prior(experiment: Experiment, state: SearchState) -> Experiment:
    """Return the experiment with the prior that its search began with, where it is resumed without earlier searches."""
    if experiment.prior is not None or state.header is None:
        return experiment
    return experiment.model_copy(update={"prior": state.header.settings.prior})


def _may_begin_search(line: bytes) -> bool:
    """Return whether a line is the first one of a search, whole or cut off by a kill."""
    first = b'{"event":"search"'
    return first.startswith(line[: len(first)])


def _check_resumable(header: SearchStarted, state: SearchState, directory: Path) -> None:
    """Raise where the search in the directory is another one, with the fields that differ."""
    before = state.header
    if before is None:
        return
    then, now = _identity(before), _identity(header)
    differences = [
        f"{name} was {then.get(name)!r} and is {now.get(name)!r}"
        for name in sorted({*then, *now})
        if then.get(name) != now.get(name)
    ]
    remedy = "give another --output, or --overwrite to move it aside"
    if then[EARLIER] != now[EARLIER]:
        differences = [text for text in differences if not text.startswith("prior.")]  # which follow from it
        remedy = f"leave out --from to resume it with the prior that it began with, {remedy}"
    if differences or before.search_id != header.search_id:
        space = header.experiment.get("space")
        content = f"the content of {space} has changed" if isinstance(space, str) else f"its id is {before.search_id}"
        shown = "; ".join(differences[:5]) or content
        raise InputError(f"{directory} holds another search ({shown}): {remedy}")


def _identity(header: SearchStarted) -> dict[str, Any]:
    """Return what a resumed search must share with the one before, as flat fields.

    Of a Python space only the content counts, which is a part of the search's id, and not its path.
    """
    experiment = {k: v for k, v in header.experiment.items() if k not in ("description", "tracking", "resources")}
    flat = {"cost": "compute", **_flat(experiment)}
    prior = header.settings.prior
    earlier = "; ".join(f"{s.name} {s.uid} ({s.trials} trials)" for s in prior.searches) if prior else ""
    for name in ("sampler.storage", "task.data.root", "task.data.workers", "prior.searches"):
        flat.pop(name, None)
    if isinstance(flat.get("space"), str):
        flat["space"] = "Python"
    workers = (header.experiment.get("resources") or {}).get("workers", 1)
    digest = "code of the function" if "task.function" in flat else "data digest"
    return {**flat, EARLIER: earlier or None, "resources.workers": workers, digest: header.data.get("digest"),
            "precision": header.data.get("precision")}  # fmt: skip


def _flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return flat


def _run(
    experiment: Experiment,
    directory: Path,
    workload: Workload,
    header: SearchStarted,
    state: SearchState,
    address: str | None,
    on_start: Callable[[Path], None],
    on_progress: Progress,
    say: Callable[[str], None],
) -> None:
    if experiment.sampler.storage is not None:
        open_database(experiment.sampler.storage)
    with connected(address, log=directory / TEXT_LOG_NAME):
        from rst_tune.tuning.backend.ray import RayBackend, cluster_devices

        resources = experiment.resources
        backend = RayBackend(_context(experiment, directory, workload), resources)
        backend.wait_for_room(resources.wait_for_nodes_minutes, say)
        log = EventLog(directory)
        try:
            if state.header is None:
                times = _times(experiment, backend, say)
                state.apply(log.append(replace(header, devices=cluster_devices(), times=times)))
            assert state.header is not None
            header, experiment = state.header, experiment.timed(state.header.times)
            text = yaml.safe_dump(experiment.public(), sort_keys=False, allow_unicode=True)
            files.write_text(directory / "experiment.yaml", text)
            controller = SearchController(
                experiment,
                log=log,
                state=state,
                study=SearchStudy(experiment, directory, header.uid),
                steps_per_epoch=header.steps_per_epoch,
                slots=lambda: backend.slots,
            )
            on_start(directory)
            backend.run_trials(controller, lambda: on_progress(controller))
        finally:
            log.close()


def _times(experiment: Experiment, backend: "RayBackend", say: Callable[[str], None]) -> RuleTimes | None:
    """Measure the times of the rules on a worker, where the cost is in seconds."""
    if experiment.cost == "compute":
        return None
    say("measuring the time of a step with each rule: the cost is in seconds")
    measure = timing(experiment)
    return backend.on_a_worker(lambda context: measure(context.workload))


def _context(experiment: Experiment, directory: Path, workload: Workload) -> TrialContext:
    resources: Resources = experiment.resources
    minutes = resources.time_limit_minutes
    return TrialContext(
        workload=workload,
        directory=directory,
        threads=resources.threads,
        device=None if resources.gpus_per_worker else "cpu",
        checkpoint_seconds=resources.checkpoint_seconds,
        time_limit=None if minutes is None else minutes * 60,
    )


def _header(experiment: Experiment, workload: Workload) -> SearchStarted:
    return SearchStarted(
        search_id=experiment.search_id,
        name=experiment.name,
        experiment=experiment.public(),
        metric=experiment.metric,
        steps_per_epoch=workload.steps_per_epoch,
        data=workload.describe(gpu=bool(experiment.resources.gpus_per_worker)),
        versions={"python": platform.python_version(), **_versions()},
        commit=_commit(),
    )


def _versions() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _commit() -> str:
    """Return the git commit of the working directory, or nothing where there is none."""
    git = shutil.which("git")
    if git is None:
        return ""
    command = [git, "rev-parse", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=os.getcwd())  # noqa: S603
    return done.stdout.strip() if done.returncode == 0 else ""
