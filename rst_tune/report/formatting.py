"""How values are written: the same in the page, the figures and the terminal."""

import html
import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from rst_tune.records import PERCENT_ERROR, Metric, TrialConfig

MISSING = "–"
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")


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


def cost(extra_propagation: float | None) -> str:
    """Return extra propagation as a share of the base optimizer's compute.

    >>> cost(0.5), cost(0.125), cost(None)
    ('50 %', '12.5 %', '–')
    """
    if extra_propagation is None or not math.isfinite(extra_propagation):
        return MISSING
    return f"{number(100 * extra_propagation, 3)} %"


def multiple(value: float | None) -> str:
    """Return a compute or a length as a multiple of that of the recipe.

    >>> multiple(0.35), multiple(2.0), multiple(None)
    ('0.35 ×', '2 ×', '–')
    """
    return MISSING if value is None or not math.isfinite(value) else f"{number(value, 3)} ×"


def radius(config: TrialConfig) -> str:
    """Return rho; the base optimizer has none."""
    return MISSING if config.is_base else number(config.rho, 3)


def pairs(count: float | None, trainings: float | None) -> str:
    """Return propagation pairs, and how many plain trainings they are.

    >>> pairs(12000.0, 40.0), pairs(12000.0, None)
    ('12,000 (40 plain trainings)', '12,000')
    """
    return number(count) + ("" if trainings is None else f" ({number(trainings, 3)} plain trainings)")


def seeds(ended: int, total: int) -> str:
    """Return a number of seeds; where some diverged, of how many.

    >>> seeds(3, 3), seeds(2, 3)
    ('3', '2 of 3')
    """
    return f"{ended}" if ended == total else f"{ended} of {total}"


def difference(gap: float, low: float | None, high: float | None, metric: Metric = PERCENT_ERROR) -> str:
    """Return a difference with its interval in brackets, as the metric is written.

    >>> difference(-0.2, -0.33, -0.07), difference(0.1, None, None)
    ('-0.20 [-0.33, -0.07]', '+0.10')
    """
    value, _, ends = metric.difference(gap, low, high).partition(", ")
    return f"{value} [{ends.replace(' to ', ', ')}]" if ends else value


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
    """Return a length of time in seconds, minutes, hours or days.

    >>> duration(42), duration(600), duration(9000), duration(400000)
    ('42 s', '10 min', '2.5 h', '4.6 days')
    """
    if seconds is None or not math.isfinite(seconds):
        return MISSING
    for limit, unit, name in ((120, 1, "s"), (7200, 60, "min"), (172800, 3600, "h")):
        if seconds < limit:
            return f"{number(seconds / unit, 2)} {name}"
    return f"{number(seconds / 86400, 2)} days"


def timestamp(time: float | None) -> str:
    """Return a Unix time as a date, in UTC so that it does not depend on the reader's time zone.

    >>> timestamp(0), timestamp(float("inf"))
    ('1970-01-01 00:00 UTC', '–')
    """
    try:
        return datetime.fromtimestamp(time, tz=UTC).strftime("%Y-%m-%d %H:%M UTC") if time is not None else MISSING
    except (OverflowError, ValueError, OSError):  # not finite, or no date
        return MISSING


def parameters(schedule: Mapping[str, Any]) -> str:
    """Return the parameters of a schedule without its family.

    >>> parameters({"family": "piecewise", "a": 0.0, "b": 0.5})
    'a=0, b=0.5'
    """
    return ", ".join(f"{name}={format_value(value)}" for name, value in schedule.items() if name != "family")


def format_value(value: Any) -> str:
    """Return any value of a record in one line.

    >>> format_value(0.123456), format_value(True), format_value([1, 2.0]), format_value({"a": None})
    ('0.1235', 'yes', '1, 2', 'a=–')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return number(float(value))
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={format_value(item)}" for name, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(format_value(item) for item in value)
    return MISSING if value is None else str(value)


def escape_html(text: object) -> str:
    """Return text for HTML and for Plotly, which renders a subset of HTML in every name.

    >>> escape_html("<script>")
    '&lt;script&gt;'
    """
    return html.escape(str(text))


def one_line(text: object) -> str:
    r"""Return text that a terminal can print: without control characters and lone surrogates.

    >>> one_line("a\nb\x1b[31m")
    'a b [31m'
    """
    return _CONTROL.sub(" ", str(text).encode("utf-8", "replace").decode())


def unbroken(text: str) -> str:
    """Return text with non-breaking spaces around ± and =, and before % and ×.

    >>> unbroken("c = 0.5, error 3.7 ± 0.1 %") == "c\\u00a0=\\u00a00.5, error 3.7\\u00a0±\\u00a00.1\\u00a0%"
    True
    """
    return re.sub(r" ([%×])", "\u00a0\\1", re.sub(r" ([±=]) ", "\u00a0\\1\u00a0", text))


def sentence(text: str) -> str:
    """Return a clause as a sentence.

    >>> sentence("no trial ended")
    'No trial ended.'
    """
    text = unbroken(text)
    return text[:1].upper() + text[1:].rstrip(".") + "."
