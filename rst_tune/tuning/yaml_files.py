"""YAML as data: shipped files by name, a user's by path, `--set` overrides, and errors that name the field."""

import importlib.util
import os
import re
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError

from rst_tune.errors import InputError, unknown_name

Model = TypeVar("Model", bound=BaseModel)
_PACKAGE = Path(__file__).resolve().parent.parent
LARGEST_FILE = 2**18
"""Bytes of one file. The largest shipped one has about two thousand."""
LARGEST = 20_000
"""Values in one file, aliases counted as often as they are used. The largest shipped file has about a hundred."""


class _Loader(yaml.SafeLoader):
    """Safe YAML that reads 1e-3 as a number and refuses a key written twice, and merge keys."""


_FLOAT = re.compile(r"^[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)$")
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+0123456789."))


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: set[Any] = set()
    for key_node, _ in node.value:
        line = key_node.start_mark.line + 1
        if key_node.tag == "tag:yaml.org,2002:merge":  # nested ones grow a few bytes to gigabytes
            raise yaml.YAMLError(f"line {line}: write the fields out instead of merging with <<")
        key = loader.construct_object(key_node)
        if not isinstance(key, str | int | float | bool) or key in seen:
            raise yaml.YAMLError(f"line {line}: the key {key!r} is given twice or is not a plain word")
        seen.add(key)
    return loader.construct_mapping(node, deep=True)


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def _root(kind: str) -> Path:
    """Return the folder of the shipped files: inside the installed package, or beside it in a checkout."""
    installed = _PACKAGE / "shipped" / kind
    return installed if installed.is_dir() else _PACKAGE.parent / kind


def shipped(kind: str) -> dict[str, Path]:
    """Return the shipped files of `search_spaces` or `experiments` by name (`digits`, `paper/constant`)."""
    root = _root(kind)
    return {p.relative_to(root).with_suffix("").as_posix(): p for p in sorted(root.rglob("*.yaml"))}


def find(kind: str, name: str, *, beside: Path | None = None) -> Path:
    """Return the file that `name` means: a path, or the name of a shipped file."""
    known = shipped(kind)
    for path in (home(name), *([beside / name] if beside else [])):
        if _is_file(path):
            return path.resolve()
    stem = name.removesuffix(".yaml").removeprefix(f"{kind}/")
    if stem in known:
        return known[stem]
    if name.endswith((".yaml", ".yml", ".py")) or "/" in name:
        near = get_close_matches(stem, known, n=1, cutoff=0.4)
        hint = f"; did you mean the shipped {near[0]!r}?" if near else ""
        raise InputError(f"no file {name}{hint} `rst-tune list` shows what is shipped")
    raise unknown_name(kind.replace("_", " ").rstrip("s"), name, known)


def home(path: Path | str) -> Path:
    """Return the path with ~ expanded; a ~ of an unknown user stays as it is, where pathlib would raise."""
    return Path(os.path.expanduser(path))


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # too long for a name, or no name at all
        return False


def existing(path: Path) -> Path:
    """Return the path of a file that is there."""
    if not _is_file(home(path)):
        raise InputError(f"no file {path}: check the path")
    return home(path)


def read_yaml(path: Path) -> dict[str, Any]:
    """Return the mapping in a YAML file."""
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise InputError(f"{path}: the file must have at most {LARGEST_FILE:,} bytes, and it has more: shorten it")
        content = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)  # noqa: S506  a SafeLoader
    except InputError:
        raise
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: this is not valid YAML: {_where(error)}. Check the indentation there") from None
    except OSError as error:
        raise InputError(f"{path}: it cannot be read: {error.strerror}") from None
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise InputError(f"{path}: the file must hold `key: value` lines, but it holds {type(content).__name__}")
    _check_size(content, str(path))
    return content


def _check_size(content: Any, where: str) -> None:
    """Refuse a file that expands to a huge structure: aliases make one of a few bytes."""
    left, stack = LARGEST, [content]
    while stack:
        item = stack.pop()
        left -= 1
        if left < 0:
            raise InputError(f"{where}: the file must have at most {LARGEST:,} values, and it has more: shorten it")
        stack.extend(item.values() if isinstance(item, dict) else item if isinstance(item, list) else ())


