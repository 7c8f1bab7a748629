"""One whole search: open the directory, connect, conduct, and say how it stands. Run again, it resumes."""

import fcntl
import hashlib
import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import yaml

from rst_tune.analysis.records import RECORD_NAME, Record, Replay, Search, load, read_events
from rst_tune.errors import InputError
from rst_tune.tracking import NullTracker, Tracker
from rst_tune.training.data import Dataset, load_dataset
from rst_tune.tuning import files
from rst_tune.tuning.cluster import connected
from rst_tune.tuning.conductor import Conductor
from rst_tune.tuning.experiment import Experiment
from rst_tune.tuning.job import Shop
from rst_tune.tuning.study import SearchStudy

__all__ = ["LOG_NAME", "default_output", "latest_search", "run_search"]

OUTPUT_ROOT = Path("output")
LOG_NAME = "log.txt"
_PACKAGES = ("rst_tune", "torch", "torchvision", "ray", "optuna", "mlflow", "numpy")

Watch = Callable[[Conductor], None]


def default_output(experiment: Experiment) -> Path:
    """Return where a search writes unless it is told otherwise: its name and identity, below `output/`."""
    return OUTPUT_ROOT / f"{experiment.name}-{experiment.search_id[:8]}"


def latest_search(root: Path = OUTPUT_ROOT) -> Path:
    """Return the directory of the search that was written to last."""
    records = sorted(root.glob(f"*/{RECORD_NAME}"), key=lambda path: path.stat().st_mtime)
    if not records:
        raise InputError(f"there is no search below {root}/ yet: start one with `rst-tune run digits`")
    return records[-1].parent


def run_search(
    experiment: Experiment,
    output: Path | None = None,
    *,
    address: str | None = None,
    fresh: bool = False,
    watch: Watch | None = None,
) -> Search:
    """Search, confirm and read the test set; return the search. A search that is there already is resumed.

    Args:
        experiment: what to search.
        output: the directory of the search; on a cluster, one that every node sees.
        address: a Ray cluster; None starts a local one.
        fresh: remove what is there first.
        watch: called several times a second with the conductor, to show progress.
    """
    directory = files.home(output or default_output(experiment)).resolve()
    if fresh and (directory / RECORD_NAME).exists():
        shutil.rmtree(directory)
    _check_identity(experiment, directory)
    if (directory / RECORD_NAME).exists() and load(directory).done:
        return load(directory)
    data = load_dataset(experiment.task.data)
    with _locked(directory):
        _conduct(experiment, directory, data, address, watch or (lambda _: None))
    return load(directory)


def _check_identity(experiment: Experiment, directory: Path) -> None:
    if not (directory / RECORD_NAME).exists():
        return
    there = load(directory).header.get("search_id")
    if there is not None and there != experiment.search_id:
        raise InputError(
            f"{directory} holds another search ({there}, this one is {experiment.search_id}): "
            "give another --output, or --fresh to remove it"
        )


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Let one driver at a time write to a search."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InputError(
                f"another process is running the search in {directory}: wait for it, or stop it first"
            ) from None
        yield


def _conduct(experiment: Experiment, directory: Path, data: Dataset, address: str | None, watch: Watch) -> None:
    steps = len(data.train) // experiment.task.recipe.batch_size
    if steps < 1:
        raise InputError(
            f"a batch must not be larger than the training part, but batch_size is {experiment.task.recipe.batch_size} "
            f"and there are {len(data.train)} images: lower task.recipe.batch_size"
        )
    replay = Replay(directory)
    if (directory / RECORD_NAME).exists():
        for event in read_events(directory / RECORD_NAME):
            replay.apply(event)
    record = Record(directory)
    try:
        with connected(address, log=directory / LOG_NAME):
            if not replay.header:
                replay.apply(record.append("search", **_header(experiment, data, steps)))
            _write_experiment(experiment, directory)
            study = SearchStudy(experiment, directory)
            conductor = Conductor(experiment, record=record, replay=replay, study=study, steps_per_epoch=steps)
            _conduct_tracked(conductor, experiment, directory, data, watch)
    finally:
        record.close()


def _conduct_tracked(
    conductor: Conductor, experiment: Experiment, directory: Path, data: Dataset, watch: Watch
) -> None:
    from rst_tune.tuning.engine import conduct

    resources, tracking = experiment.resources, experiment.tracking
    shop = Shop(
        task=experiment.task,
        data=data,
        directory=directory,
        threads=max(1, int(resources.cpu)),
        device=None if resources.gpu else "cpu",
        checkpoint_seconds=resources.checkpoint_seconds,
        time_limit=None if resources.time_limit_minutes is None else resources.time_limit_minutes * 60,
    )
    tracker = Tracker(directory, tracking.uri, tracking.experiment) if tracking.enabled else NullTracker()
    tracker.start()
    try:
        conduct(conductor, shop, resources, lambda: watch(conductor))
    finally:
        tracker.close()


def _write_experiment(experiment: Experiment, directory: Path) -> None:
    content = experiment.model_dump(mode="json", exclude={"tracking": {"uri"}})
    (directory / "experiment.yaml").write_text(yaml.safe_dump(content, sort_keys=False, allow_unicode=True))


def _header(experiment: Experiment, data: Dataset, steps_per_epoch: int) -> dict[str, Any]:
    import ray

    return {
        "search_id": experiment.search_id,
        "name": experiment.name,
        "experiment": experiment.model_dump(mode="json", exclude={"tracking": {"uri"}}),
        "steps_per_epoch": steps_per_epoch,
        "data": {"name": experiment.task.data.name, "digest": _digest(data), **data.describe()},
        "versions": {"python": platform.python_version(), **_versions()},
        "devices": {name: count for name, count in ray.cluster_resources().items() if ":" not in name},
        "commit": _commit(),
    }


def _digest(data: Dataset) -> str:
    digest = hashlib.sha256(json.dumps(data.describe(), sort_keys=True).encode())
    for part in (data.train, data.validation, data.test):
        digest.update(part.labels.numpy().tobytes())
        if isinstance(part.images, torch.Tensor):
            digest.update(part.images[:1000].numpy().tobytes())
    return digest.hexdigest()[:16]


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
