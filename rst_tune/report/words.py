"""How numbers and configurations are written, the same in the page, the figures and the terminal."""

import html
import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

__all__ = [
    "cost",
    "duration",
    "error",
    "escaped",
    "expected",
    "method_yaml",
    "moment",
    "number",
    "parameters",
    "plain",
    "probability",
    "sentence",
]

MISSING = "–"


def number(value: float | None, digits: int = 4) -> str:
    """Return a number in few digits, without trailing zeros.

    >>> number(0.5), number(2.0), number(1234567.0), number(None), number(float("nan"))
    ('0.5', '2', '1,234,567', '–', '–')
    """
    if value is None or not math.isfinite(value):
        return MISSING
    if abs(value) >= 10**digits:
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def error(mean: float | None, sem: float | None = None) -> str:
    """Return an error in percent with its standard error, when there is one.

    >>> error(3.6512, 0.104), error(4.0, None), error(None)
    ('3.65 ± 0.10', '4.00', '–')
    """
    if mean is None or not math.isfinite(mean):
        return MISSING
    if sem is None or not math.isfinite(sem):
        return f"{mean:.2f}"
    return f"{mean:.2f} ± {sem:.2f}"


def expected(mean: float, sd: float | None) -> str:
    """Return what is expected of a configuration by all trials together; nothing where there are too few.

    >>> expected(4.0, 0.2), expected(4.0, None)
    ('expected 4.00 ± 0.20 %', '')
    """
    return "" if sd is None else f"expected {error(mean, sd)} %"


def cost(extra_propagation: float) -> str:
    """Return extra propagation as a share of the base optimizer's compute.

    >>> cost(0.5), cost(0.125)
    ('50 %', '12.5 %')
    """
    return f"{number(100 * extra_propagation, 3)} %"


def difference(gap: float, low: float | None, high: float | None) -> str:
    """Return a difference with its interval.

    >>> difference(-0.2, -0.33, -0.07), difference(0.1, None, None)
    ('-0.20 [-0.33, -0.07]', '+0.10')
    """
    return f"{gap:+.2f}" if low is None or high is None else f"{gap:+.2f} [{low:+.2f}, {high:+.2f}]"


def interval(low: float | None, high: float | None) -> str:
    """Return an interval.

    >>> interval(0.5, 0.75), interval(None, None)
    ('0.5 … 0.75', '–')
    """
    return MISSING if low is None or high is None else f"{number(low)} … {number(high)}"


def probability(value: float | None) -> str:
    """Return a probability with two digits.

    >>> probability(0.953), probability(None)
    ('0.95', '–')
    """
    return MISSING if value is None or not math.isfinite(value) else f"{value:.2f}"


def duration(seconds: float | None) -> str:
    """Return a length of time in the unit a person would use.

    >>> duration(42), duration(600), duration(9000), duration(400000)
    ('42 s', '10 min', '2.5 h', '4.6 days')
    """
    if seconds is None or not math.isfinite(seconds):
        return MISSING
    for limit, unit, name in ((120, 1, "s"), (7200, 60, "min"), (172800, 3600, "h")):
        if seconds < limit:
            return f"{number(seconds / unit, 2 if unit > 1 else 3)} {name}"
    return f"{number(seconds / 86400, 2)} days"


def moment(time: float | None) -> str:
    """Return a time stamp as a date, in UTC so that every reader sees the same.

    >>> moment(0)
    '1970-01-01 00:00 UTC'
    """
    if time is None:
        return MISSING
    return datetime.fromtimestamp(time, tz=UTC).strftime("%Y-%m-%d %H:%M UTC")


def parameters(schedule: Mapping[str, Any]) -> str:
    """Return a schedule's parameters, the family left out.

    >>> parameters({"family": "piecewise", "a": 0.0, "b": 0.5})
    'a=0, b=0.5'
    """
    return ", ".join(f"{name}={plain(value)}" for name, value in schedule.items() if name != "family")


def plain(value: Any) -> str:
    """Return any value of a record in one line.

    >>> plain(0.123456), plain(True), plain([1, 2.0]), plain({"a": None})
    ('0.1235', 'yes', '1, 2', 'a=–')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return number(float(value))
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={plain(item)}" for name, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(plain(item) for item in value)
    return MISSING if value is None else str(value)


def method_yaml(config: Mapping[str, Any], comment: str = "") -> str:
    """Return the method of a configuration as YAML: every value is JSON, which YAML contains.

    >>> config = {"schedule": {"family": "constant", "p": 0.5}, "gamma_gnr": 2.0, "rule": "sam"}
    >>> print(method_yaml(config), end="")
    schedule: {"family": "constant", "p": 0.5}
    gamma_gnr: 2.0
    rule: "sam"
    """
    names = ("schedule", "gamma_gnr", "rule", "rule_options", "rho")
    lines = [f"# {' '.join(comment.split())}"] if comment else []
    lines += [f"{name}: {json.dumps(config[name])}" for name in names if config.get(name) is not None]
    return "\n".join(lines) + "\n"


def escaped(text: object) -> str:
    """Return text for HTML and for Plotly, which reads a subset of HTML in every name it draws.

    >>> escaped("<script>")
    '&lt;script&gt;'
    """
    return html.escape(str(text))


def sentence(text: str) -> str:
    """Return a clause as a sentence, in which no line break parts a number from its sign.

    >>> sentence("error 3.7 ± 0.1 %") == "Error 3.7\\u00a0±\\u00a00.1\\u00a0%."
    True
    """
    text = text.replace(" ± ", "\u00a0±\u00a0").replace(" %", "\u00a0%")
    return text[:1].upper() + text[1:].rstrip(".") + "."