def _where(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}" if mark else str(problem)


def override(content: dict[str, Any], settings: Iterable[str]) -> dict[str, Any]:
    """Return `content` with `a.b=c` settings applied; values are read as YAML.

    >>> override({"budget": {"pairs": 10}}, ["budget.pairs=20", "name=mine"])
    {'budget': {'pairs': 20}, 'name': 'mine'}
    """
    for setting in settings:
        path, equals, text = setting.partition("=")
        if not equals or not path.strip():
            raise InputError(f"--set takes key=value, but got {setting!r}: for example --set budget.pairs=5000")
        try:
            value = yaml.load(text, Loader=_Loader)  # noqa: S506  a SafeLoader
        except (yaml.YAMLError, ValueError, RecursionError):
            raise InputError(f"--set {setting!r}: the value is not valid YAML: quote it") from None
        _check_size(value, f"--set {path}")
        content = _put(content, path.strip().split("."), value, setting)
    return content


def _put(content: Any, keys: list[str], value: Any, setting: str) -> dict[str, Any]:
    if isinstance(content, str) and keys:  # `recipe: cifar-cnn` and `--set task.recipe.epochs=2` mean both
        content = {"base": content}
    if content is None:
        content = {}
    if not isinstance(content, dict):
        raise InputError(f"--set {setting!r}: {keys[0]!r} is inside a value that has no fields")
    head, rest = keys[0], keys[1:]
    return {**content, head: _put(content.get(head), rest, value, setting) if rest else value}


def validate(model: type[Model], content: Mapping[str, Any], where: str) -> Model:
    """Return the validated object; an error names the file, the field, the value and the nearest right one."""
    try:
        return model.model_validate(dict(content))
    except ValidationError as error:
        raise explained(model, error, where) from None
    except RecursionError:
        raise InputError(f"{where}: the file is nested too deeply") from None


def explained(model: type[BaseModel], error: ValidationError, where: str) -> InputError:
    """Return an error that names the fields."""
    lines = [_explain(model, e) for e in error.errors(include_url=False)[:5]]
    return InputError("\n".join(f"{where}: {line}" for line in dict.fromkeys(lines)))


def _explain(model: type[BaseModel], error: Any) -> str:
    place = [str(part) for part in error["loc"] if not str(part).startswith("(")]  # the form of a task is no field
    field = ".".join(place)
    if error["type"] == "extra_forbidden":
        return f"{field}: there is no such field{_hint(place[-1], _fields_at(model, place[:-1]))}"
    if error["type"] == "missing":
        return f"{field}: this field is needed"
    if not place:  # a rule between several fields: its message names them
        return str(error["msg"]).removeprefix("Value error, ")
    choices = re.findall(r"'([^']*)'", str(error.get("ctx", {}).get("expected", "")))
    hint = _hint(str(error.get("input")), choices)
    return f"{field}: {error['msg'].removeprefix('Value error, ')} (got {repr(error.get('input'))[:80]}){hint}"


def _hint(given: str, choices: list[str]) -> str:
    """Return the choice that was probably meant, if there is one."""
    near = get_close_matches(given, choices, n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else ""


def _fields_at(model: type[BaseModel], place: list[str]) -> list[str]:
    for name in place:
        if name not in model.model_fields:  # the name of a form of the field before it
            continue
        inner = _models(model.model_fields[name].annotation)
        if not inner:
            return []
        model = inner[0]
    return list(model.model_fields)


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    if get_origin(annotation) in (Union, UnionType, Annotated):
        return [m for a in get_args(annotation) for m in _models(a)]
    return []


def load_function(path: Path, name: str) -> Callable[..., Any]:
    """Return the function `name` of a user's Python file. This runs the file, which is the user's own code."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path}: this is not a Python file")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise InputError(f"{path}: running the file failed: {type(error).__name__}: {error}") from error
    function = getattr(module, name, None)
    if not callable(function):
        raise InputError(f"{path}: the file must define `def {name}(trial)` and it does not")
    return function  # type: ignore[no-any-return]
