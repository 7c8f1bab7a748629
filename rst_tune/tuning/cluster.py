"""Connecting to Ray: a quiet local cluster on loopback, or the one at an address."""

import logging
import os
import secrets
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rst_tune.errors import InputError

__all__ = ["connected"]

# Set before Ray is imported anywhere: it reads most of these once.
_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_TRAIN_ENABLE_V2_MIGRATION_WARNINGS": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
    # Tune's own snapshot is not the truth and is never read: the record is.
    "TUNE_GLOBAL_CHECKPOINT_S": str(10**9),
}
for _name, _value in _QUIET.items():
    os.environ.setdefault(_name, _value)


@contextmanager
def connected(address: str | None, *, log: Path, cpus: int | None = None) -> Iterator[None]:
    """Be connected to the cluster at `address`, or to a local one that ends with this block.

    The local cluster listens on loopback alone and asks for a token that only this process knows; where Ray was
    imported before, it keeps the settings that it read then. A cluster's token comes from the environment, as Ray's
    documentation says.
    """
    address = address or os.environ.get("RAY_ADDRESS") or None
    local = address in (None, "local")
    if local and "ray" not in sys.modules:
        _protect()
    import ray  # only now: Ray reads its settings when it is imported

    _send_chatter_to(log)
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    loopback = {"num_cpus": cpus, "include_dashboard": False} if local else {}
    try:
        with _own_signals():
            ray.init(address="local" if local else address, **loopback, **quiet)
    except Exception as error:  # when a node is slow to start, Ray raises nothing more special
        where = "a local Ray cluster cannot be started" if local else f"no Ray cluster answers at {address}"
        raise InputError(f"{where}: {str(error).splitlines()[0]} Check it with `rst-tune doctor`") from error
    try:
        yield
    finally:
        ray.shutdown()


def _protect() -> None:
    """Set what a local cluster needs so that nobody else can use it."""
    os.environ.setdefault("RAY_AUTH_MODE", "token")
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    # Its name speaks of other systems; what it does everywhere is to bind everything to loopback.
    os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")


@contextmanager
def _own_signals() -> Iterator[None]:
    """Keep this process's own answer to Ctrl-C and SIGTERM: Ray puts one in its place that ends it on the spot."""
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
    """A log that cannot be written (a full disk, a directory that became read-only) must not end the search."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  logging's own name
        """Leave the line out."""


def _send_chatter_to(log: Path) -> None:
    """Send what Ray and Optuna log to a file, so that the terminal belongs to the search."""
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
