"""The one error a user sees for wrong input, and how a name that is not known is answered."""

from collections.abc import Iterable
from difflib import get_close_matches


class InputError(ValueError):
    """Wrong input. The message states the rule, the value and the remedy; nothing was started."""


def unknown_name(kind: str, name: object, choices: Iterable[str]) -> InputError:
    """Return the error for a name that is not there: it lists the choices and the nearest one.

    >>> str(unknown_name("rule", "sma", ["sam", "asam"]))
    "unknown rule 'sma': did you mean 'sam'? The choices are: asam, sam"
    """
    known = sorted(choices)
    near = get_close_matches(str(name).lower(), known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return InputError(f"unknown {kind} {name!r}: {hint}The choices are: {', '.join(known) or '(none)'}")
