"""Connections to Ray: a local cluster on loopback, or the one at an address; and work pinned to a node."""

import logging
import os
import secrets
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rst_tune.errors import InputError
from rst_tune.redaction import redact_text

# Set before Ray is imported anywhere: it reads most of these once.
_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_TRAIN_ENABLE_V2_MIGRATION_WARNINGS": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
    # Tune's own snapshot is never read: the event log is the truth.
    "TUNE_GLOBAL_CHECKPOINT_S": str(10**9),
}
ANSWER_SECONDS = 120.0
for _name, _value in _SETTINGS.items():
    os.environ.setdefault(_name, _value)
# Longest wait for the head node's port to accept a connection.
CONNECT_SECONDS = 10.0


@contextmanager
def connected(address: str | None, *, log: Path) -> Iterator[None]:
    """Connect to the cluster at `address`, or start a local one that ends with this block.

    The local cluster listens on loopback only and asks for a token that only this process has; where Ray was imported
    before, it keeps the settings that it read then. The token of another cluster comes from the environment, as Ray's
    documentation describes.
    """
    address = resolve_address(address)
    local = address in (None, "local")
    if local and "ray" not in sys.modules:  # so that no other user can connect to it
        os.environ.setdefault("RAY_AUTH_MODE", "token")
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
        # In spite of its name it makes Ray bind everything to loopback on every system.
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    import ray  # only now: Ray reads its settings when it is imported

    _log_to_file(log)
    _log_messages_of_ray()
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    loopback = {"include_dashboard": False} if local else {}
    try:
        with _own_signals():
            if address is not None and not local:
                _check_listening(address)
            ray.init(address="local" if local else address, **loopback, **quiet)
    except Exception as error:  # when a node is slow to start, Ray raises nothing more special
        where = "a local Ray cluster cannot be started" if local else f"no Ray cluster answers at {address}"
        remedy = "check memory and disk of this machine" if local else "start it, or correct --address or RAY_ADDRESS"
        raise InputError(f"{where}: {(str(error).splitlines() or [''])[0]}; {remedy}") from error
    try:
        yield
    finally:
        ray.shutdown()


def resolve_address(address: str | None) -> str | None:
    """Return the address to connect to: the given one, else RAY_ADDRESS; None is a local cluster."""
    address = address or os.environ.get("RAY_ADDRESS") or None
    if address is not None and address.startswith("ray://"):
        raise InputError(
            f"a search is driven from a machine of the cluster, but {address} is an address of Ray Client, which "
            "cannot drive Tune: run the command on the head node with --address auto, or use `ray job submit`"
        )
    return address


def _check_listening(address: str) -> None:
    """Raise where nothing listens at the address: Ray itself tries again for a quarter of an hour.

    An address that something else than Ray listens at takes Ray one attempt of 40 seconds.
    """
    from ray._private import services

    os.environ.setdefault("RAY_gcs_server_port_wait_time_s", "1")  # attempts to connect, in spite of its name
    place = services.canonicalize_bootstrap_address(address)  # "auto" is the address of the latest cluster here
    host, _, port = (place or address).rpartition(":")
    socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()


@contextmanager
def _own_signals() -> Iterator[None]:
    """Keep this process's handlers of Ctrl-C and SIGTERM: Ray's own would end the process at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    own = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in own.items():
            if handler is not None:
                signal.signal(number, handler)


class _LogFile(logging.FileHandler):
    """Writes lines without credentials. A log that cannot be written (a full disk) does not end the search."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the redacted line."""
        return redact_text(super().format(record))

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  logging's own name
        """Drop the line."""


def _log_to_file(log: Path) -> None:
    """Send the log messages of Ray, Optuna and MLflow to a file, without credentials."""
    log.parent.mkdir(parents=True, exist_ok=True)
    for name in ("ray", "optuna", "rst_tune", "mlflow", "alembic"):
        logger = logging.getLogger(name)
        for handler in list(logger.handlers):
            if isinstance(handler, logging.FileHandler) or name != "rst_tune":
                logger.removeHandler(handler)
        handler = _LogFile(log)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        logger.addHandler(handler)
        logger.propagate = False


def _log_messages_of_ray() -> None:
    """Send what Ray prints about dead workers and nodes to the log file.

    Ray prints these long texts to stdout whatever `log_to_driver` says, and has no setting for them.
    """
    from ray._private import worker

    def to_log(data: Mapping[str, Any], *_: Any, **__: Any) -> None:
        logging.getLogger("rst_tune").warning("Ray: %s", " ".join(data["lines"]))

    if hasattr(worker, "print_to_stdstream"):
        worker.print_to_stdstream = to_log


@dataclass(frozen=True, kw_only=True)
class NodeAnswer:
    """What a function returned on one node, or why it did not; `clock_skew` in seconds against the driver."""

    where: str
    resources: Mapping[str, float]
    value: Any = None
    clock_skew: float = 0.0
    error: str = ""


def run_on_every_node(work: Callable[[], Any]) -> list[NodeAnswer]:
    """Run a function once on every node of the connected cluster."""
    import ray

    return [_run_on(node, work) for node in ray.nodes() if node["Alive"]]


def _run_on(node: Mapping[str, Any], work: Callable[[], Any]) -> NodeAnswer:
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    where = f"{node['NodeManagerHostname']} {node['NodeManagerAddress']} {node['NodeID'][:8]}"
    pinned = NodeAffinitySchedulingStrategy(node_id=node["NodeID"], soft=False)
    remote = ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=pinned)
    try:
        value = ray.get(remote(lambda: work()).remote(), timeout=ANSWER_SECONDS)
        begun = time.time()
        there = ray.get(remote(lambda: time.time()).remote(), timeout=ANSWER_SECONDS)
    except Exception as error:  # noqa: BLE001  whatever keeps a worker from answering is the finding
        return NodeAnswer(where=where, resources=node["Resources"], error=str(error).strip().splitlines()[-1])
    skew = there - (begun + time.time()) / 2
    return NodeAnswer(where=where, resources=node["Resources"], value=value, clock_skew=skew)
