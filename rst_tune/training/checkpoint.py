"""Checkpoints: written atomically, read without executing code from the file."""

import os
import zipfile
from pathlib import Path
from typing import Any

import torch

from rst_tune.files import atomic_file


class CheckpointError(RuntimeError):
    """A checkpoint is missing, damaged or from another run. The message names the file."""


def write_checkpoint(state: dict[str, Any], path: str | os.PathLike[str]) -> None:
    """Replace the checkpoint at `path` as a whole, flushed to disk."""
    with atomic_file(Path(path)) as file:
        torch.save(state, file)


def read_checkpoint(path: str | os.PathLike[str], identity: str | None = None) -> dict[str, Any]:
    """Return the state that `write_checkpoint` wrote, with all tensors on the CPU. No code in the file is executed.

    Any other content is a CheckpointError, and with `identity` the state of another run as well. The checksums are
    verified, because torch.load does not, and a compressed archive is refused, so that reading needs no more memory
    than the size of the file.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            if any(member.compress_type != zipfile.ZIP_STORED for member in archive.infolist()):
                raise CheckpointError(f"the checkpoint {path} is compressed, so rst_tune did not write it")
            if damaged := archive.testzip():
                raise CheckpointError(f"the checkpoint {path} is damaged: wrong checksum of {damaged}")
        state = torch.load(path, map_location="cpu", weights_only=True)
    except CheckpointError:
        raise
    except FileNotFoundError as error:
        raise CheckpointError(f"no checkpoint at {path}") from error
    except Exception as error:  # zip and pickle parsers raise errors of many kinds on damaged bytes
        raise CheckpointError(f"the checkpoint {path} is damaged and cannot be read: {error!r}") from error
    if not isinstance(state, dict):
        raise CheckpointError(f"the checkpoint {path} does not hold the state of a run")
    saved = state.get("identity")
    if identity is not None and (not isinstance(saved, str) or saved != identity):
        raise CheckpointError(f"the checkpoint {path} belongs to another run: {str(saved)[:2000]}")
    return state
