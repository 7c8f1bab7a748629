"""Rules and policies by name: built from plain options, and described for a listing."""

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any, TypeVar

from rst_tune.errors import InputError, unknown_name
from rst_tune.registry import Registry

T = TypeVar("T")


def defaults(kind: type[Any]) -> dict[str, object]:
    """Return the options of a rule or policy class with their defaults."""
    return {f.name: None if f.default is MISSING else f.default for f in fields(kind) if f.init}


def build(registry: Registry[type[T]], name: str, options: Mapping[str, Any] | None = None) -> T:
    """Return a fresh instance of the class registered under `name`, with its options."""
    kind = registry[name]
    known = list(defaults(kind))
    for option in options or {}:
        if option not in known:
            raise unknown_name(f"option of {registry.kind} {name}", option, known)
    try:
        return kind(**(options or {}))
    except TypeError as error:
        takes = ", ".join(known) or "no options"
        raise InputError(f"{registry.kind} {name!r} takes {takes}, but got {options!r}") from error
