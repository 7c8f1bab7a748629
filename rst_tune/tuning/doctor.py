"""Checks of everything a search needs, from the driver and from a worker on every node, before anything is spent."""

import importlib.metadata
import os
import platform
import secrets
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from rst_tune.errors import InputError
from rst_tune.training.factories import resolve_factory
from rst_tune.training.files import ImageFiles
from rst_tune.training.function import FunctionTask, FunctionWorkload
from rst_tune.training.task import Task
from rst_tune.training.workload import ClassifierWorkload, Workload
from rst_tune.tuning import yaml_files
from rst_tune.tuning.backend.cluster import NodeAnswer, connected, resolve_address, run_on_every_node
from rst_tune.tuning.backend.resources import Resources
from rst_tune.tuning.experiment import Experiment
from rst_tune.tuning.search import output_directory

DRIVER = "driver"
NONCE = "nonce.txt"
MAX_SKEW_SECONDS = 2.0
MIN_FREE_BYTES = 500e6
Answer = tuple[bool, str]
"""Whether all is well, and what was found."""


@dataclass(frozen=True, kw_only=True)
class Check:
    """One check: where it was made, what was found, and what to do about it (empty when all is well)."""

    name: str
    where: str
    ok: bool
    found: str
    remedy: str = ""


def _check(name: str, where: str, answer: Answer, remedy: str) -> Check:
    ok, found = answer
    return Check(name=name, where=where, ok=ok, found=found, remedy="" if ok else remedy)


@dataclass(frozen=True, kw_only=True)
class NodeFacts:
    """What a worker sees on its node."""

    versions: Mapping[str, str]
    devices: list[str]
    storage: Answer
    tracking: Answer
    has_data: bool
    model: Answer


def slots_of(resources: Resources, address: str | None) -> int:
    """Return how many trials fit at a time: on the cluster at `address`, or on this machine."""
    if resolve_address(address) is None:
        room = [(os.cpu_count() or 1) / resources.cpus_per_worker]
        room += [torch.cuda.device_count() / resources.gpus_per_worker] if resources.gpus_per_worker else []
        return int(min(room) / resources.workers + 1e-9)
    with tempfile.TemporaryDirectory() as folder, connected(address, log=Path(folder) / "log.txt"):
        from rst_tune.tuning.backend.ray import cluster_slots

        return cluster_slots(resources)


def examine(
    experiment: Experiment,
    address: str | None = None,
    output: Path | None = None,
    *,
    check_store: Callable[[Path], Answer],
    check_host: Callable[[], Answer],
) -> list[Check]:
    """Return all checks, and leave nothing behind.

    `check_store` asks the tracking store from here, `check_host` its server from a node.
    """
    directory = output_directory(experiment, output)
    checks, workload = _workload(experiment)
    checks.append(_tracking(DRIVER, check_store(directory) if experiment.tracking.enabled else (True, "off")))
    try:
        with _shared_folder(directory) as folder, tempfile.TemporaryDirectory() as logs:
            free = shutil.disk_usage(folder).free
            room = (free > MIN_FREE_BYTES, f"{directory} is writable, {free / 1e9:.1f} GB free")
            remedy = "make room: checkpoints, models and the event log are written there"
            checks.append(_check("storage", DRIVER, room, remedy))
            with connected(address, log=Path(logs) / "log.txt"):
                checks += _cluster(experiment, workload, folder, check_host)
    except OSError as error:
        checks.append(_unwritable(DRIVER, f"{directory}: {error.strerror or error}"))
    return checks


# --- from the driver --------------------------------------------------------------------------------------------


@contextmanager
def _shared_folder(directory: Path) -> Iterator[Path]:
    """Make a folder with a nonce in the output directory, and remove all that this created."""
    made = next((p for p in reversed([directory, *directory.parents]) if not p.exists()), None)
    folder = directory / f".doctor-{secrets.token_hex(4)}"
    folder.mkdir(parents=True)
    try:
        (folder / NONCE).write_text(secrets.token_hex(16))
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if made is not None:  # directories that were created here and are empty now
            for path in [directory, *directory.parents]:
                if path.is_relative_to(made) and path.is_dir() and not any(path.iterdir()):
                    path.rmdir()


def _unwritable(where: str, found: str) -> Check:
    remedy = "give an --output that every node can write to: a shared file system, the same path everywhere"
    return _check("storage", where, (False, found), remedy)


def _workload(experiment: Experiment) -> tuple[list[Check], Workload | None]:
    """Load the data and build the model, or call the training function up to its optimizer, as the search would."""
    if isinstance(experiment.task, FunctionTask):
        check, workload = _code("function", experiment, "correct task.function or the function itself")
        return [check], workload
    try:
        loaded = ClassifierWorkload.load(experiment.task, experiment.search_path)
    except (InputError, OSError) as error:
        failed = _check("data", DRIVER, (False, str(error)), "correct task.data.name and task.data.root")
        return [failed, _check("model", DRIVER, (True, f"{experiment.task.model.name}, not built"), "")], None
    data = loaded.data
    sizes = f"{len(data.train)} to train, {len(data.validation)} to validate, {len(data.test)} to test"
    found = _check("data", DRIVER, (True, f"{experiment.task.data.name}: {sizes}"), "")
    remedy = "correct task.model.name and task.model.options"
    return [found, _code("model", experiment, remedy, loaded)[0]], loaded


