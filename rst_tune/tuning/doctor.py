"""What is wrong before anything is spent: checks from the driver and from a worker on every node."""

import importlib.metadata
import os
import platform
import secrets
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rst_tune.errors import InputError
from rst_tune.tracking.reach import reach, reach_host
from rst_tune.training.data import load_dataset
from rst_tune.training.files import ImageFiles
from rst_tune.tuning import files
from rst_tune.tuning.cluster import connected
from rst_tune.tuning.experiment import Experiment, Resources
from rst_tune.tuning.run import default_output

__all__ = ["Check", "examine", "slots_of"]

DRIVER = "driver"
NONCE = "nonce.txt"
SKEW_SECONDS = 2.0
SPARE_BYTES = 500e6
NODE_SECONDS = 120.0
Facts = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Check:
    """One thing that was looked at, where, what was found, and what to do about it (empty when all is well)."""

    name: str
    where: str
    ok: bool
    found: str
    remedy: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return asdict(self)


def _check(name: str, where: str, ok: bool, found: str, remedy: str) -> Check:
    return Check(name=name, where=where, ok=ok, found=found, remedy="" if ok else remedy)


def slots_of(resources: Resources, address: str | None) -> int:
    """Return how many trials fit at a time: on the cluster at `address`, or on this machine."""
    if address is None and "RAY_ADDRESS" not in os.environ:
        return max(1, int((os.cpu_count() or 1) / resources.cpu / resources.workers))
    with tempfile.TemporaryDirectory() as folder, connected(address, log=Path(folder) / "log.txt"):
        from rst_tune.tuning.engine import cluster_slots

        return cluster_slots(resources)


def examine(experiment: Experiment, address: str | None = None, output: Path | None = None) -> list[Check]:
    """Look at everything a search needs, from here and from every node of the cluster, and leave nothing behind."""
    directory = files.home(output or default_output(experiment)).resolve()
    data, from_files = _data(experiment)
    checks = [data, _tracking(DRIVER, reach(directory, experiment.tracking.uri), experiment)]
    try:
        with _shared_folder(directory) as folder, tempfile.TemporaryDirectory() as logs:
            checks.append(_storage_here(folder))
            with connected(address, log=Path(logs) / "log.txt"):
                checks += _cluster(experiment, folder, from_files)
    except OSError as error:
        checks.append(_unwritable(DRIVER, f"{directory}: {error.strerror or error}"))
    return checks


# --- from the driver --------------------------------------------------------------------------------------------


@contextmanager
def _shared_folder(directory: Path) -> Iterator[Path]:
    """Make a folder in the output directory with a word in it, and remove all that this made."""
    made = next((p for p in reversed([directory, *directory.parents]) if not p.exists()), None)
    folder = directory / f".doctor-{secrets.token_hex(4)}"
    folder.mkdir(parents=True)
    try:
        (folder / NONCE).write_text(secrets.token_hex(16))
        yield folder
    finally:
        shutil.rmtree(made or folder, ignore_errors=True)


def _storage_here(folder: Path) -> Check:
    free = shutil.disk_usage(folder).free
    found = f"{folder.parent} is writable, {free / 1e9:.1f} GB free"
    return _check("storage", DRIVER, free > SPARE_BYTES, found, "make room: checkpoints, models, record go there")


def _unwritable(where: str, found: str) -> Check:
    remedy = "give an --output that every node can write to: a shared file system, the same path everywhere"
    return _check("storage", where, False, found, remedy)


def _data(experiment: Experiment) -> tuple[Check, bool]:
    """Load the data as the search would; also return whether every node must read its files itself."""
    spec = experiment.task.data
    try:
        data = load_dataset(spec)
    except (InputError, OSError) as error:
        return _check("data", DRIVER, False, str(error), "correct task.data.name and task.data.root"), False
    found = f"{spec.name}: {len(data.train)} to train, {len(data.validation)} to validate, {len(data.test)} to test"
    return _check("data", DRIVER, True, found, ""), isinstance(data.train.images, ImageFiles)


