"""A function of the user's as it travels to the workers: by name with the sources that it imports, or by value.

A function of `__main__`, of a notebook, or defined inside of another one is pickled by value. Any other one is imported
on the worker: from the same path where that holds the same sources, else from a copy of those that the driver sent.
"""

import atexit
import hashlib
import inspect
import shutil
import site
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import cloudpickle

from rst_tune.errors import InputError
from rst_tune.training.factories import resolve_factory

MAX_BYTES = 20 * 2**20
Function = Callable[..., Any]


@dataclass(frozen=True)
class UserCode:
    """A function, and what a worker needs to have it. `files` are sources by path relative to `root`."""

    name: str
    digest: str
    search_path: tuple[str, ...] = ()
    root: str = ""
    files: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    pickled: bytes | None = field(default=None, repr=False)

    @classmethod
    def of_name(cls, name: str, search_path: tuple[str, ...] = ()) -> "UserCode":
        """Return the function `module:function`, which is imported here, from `search_path` or what is installed."""
        if name.startswith("__main__:"):
            raise InputError(
                f"task.function: {name!r} belongs to a script that called rst_tune.search: run that script again, or "
                "put the function into a module of its own and name it 'module:function'"
            )
        function = resolve_factory(name, search_path, kind="training function")
        return cls._by_reference(name, function, search_path)

    @classmethod
    def of_function(cls, function: Function) -> "UserCode":
        """Return a function that is here already."""
        name = function_name(function)
        if not name.startswith("__main__:"):
            return cls._by_reference(name, function, ())
        root, files = _sources(Path.cwd())
        try:
            pickled = cloudpickle.dumps(function)
        except Exception as error:  # whatever the objects that it refers to raise
            raise InputError(
                f"{name} must be picklable to reach the workers, but: {error}. Create what it uses inside of it, or "
                "put it into a module of its own"
            ) from error
        _check_size(name, files, pickled)
        return cls(name, _digest(function), (str(Path.cwd()),), root, files, pickled)

    @classmethod
    def _by_reference(cls, name: str, function: Function, search_path: tuple[str, ...]) -> "UserCode":
        module = name.partition(":")[0]
        source = Path(getattr(sys.modules[module], "__file__", None) or sys.prefix).resolve()
        depth = module.count(".") + source.name.startswith("__init__.")
        if source.suffix != ".py" or _is_installed(source.parent):
            return cls(name, _digest(function), search_path)
        root, files = _sources(source.parents[depth])
        _check_size(name, files)
        return cls(name, _digest(function), search_path, root, files)

    def load(self) -> Function:
        """Return the function, imported or unpickled. This runs the user's code."""
        folder = (_usable_root(self.root, tuple(sorted(self.files.items()))),) if self.files else ()
        if self.pickled is None:
            return resolve_factory(self.name, (*folder, *self.search_path), kind="training function")
        sys.path.extend(each for each in (*folder, *self.search_path) if each not in sys.path)
        function: Function = cloudpickle.loads(self.pickled)
        return function


def function_name(function: Function) -> str:
    """Return `module:function` where the function can be imported by that name, else `__main__:function`."""
    module, name = getattr(function, "__module__", ""), getattr(function, "__qualname__", type(function).__qualname__)
    here = name.isidentifier() and getattr(sys.modules.get(module or ""), name, None) is function
    return f"{module if here else '__main__'}:{name}"


def _digest(function: Function) -> str:
    """Return the hash of the function's source, or of its byte code where there is no source."""
    try:
        text = inspect.getsource(function).encode()
    except (OSError, TypeError):
        code = getattr(function, "__code__", None)
        text = code.co_code + repr(code.co_consts).encode() if code is not None else b""
    return hashlib.sha256(text).hexdigest()


def _is_installed(folder: Path) -> bool:
    """Return whether a folder belongs to the installed packages, which every node has."""
    paths = [*site.getsitepackages(), site.getusersitepackages(), *sysconfig.get_paths().values()]
    return any(folder.is_relative_to(Path(each).resolve()) for each in paths if each)


def _sources(root: Path) -> tuple[str, dict[str, bytes]]:
    """Return the sources below a folder that are imported in this process; rst_tune itself is installed on workers."""
    files = {}
    for name, module in list(sys.modules.items()):
        source = getattr(module, "__file__", None)
        # torch has modules with the name of a file that does not exist.
        if (
            not isinstance(source, str)
            or not Path(source).is_absolute()
            or name.partition(".")[0] in ("rst_tune", "__main__", "__mp_main__")
        ):
            continue
        path = Path(source).resolve()
        if path.suffix == ".py" and path.is_relative_to(root) and not _is_installed(path.parent):
            files[path.relative_to(root).as_posix()] = path.read_bytes()
    return str(root), files


def _check_size(name: str, files: Mapping[str, bytes], pickled: bytes = b"") -> None:
    size = len(pickled) + sum(map(len, files.values()))
    if size > MAX_BYTES:
        raise InputError(
            f"{name} and the modules it imports must have at most {MAX_BYTES // 2**20} MB to be sent to every worker, "
            f"but have {size / 2**20:.0f}: load data inside of the function, or install the package on every node"
        )


@lru_cache
def _usable_root(root: str, files: tuple[tuple[str, bytes], ...]) -> str:
    """Return the folder to import from: the driver's where this node has the same files, else a copy of them."""
    try:
        if all((Path(root) / name).read_bytes() == content for name, content in files):
            return root
    except OSError:
        pass
    folder = Path(tempfile.mkdtemp(prefix="rst_tune-code-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for name, content in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return str(folder)
