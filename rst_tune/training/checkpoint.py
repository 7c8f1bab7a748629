"""Checkpoints: written whole or not at all, read without running any code from them."""

import contextlib
import os
import pickle
import tempfile
from pathlib import Path
from typing import Any

import torch

__all__ = ["CheckpointError", "read_checkpoint", "write_checkpoint"]


class CheckpointError(RuntimeError):
    """A checkpoint that is missing, damaged or of another run. The message names the file."""


def write_checkpoint(state: dict[str, Any], path: str | os.PathLike[str]) -> None:
    """Write `state` beside `path`, flush it to the disk, and only then put it in its place."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    _sync_folder(target.parent)


def read_checkpoint(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return what `write_checkpoint` wrote; tensors land on the CPU."""
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise CheckpointError(f"no checkpoint at {path}") from error
    except (RuntimeError, OSError, EOFError, ValueError, KeyError, pickle.UnpicklingError) as error:
        raise CheckpointError(f"the checkpoint {path} is damaged and cannot be read: {error}") from error
    if not isinstance(state, dict):
        raise CheckpointError(f"the checkpoint {path} does not hold the state of a run")
    return state


def _sync_folder(folder: Path) -> None:
    """Make the new name itself durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