def _tracking(where: str, reached: tuple[bool, str], experiment: Experiment) -> Check:
    ok, found = (True, "off") if not experiment.tracking.enabled else reached
    remedy = "start the store, correct MLFLOW_TRACKING_URI, or search with --set tracking.enabled=false and sync later"
    return _check("tracking", where, ok, found, remedy)


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in ("torch", "ray", "rst_tune"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


# --- from the nodes ---------------------------------------------------------------------------------------------


def _cluster(experiment: Experiment, folder: Path, from_files: bool) -> list[Check]:
    import ray

    from rst_tune.tuning.engine import cluster_slots

    slots, resources = cluster_slots(experiment.resources), experiment.resources
    need = f"{resources.workers} × (cpu {resources.cpu:g}, gpu {resources.gpu:g})"
    checks = [
        _check(
            "room", "cluster", slots > 0, f"{slots} trials of {need} at a time", "lower resources.cpu, gpu or workers"
        )
    ]
    root = experiment.task.data.root if from_files else None
    uri = experiment.tracking.uri or os.environ.get("MLFLOW_TRACKING_URI", "")
    for node in (n for n in ray.nodes() if n["Alive"]):
        where = f"{node['NodeManagerHostname']} {node['NodeManagerAddress']} {node['NodeID'][:8]}"
        checks += _node(experiment, node, where, lambda: _facts(folder, root, uri))
    return checks


def _node(experiment: Experiment, node: Facts, where: str, look: Callable[[], Facts]) -> list[Check]:
    """Look around on one node and judge what was seen there."""
    try:
        facts = _run_on(node["NodeID"], look)
        begun = time.time()
        there = _run_on(node["NodeID"], time.time)
        skew = there - (begun + time.time()) / 2
    except Exception as error:  # noqa: BLE001  whatever keeps a worker from answering is what we look for
        remedy = "install the same rst_tune there (one image for all nodes) and look into the node's Ray log"
        return [_check("worker", where, False, f"no answer: {str(error).strip().splitlines()[-1]}", remedy)]
    return [
        _same_versions(where, facts["versions"]),
        _devices(where, experiment.resources, node["Resources"], facts["devices"]),
        _storage_there(where, facts),
        _tracking(where, facts["tracking"], experiment),
        _data_there(where, facts["data"]),
        _clock(where, skew),
    ]


def _run_on(node_id: str, work: Callable[[], Any]) -> Any:
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    pinned = NodeAffinitySchedulingStrategy(node_id=node_id, soft=False)
    task = ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=pinned)(lambda: work())
    return ray.get(task.remote(), timeout=NODE_SECONDS)


def _facts(folder: Path, root: str | None, uri: str) -> dict[str, Any]:
    """Return what a worker sees. This runs on a node."""
    import torch

    devices = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {
        "versions": _versions(),
        "devices": devices,
        "storage": _answer(folder),
        "tracking": reach_host(uri),
        "data": root is None or files.home(root).exists(),
    }


def _answer(folder: Path) -> tuple[bool, str]:
    """Read the driver's word and write it back, from this node."""
    try:
        word = (folder / NONCE).read_text()
        (folder / f"{socket.gethostname()}-{os.getpid()}.txt").write_text(word)
    except OSError as error:
        return False, f"{folder.parent}: {error.strerror}"
    return True, str(folder / f"{socket.gethostname()}-{os.getpid()}.txt")


def _same_versions(where: str, there: Mapping[str, str]) -> Check:
    here = _versions()
    other = [f"{name} {there[name]} (driver: {here[name]})" for name in here if there[name] != here[name]]
    found = ", ".join(other or (f"{name} {version}" for name, version in there.items()))
    return _check("versions", where, not other, found, "use one image or one environment on the driver and all nodes")


def _devices(where: str, resources: Resources, has: Mapping[str, float], seen: list[str]) -> Check:
    counted = has.get("GPU", 0.0)
    found = f"{has.get('CPU', 0.0):g} CPUs, Ray counts {counted:g} GPUs, torch sees {len(seen)}"
    found += f" ({', '.join(sorted(set(seen)))})" if seen else ""
    ok = not resources.gpu or not counted or len(seen) >= counted
    return _check("devices", where, ok, found, "install a torch built for these GPUs: now trials would use the CPU")


def _storage_there(where: str, facts: Facts) -> Check:
    ok, found = facts["storage"]
    if not ok:
        return _unwritable(where, found)
    if not Path(found).exists():
        return _unwritable(where, f"what the node wrote to {found} is not seen here")
    return _check("storage", where, True, "read the driver's word and wrote it back", "")


def _data_there(where: str, ok: bool) -> Check:
    return _check("data", where, ok, "there" if ok else "no such path", "put the files at task.data.root on every node")


def _clock(where: str, skew: float) -> Check:
    remedy = "synchronise the clocks (NTP): times in the record and in MLflow would disagree"
    return _check("clock", where, abs(skew) < SKEW_SECONDS, f"{skew:+.2f} s against the driver", remedy)
