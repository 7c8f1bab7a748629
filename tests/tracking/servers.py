"""Real servers for the tests: PostgreSQL from Debian's packages and MLflow on top of it, on this machine only."""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

PASSWORD = "correct-horse"


def _programs() -> Path | None:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    on_path = shutil.which("initdb")
    return found[-1].parent if found else Path(on_path).parent if on_path else None


PROGRAMS = _programs()


def missing() -> str:
    """Return why PostgreSQL cannot be used here, or nothing."""
    if PROGRAMS is None:
        return "needs PostgreSQL: apt-get install postgresql (Debian)"
    if find_spec("psycopg2") is None:
        return "needs PostgreSQL's driver: pip install psycopg2-binary"
    if os.geteuid() == 0 and not _ordinary_user():
        return "PostgreSQL does not run as root, and there is no user 'postgres' to run it as"
    return ""


def _ordinary_user() -> dict[str, Any]:
    """Return how to start a process as the user of Debian's package: PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    try:
        user = pwd.getpwnam("postgres")
    except KeyError:
        return {}
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def postgres() -> Iterator[str]:
    """Start an empty PostgreSQL with a password and yield the address of its database."""
    assert PROGRAMS is not None
    who, port = _ordinary_user(), free_port()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        if who:
            os.chown(folder, who["user"], who["group"])
        secret = Path(folder, "password")
        secret.write_text(PASSWORD)
        secret.chmod(0o644)
        data = f"{folder}/data"
        make = [
            PROGRAMS / "initdb",
            "-D",
            data,
            "-U",
            "mlflow",
            "-A",
            "scram-sha-256",
            f"--pwfile={secret}",
            "-E",
            "UTF8",
        ]
        subprocess.run([*make, "--no-sync"], check=True, cwd=folder, stdout=subprocess.DEVNULL, **who)
        options = ["-k", "", "-h", "127.0.0.1", "-p", str(port)]
        server = subprocess.Popen(
            [PROGRAMS / "postgres", "-D", data, *options],
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            **who,
        )
        try:
            _wait(lambda: socket.create_connection(("127.0.0.1", port), 1).close(), server)
            yield f"postgresql+psycopg2://mlflow:{PASSWORD}@127.0.0.1:{port}/postgres"
        finally:
            server.send_signal(signal.SIGINT)  # the fast shutdown
            server.wait(300)


class MlflowServer:
    """An MLflow server that can be killed and started again at the same address, with proxied artifacts."""

    def __init__(self, database: str, folder: Path, workers: int = 2) -> None:
        self.database, self.folder, self.workers = database, folder, workers
        self.port = free_port()
        self.uri = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the server

    def start(self) -> None:
        command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(self.port)]
        environment = {
            **os.environ,
            "MLFLOW_BACKEND_STORE_URI": self.database,
            "MLFLOW_ARTIFACTS_DESTINATION": str(self.folder),
            "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
            "MLFLOW_DISABLE_TELEMETRY": "true",
        }
        self._process = subprocess.Popen(
            [*command, "--workers", str(self.workers)],
            env=environment,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )
        try:
            _wait(lambda: urllib.request.urlopen(f"{self.uri}/health", timeout=60).close(), self._process)
        except Exception as problem:
            self._log.seek(0)
            raise RuntimeError(self._log.read().decode()) from problem

    def kill(self) -> None:
        """End it at once, in the middle of whatever it does."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None


def _wait(probe: Any, process: subprocess.Popen[Any], seconds: float = 600.0) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with {process.returncode}: {process.args}")
        try:
            return probe()
        except (OSError, urllib.error.URLError):
            time.sleep(0.1)
    raise TimeoutError(f"the server did not answer within {seconds} s: {process.args}")
