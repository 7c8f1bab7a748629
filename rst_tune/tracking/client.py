"""The MLflow client: which store a search uses, how to connect to it, and whether it answers."""

import hashlib
import json
import logging
import os
import re
import socket
import sqlite3
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rst_tune.errors import InputError
from rst_tune.files import write_text
from rst_tune.redaction import HIDDEN, redact_text, register_environment, register_url

FOLDER = "tracking"
"""The folder inside a search's directory that holds what tracking remembers."""
TARGET_FILE = "target.json"
DATABASE = "mlflow.db"
ARTIFACTS = "mlartifacts"
CONNECT_SECONDS = 10.0
SCHEMES = ("http", "https", "sqlite", "postgresql", "mysql", "mssql", "databricks", "databricks-uc")
PORTS = {"http": 80, "https": 443, "postgresql": 5432, "mysql": 3306, "mssql": 1433}

# One short retry per request: a sync that fails is repeated later, and the event log keeps everything until then.
_ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
}
# SQLite's write-ahead log needs shared memory between all its users, which these file systems do not provide.
_SHARED_FILE_SYSTEM = re.compile(r"nfs\d*|cifs|smb\w*|lustre|gpfs|ceph|beegfs|9p|fuse(\..+)?")


def quiet() -> None:
    """Turn MLflow's telemetry and messages off, before MLflow is imported. Variables set by the user stay."""
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    logging.getLogger("alembic").setLevel(logging.WARNING)


@dataclass(frozen=True, kw_only=True)
class Target:
    """A store, and the name of the experiment in it. `explicit`: the store was named for this search."""

    uri: str
    experiment: str | None = None
    explicit: bool = False


def resolve_uri(
    directory: Path, uri: str | None = None, experiment: str | None = None, *, remember: bool = False
) -> Target:
    """Return the store of a search.

    It is the first of these: `uri`; the one named when the search began; the environment's MLFLOW_TRACKING_URI; the
    one used so far; the store inside the directory.
    """
    before = _read_target(directory)
    explicit = uri or (before.uri if before and before.explicit else None)
    chosen = explicit or os.environ.get("MLFLOW_TRACKING_URI") or (before.uri if before else embedded_uri(directory))
    target = Target(
        uri=check_uri(chosen),
        experiment=experiment or (before.experiment if before else None),
        explicit=explicit is not None,
    )
    if remember:
        kept = "" if target.uri == embedded_uri(directory) else redact_text(target.uri)
        content = Target(uri=kept, experiment=target.experiment, explicit=target.explicit and bool(kept))
        write_text(Path(directory) / FOLDER / TARGET_FILE, json.dumps(asdict(content)))
    return target


def check_uri(uri: str) -> str:
    """Return the URI of a store. Raises where MLflow has no such stores, or where its credentials are missing."""
    register_url(uri)
    if HIDDEN in uri:
        raise InputError(
            f"the tracking URI of this search has credentials, which are not kept ({uri}): give it again, as --uri or "
            "as MLFLOW_TRACKING_URI, or put them into MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"
        )
    if urlsplit(uri).scheme.partition("+")[0] not in SCHEMES:
        raise InputError(
            f"a tracking URI is http(s)://... or a database such as sqlite:///..., but got {redact_text(uri)!r}: "
            "leave it out to keep the runs inside the output directory"
        )
    if re.search(r"[/?#]", uri.partition("://")[2].rpartition("@")[0]):
        raise InputError(
            f"before the last @ of a tracking URI the characters / ? # must be percent-encoded, but {redact_text(uri)} "
            "has one of them: write them as %2F, %3F and %23"
        )
    return uri


def _read_target(directory: Path) -> Target | None:
    path = Path(directory) / FOLDER / TARGET_FILE
    if not path.exists():
        return None
    found = Target(**json.loads(path.read_text()))
    # The embedded store is kept as an empty URI: it moves along when the directory is moved.
    return found if found.uri else Target(uri=embedded_uri(directory), experiment=found.experiment)


def embedded_uri(directory: Path) -> str:
    """Return the URI of the store inside a search's directory."""
    return f"sqlite:///{(Path(directory).resolve() / DATABASE).as_posix()}"


def artifact_root(directory: Path, uri: str) -> str | None:
    """Return where a new experiment keeps its artifacts; None leaves it to the server."""
    if database := _sqlite_file(uri):
        return str(database.parent / ARTIFACTS)
    return None if uri.startswith("http") else str(Path(directory).resolve() / ARTIFACTS)


def store_name(directory: Path, uri: str) -> str:
    """Return a file name for a store that does not depend on its credentials."""
    return "embedded" if uri == embedded_uri(directory) else hashlib.sha256(redact_text(uri).encode()).hexdigest()[:12]