def _code(
    name: str, experiment: Experiment, remedy: str, workload: Workload | None = None
) -> tuple[Check, Workload | None]:
    """Check the model or the function by the workload's own check."""
    task = experiment.task
    try:
        workload = workload or experiment.workload()
        workload.check(experiment.rules, experiment.resources.workers)
    except InputError as error:
        return _check(name, DRIVER, (False, str(error)), remedy), None
    found = task.function if isinstance(task, FunctionTask) else task.model.name
    return _check(name, DRIVER, (True, found), ""), workload


def _tracking(where: str, answer: Answer) -> Check:
    remedy = "start the store, correct MLFLOW_TRACKING_URI, or search with --set tracking.enabled=false and sync later"
    return _check("tracking", where, answer, remedy)


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in ("torch", "ray", "rst_tune"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


# --- from the nodes ---------------------------------------------------------------------------------------------


def _cluster(
    experiment: Experiment, workload: Workload | None, folder: Path, check_host: Callable[[], Answer]
) -> list[Check]:
    from rst_tune.tuning.backend.ray import cluster_slots

    slots = cluster_slots(experiment.resources)
    found = f"{slots} trials of {experiment.resources} at a time"
    remedy = "lower resources.cpus_per_worker, gpus_per_worker or workers"
    checks = [_check("room", "cluster", (slots > 0, found), remedy)]
    root, code = None, _imports(experiment, workload)
    if isinstance(workload, ClassifierWorkload) and isinstance(workload.data.train.images, ImageFiles):
        root = workload.task.data.root  # every node reads files from there; other data are sent to it
    for answer in run_on_every_node(lambda: _facts(folder, root, check_host, code())):
        checks += _node(experiment.resources, answer)
    return checks


def _imports(experiment: Experiment, workload: Workload | None) -> Callable[[], Answer]:
    """Return what imports the user's own code on a node. The data do not travel with it."""
    if isinstance(experiment.task, Task):
        name = experiment.task.model.name
        load = partial(resolve_factory, name, experiment.search_path) if ":" in name else lambda: None
        return partial(_imported, name, load)
    if not isinstance(workload, FunctionWorkload):
        return lambda: (False, "not tried: the driver cannot load it")
    return partial(_imported, workload.task.function, workload.import_code)


def _imported(name: str, load: Callable[[], Any]) -> Answer:
    """Import a model or the training function. This runs on a node."""
    try:
        load()
    except Exception as error:  # noqa: BLE001  whatever keeps the node from having it is the finding
        return False, str(error)
    return True, name


def _facts(folder: Path, root: str | None, check_host: Callable[[], Answer], model: Answer) -> NodeFacts:
    """Return what a worker sees. This runs on a node."""
    return NodeFacts(
        versions=_versions(),
        devices=[torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
        storage=_echo_nonce(folder),
        tracking=check_host(),
        has_data=root is None or yaml_files.home(root).exists(),
        model=model,
    )


def _echo_nonce(folder: Path) -> Answer:
    """Read the driver's nonce and write it back, from this node; return the file."""
    path = folder / f"{socket.gethostname()}-{os.getpid()}.txt"
    try:
        path.write_text((folder / NONCE).read_text())
    except OSError as error:
        return False, f"{folder.parent}: {error.strerror}"
    return True, str(path)


def _node(resources: Resources, answer: NodeAnswer) -> list[Check]:
    """Return the checks of one node."""
    where = answer.where
    if answer.error:
        remedy = "install the same rst_tune there (one image for all nodes) and read the node's Ray log"
        return [_check("worker", where, (False, f"no answer: {answer.error}"), remedy)]
    facts: NodeFacts = answer.value
    clock = (abs(answer.clock_skew) < MAX_SKEW_SECONDS, f"{answer.clock_skew:+.2f} s against the driver")
    data = (facts.has_data, "there" if facts.has_data else "no such path")
    return [
        _same_versions(where, facts.versions),
        _devices(where, resources, answer.resources, facts.devices),
        _storage_there(where, facts.storage),
        _tracking(where, facts.tracking),
        _check("data", where, data, "put the files at task.data.root on every node"),
        _check("model", where, facts.model, "put the module where every node sees it: a shared path, or the image"),
        _check(
            "clock", where, clock, "synchronise the clocks (NTP): times in the event log and in MLflow would disagree"
        ),
    ]


def _same_versions(where: str, there: Mapping[str, str]) -> Check:
    here = _versions()
    other = [f"{name} {there[name]} (driver: {here[name]})" for name in here if there[name] != here[name]]
    found = ", ".join(other or (f"{name} {version}" for name, version in there.items()))
    return _check("versions", where, (not other, found), "use one image or one environment on the driver and all nodes")


def _devices(where: str, resources: Resources, has: Mapping[str, float], seen: list[str]) -> Check:
    counted = has.get("GPU", 0.0)
    found = f"{has.get('CPU', 0.0):g} CPUs, Ray counts {counted:g} GPUs, torch sees {len(seen)}"
    found += f" ({', '.join(sorted(set(seen)))})" if seen else ""
    ok = not resources.gpus_per_worker or not counted or len(seen) >= counted
    return _check("devices", where, (ok, found), "install a torch built for these GPUs: now trials would use the CPU")


def _storage_there(where: str, answer: Answer) -> Check:
    ok, found = answer
    if not ok:
        return _unwritable(where, found)
    if not Path(found).exists():
        return _unwritable(where, f"the driver does not see what the node wrote to {found}")
    return _check("storage", where, (True, "read the driver's nonce and wrote it back"), "")
