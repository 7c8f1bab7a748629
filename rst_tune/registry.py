"""One small registry: a name, a thing, one line of description, a citation."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from rst_tune.errors import unknown_name

T = TypeVar("T")


@dataclass(frozen=True)
class Entry(Generic[T]):
    """A registered thing and what `rst-tune list` says of it."""

    name: str
    value: T
    description: str
    citation: str = ""


class Registry(Generic[T]):
    """Names to things. A duplicate raises; an unknown name lists the choices and the nearest.

    >>> colours = Registry[int]("colour")
    >>> colours.add("red", 1, "the first")
    >>> colours["red"]
    1
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, Entry[T]] = {}

    def add(self, name: str, value: T, description: str, citation: str = "") -> None:
        """Register `value` under `name`."""
        if name in self._entries:
            raise ValueError(f"{self.kind} {name!r} is registered already")
        self._entries[name] = Entry(name, value, description, citation)

    def register(self, name: str, description: str, citation: str = "") -> Callable[[T], T]:
        """Return a decorator that registers what it decorates."""

        def decorate(value: T) -> T:
            self.add(name, value, description, citation)
            return value

        return decorate

    def __getitem__(self, name: str) -> T:
        if name not in self:
            raise unknown_name(self.kind, name, self._entries)
        return self._entries[name].value

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._entries

    def __iter__(self) -> Iterator[Entry[T]]:
        return iter(self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    def names(self) -> list[str]:
        """Return the names in the order of registration."""
        return list(self._entries)
