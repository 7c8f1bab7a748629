"""Where a search is told to: chosen when it begins, remembered for everything that comes after."""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urlsplit

from rst_tune.errors import InputError
from rst_tune.tracking.cursor import FOLDER, write_atomically
from rst_tune.tracking.door import embedded_uri
from rst_tune.tracking.secrets import HIDDEN, scrub_text

__all__ = ["Target", "choose"]

FILE = "target.json"


@dataclass(frozen=True, kw_only=True)
class Target:
    """A store and the name of the experiment in it. `given`: somebody named this store for this search."""

    uri: str
    experiment: str | None = None
    given: bool = False


def choose(directory: Path, uri: str | None = None, experiment: str | None = None, remember: bool = False) -> Target:
    """Return where to deliver. The first of these: `uri`; the one given when the search began; the environment's
    MLFLOW_TRACKING_URI; the one used so far; the store inside the directory.
    """
    before = _read(directory)
    given = uri or (before.uri if before and before.given else None)
    chosen = given or os.environ.get("MLFLOW_TRACKING_URI") or (before.uri if before else embedded_uri(directory))
    target = Target(
        uri=_checked(chosen),
        experiment=experiment or (before.experiment if before else None),
        given=given is not None,
    )
    if remember:
        _write(directory, target)
    return target


def _checked(uri: str) -> str:
    if HIDDEN in uri:
        raise InputError(
            f"the tracking URI of this search has credentials, which are not kept ({uri}): give it again, as --uri or "
            "as MLFLOW_TRACKING_URI, or put them into MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"
        )
    if urlsplit(uri).scheme in ("", "file"):
        raise InputError(
            f"a tracking URI is http(s)://... or a database such as sqlite:///..., but got {scrub_text(uri)!r}: "
            "leave it out to keep the runs inside the output directory"
        )
    return uri


def _read(directory: Path) -> Target | None:
    path = Path(directory) / FOLDER / FILE
    if not path.exists():
        return None
    found = Target(**json.loads(path.read_text()))
    # A directory may be moved: the store inside it moves along.
    return found if found.uri else Target(uri=embedded_uri(directory), experiment=found.experiment)


def _write(directory: Path, target: Target) -> None:
    uri = "" if target.uri == embedded_uri(directory) else scrub_text(target.uri)
    kept = Target(uri=uri, experiment=target.experiment, given=target.given and bool(uri))
    write_atomically(Path(directory) / FOLDER / FILE, json.dumps(asdict(kept)))
