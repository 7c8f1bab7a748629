"""Whether a store answers: asked before a search spends anything."""

import os
import socket
from pathlib import Path
from urllib.parse import urlsplit

from rst_tune.errors import InputError
from rst_tune.tracking.door import connect, is_embedded
from rst_tune.tracking.secrets import scrub_text
from rst_tune.tracking.target import choose

__all__ = ["reach", "reach_host"]


def reach(directory: Path, uri: str | None = None) -> tuple[bool, str]:
    """Return whether the store that a search in `directory` would use answers, and which one it is or why not.

    The store inside the directory is made by the search itself, so nothing is asked of it.
    """
    try:
        chosen = choose(directory, uri).uri
        if is_embedded(directory, chosen):
            return True, "SQLite inside the output directory"
        connect(chosen).search_experiments(max_results=1)
    except InputError as error:
        return False, scrub_text(str(error))
    except Exception as error:  # noqa: BLE001  whatever the store, its driver or the network raise
        return False, scrub_text(f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
    return True, scrub_text(chosen)


def reach_host(uri: str | None = None) -> tuple[bool, str]:
    """Return whether the server of an http(s) store takes connections from this machine, without credentials.

    That is what can be asked from a node that is not given any: the driver alone delivers.
    """
    parts = urlsplit(uri or os.environ.get("MLFLOW_TRACKING_URI") or "")
    if parts.scheme not in ("http", "https") or parts.hostname is None:
        return True, "the driver delivers"
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        socket.create_connection((parts.hostname, port), timeout=10).close()
    except OSError as error:
        return False, f"{parts.hostname}:{port}: {error.strerror or error}"
    return True, f"{parts.hostname}:{port} takes connections"
