"""The ascent rules that RST runs over, by name. One file a rule, behind the small protocol of `rule.py`."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from rst_tune.errors import InputError, unknown_name
from rst_tune.method.ascent.rule import Rule
from rst_tune.method.ascent.sam import SAM
from rst_tune.registry import Registry

__all__ = ["RULES", "Rule", "build"]

RULES: Registry[type[Rule]] = Registry("rule")
RULES.add("sam", SAM, "one step of length rho up the gradient", "Foret et al., ICLR 2021")


def build(name: str, options: Mapping[str, Any] | None = None) -> Rule:
    """Return a fresh rule with its options.

    >>> build("sam").expected_pairs
    1.0
    """
    kind = RULES[name]
    known = [field.name for field in fields(kind) if field.init]
    for option in options or {}:
        if option not in known:
            raise unknown_name(f"option of rule {name}", option, known)
    try:
        return kind(**(options or {}))
    except TypeError as error:
        raise InputError(f"rule {name!r} takes {', '.join(known) or 'no options'}, but got {options!r}") from error