def connect(uri: str) -> Any:
    """Return an MLflow client for a store, which is its registry as well; a missing SQLite file is created."""
    quiet()
    register_url(uri)
    register_environment()
    from mlflow.tracking import MlflowClient

    address = None if uri.startswith("http") else _address(uri)
    if address is not None and (problem := _try_connect(address)):
        # MLflow itself repeats the connection to a database for minutes.
        raise ConnectionError(problem)
    if database := _sqlite_file(uri):
        if not database.exists():
            _create_database(database)
        if not _is_shared(database):
            # Readers (the UI) and the writer do not block each other, and a commit costs one flush to disk less.
            with sqlite3.connect(database) as connection:
                connection.execute("PRAGMA journal_mode=WAL")
            connection.close()
    return MlflowClient(tracking_uri=uri, registry_uri=uri)


def _sqlite_file(uri: str) -> Path | None:
    return Path(uri.removeprefix("sqlite:///").split("?")[0]) if uri.startswith("sqlite:///") else None


def _create_database(database: Path) -> None:
    """Create the tables in a temporary file and rename it: a killed process leaves no half-migrated database."""
    from mlflow.tracking import MlflowClient

    database.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=database.parent, prefix=".new-store-") as folder:
        temporary = Path(folder) / database.name
        uri = f"sqlite:///{temporary.as_posix()}"
        MlflowClient(tracking_uri=uri, registry_uri=uri).search_experiments(max_results=1)
        os.replace(temporary, database)


def _is_shared(path: Path, mounts: Path = Path("/proc/mounts")) -> bool:
    """Return whether a path lies on a network or FUSE file system, according to the table of mounts."""
    if not mounts.exists():
        return False
    kinds: dict[str, str] = {}
    for line in mounts.read_text(errors="surrogateescape").splitlines():
        _, place, kind, *_ = line.split(" ")
        kinds[re.sub(r"\\(\d{3})", lambda octal: chr(int(octal[1], 8)), place)] = kind
    path = path.resolve()
    kind = next((kinds[str(p)] for p in (path, *path.parents) if str(p) in kinds), "")
    return bool(_SHARED_FILE_SYSTEM.fullmatch(kind))


def check_store(directory: Path, uri: str | None = None) -> tuple[bool, str]:
    """Return whether the store that a search in `directory` would use answers, and which one it is or why not.

    The embedded store is created by the search itself, so it is not asked.
    """
    try:
        chosen = resolve_uri(directory, uri).uri
    except InputError as error:
        return False, redact_text(str(error))
    if chosen == embedded_uri(directory):
        return True, "SQLite inside the output directory"
    try:
        connect(chosen).search_experiments(max_results=1)
    except Exception as error:  # noqa: BLE001  whatever the store, its driver or the network raise
        return False, explain(chosen, error)
    return True, redact_text(chosen)


def public_uri(directory: Path) -> str:
    """Return the tracking URI of a search without credentials."""
    return redact_text(resolve_uri(directory).uri)


def check_host(uri: str | None = None) -> tuple[bool, str]:
    """Return whether the server of an http(s) store accepts connections from this machine; no credentials are needed.

    It is the check for worker nodes: they get no credentials, because only the driver talks to MLflow.
    """
    uri = uri or os.environ.get("MLFLOW_TRACKING_URI") or ""
    address = _address(uri)
    if address is None or not uri.startswith("http"):
        return True, "the driver delivers"
    problem = _try_connect(address)
    return not problem, problem or f"{address[0]}:{address[1]} accepts connections"


def explain(uri: str, error: BaseException) -> str:
    """Return in one line why a request failed: host, port and reason where the host accepts no connection."""
    address = _address(uri)
    if address is not None and (problem := _try_connect(address)):
        return problem
    lines = str(error).strip().splitlines()
    return redact_text(f"{type(error).__name__}: {lines[0] if lines else ''}")


def _address(uri: str) -> tuple[str, int] | None:
    """Return host and port of a store.

    >>> _address("postgresql+psycopg2://ann:p%2Fw@db/mlflow"), _address("sqlite:///x.db")
    (('db', 5432), None)
    """
    parts = urlsplit(redact_text(uri))
    try:
        port = parts.port or PORTS.get(parts.scheme.partition("+")[0])
    except ValueError:
        return None
    return (parts.hostname, port) if parts.hostname and port else None


def _try_connect(address: tuple[str, int]) -> str:
    try:
        socket.create_connection(address, timeout=CONNECT_SECONDS).close()
    except OSError as error:
        return f"{address[0]}:{address[1]} accepts no connection ({error.strerror or error})"
    return ""
