"""Files that are replaced as a whole, and locks that end with the process that holds them."""

import errno
import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

from rst_tune.errors import InputError

# What `flock` raises on a file system that has no locks, as opposed to a lock that another process holds.
_UNSUPPORTED = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL)


class BusyError(RuntimeError):
    """Another process holds the lock."""


@contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """Yield a new file that replaces `path` when the block ends without an error: readers see the old one or the new.

    The content is flushed to the disk before the rename, and the directory after it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.parent / f".{path.name}.{uuid4().hex}"  # not mkstemp, which ignores the umask
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    handle = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def check_writable(folder: Path) -> None:
    """Make a folder and a file in it. Raises InputError where that is not possible."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except (OSError, ValueError) as error:
        raise InputError(f"{folder} must be a directory that can be written to, but it is not: {error}") from error


def check_replaceable(path: Path) -> None:
    """Raise InputError where a file cannot be written at a path."""
    if os.path.isdir(path):  # a Path raises where a name is too long
        raise InputError(f"a file is written here, but {path} is a directory: give the name of a file in it")
    check_writable(path.parent)


def write_text(path: Path, text: str) -> None:
    """Replace a text file as a whole."""
    with atomic_file(path) as file:
        file.write(text.encode("utf-8"))


@contextmanager
def file_lock(path: Path, *, timeout: float = 0.0) -> Iterator[None]:
    """Hold an exclusive lock on `path`; it ends with the block or with the process.

    Raises:
        BusyError: another process holds it for longer than `timeout` seconds.
        InputError: the file system has no locks.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + timeout
    with path.open("w") as file:
        while not _try_lock(file.fileno(), path):
            if time.monotonic() >= deadline:
                raise BusyError(f"another process holds {path}")
            time.sleep(0.05)
        yield


def is_locked(path: Path) -> bool:
    """Return whether a process holds the lock on `path`; True where that cannot be found out.

    The question takes a shared lock for a moment, so who wants the lock must wait for one: see `file_lock`'s timeout.
    """
    try:
        with path.open() as file:
            fcntl.flock(file.fileno(), fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:  # it is held, or the file system has no locks
        return True
    return False


def _try_lock(descriptor: int, path: Path) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
        raise InputError(
            f"the file system of {path.parent} must support file locks (flock), but it answers "
            f"{error.strerror!r}: choose an output directory on another file system, or mount this one with locks"
        ) from error
    return True
