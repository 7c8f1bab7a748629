"""The one door to MLflow: where the store is, and a quiet client for it."""

import hashlib
import logging
import os
import sqlite3
import tempfile
from pathlib import Path
from typing import Any

from rst_tune.tracking.secrets import scrub_text

__all__ = ["artifact_root", "connect", "embedded_uri", "is_embedded", "quiet", "store_name"]

DATABASE = "mlflow.db"
ARTIFACTS = "mlartifacts"

# A server that is away is our own affair (the record waits), so one short retry is enough within a request.
_ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
}


def quiet() -> None:
    """Turn telemetry and chatter off. It must run before MLflow is imported; what the user set stays."""
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    logging.getLogger("alembic").setLevel(logging.WARNING)


def embedded_uri(directory: Path) -> str:
    """Return the address of the store inside a search's directory."""
    return f"sqlite:///{(Path(directory).resolve() / DATABASE).as_posix()}"


def is_embedded(directory: Path, uri: str) -> bool:
    """Whether the store is the one inside the directory."""
    return uri == embedded_uri(directory)


def artifact_root(directory: Path, uri: str) -> str | None:
    """Return where a new experiment keeps its artifacts; None leaves it to the server."""
    if uri.startswith("sqlite:///"):
        return str(Path(uri.removeprefix("sqlite:///").split("?")[0]).parent / ARTIFACTS)
    return None if uri.startswith("http") else str(Path(directory).resolve() / ARTIFACTS)


def store_name(directory: Path, uri: str) -> str:
    """Return a file name for a store, free of credentials: a changed password does not change it."""
    if is_embedded(directory, uri):
        return "embedded"
    address = scrub_text(uri)
    return hashlib.sha256(address.encode()).hexdigest()[:12]


def connect(uri: str) -> Any:
    """Return an MLflow client for a store, which is also its registry; a new SQLite file is created."""
    quiet()
    from mlflow.tracking import MlflowClient

    if uri.startswith("sqlite:///"):
        database = Path(uri.removeprefix("sqlite:///").split("?")[0])
        if not database.exists():
            _create(database)
        _allow_readers(database)
    return MlflowClient(tracking_uri=uri, registry_uri=uri)


def _create(database: Path) -> None:
    """Create the tables beside and move the file into place: a process killed on the way leaves no half of a store."""
    from mlflow.tracking import MlflowClient

    database.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=database.parent, prefix=".new-store-") as folder:
        beside = Path(folder) / database.name
        address = f"sqlite:///{beside.as_posix()}"
        MlflowClient(tracking_uri=address, registry_uri=address).search_experiments(max_results=1)
        os.replace(beside, database)


def _allow_readers(database: Path) -> None:
    """Let the UI read while trials are written: a write-ahead log, which also saves one flush to disk a commit."""
    with sqlite3.connect(database) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
    connection.close()
