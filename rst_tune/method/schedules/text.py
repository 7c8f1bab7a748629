"""Schedules as plain data and as one line of text, both ways."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from rst_tune.errors import InputError, unknown_name
from rst_tune.method.schedules.base import FAMILIES, Schedule


def from_dict(data: Mapping[str, Any]) -> Schedule:
    """Return the schedule that `Schedule.to_dict` wrote.

    >>> from_dict({"family": "piecewise", "a": 0.2, "b": 0.5})
    Piecewise(a=0.2, b=0.5)
    """
    if not isinstance(data, Mapping) or "family" not in data:
        raise InputError(f'a schedule needs a "family", but got {data!r}: for example {{"family": "cos1"}}')
    kind = FAMILIES[data["family"]]
    given = {name: _value(name, value) for name, value in data.items() if name != "family"}
    known = [field.name for field in fields(kind)]
    for name in given:
        if name not in known:
            raise unknown_name(f"parameter of schedule {kind.family}", name, known)
    try:
        return kind(**given)
    except TypeError as error:
        missing = [name for name in known if name not in given]
        raise InputError(f"schedule {kind.family} needs {', '.join(known)}, but got no {', '.join(missing)}") from error


def parse(text: str) -> Schedule:
    """Return the schedule written as `family:name=value,…`, the form that `str(schedule)` prints.

    >>> parse("warmup:w=0.1,then=constant:p=0.5")
    Warmup(w=0.1, then=Constant(p=0.5))
    >>> parse("interpolate:points=0@0/0.5@1/1@0.2").points
    ((0.0, 0.0), (0.5, 1.0), (1.0, 0.2))
    """
    family, _, rest = text.strip().partition(":")
    data: dict[str, Any] = {"family": family}
    while rest:
        name, equals, rest = rest.partition("=")
        if not equals:
            raise InputError(f"a schedule is written family:name=value,…, but got {text!r}: for example constant:p=0.5")
        # The schedule inside a combinator is the last parameter, so it takes all that is left.
        value, _, rest = (rest, "", "") if name == "then" else rest.partition(",")
        data[name.strip()] = _read(name, value)
    return from_dict(data)


def _read(name: str, value: str) -> Any:
    if name == "then":
        return parse(value)
    try:
        if "@" in value:
            return [[float(number) for number in knot.split("@")] for knot in value.split("/")]
        return float(value)
    except ValueError as error:
        raise InputError(f"{name} must be a number, but got {value!r}: for example {name}=0.5") from error


def _value(name: str, value: Any) -> Any:
    if name == "then" and isinstance(value, Mapping):
        return from_dict(value)
    if not isinstance(value, list):
        return value
    if not all(isinstance(knot, list | tuple) for knot in value):
        raise InputError(f"{name} must be a list of [position, value] pairs, but got {str(value)[:80]}")
    return tuple(tuple(knot) for knot in value)
