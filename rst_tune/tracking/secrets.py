"""What must not be recorded: passwords and tokens, wherever a text or a structure may carry them."""

import re
from collections.abc import Mapping
from typing import Any

__all__ = ["HIDDEN", "scrub", "scrub_text"]

HIDDEN = "***"

_CREDENTIALS = re.compile(r"(?P<scheme>[A-Za-z][\w+.-]*://)[^\s/?#\"'<>@]+(?:@[^\s/?#\"'<>@]+)*@")
_QUERY = re.compile(
    r"(?P<name>[?&;][\w.-]*(?:password|passwd|pwd|token|secret|signature|sig|api_?key|credential)[\w.-]*=)[^&#;\s\"']+",
    re.IGNORECASE,
)
_BEARER = re.compile(r"(?P<name>\b(?:bearer|basic)\s+)[\w.~+/=-]{8,}", re.IGNORECASE)
_SECRET_NAME = re.compile(
    r"(?:^|[_.-])(?:password|passwd|pwd|secret|api_?key|access_?key|credentials?|authorization|(?:\w*_)?token)$", re.I
)


def scrub_text(text: str) -> str:
    """Return the text without the credentials of its addresses, secret query values and bearer tokens.

    >>> scrub_text("https://ann:pw@host:5000/x?token=abc&n=1 failed")
    'https://***@host:5000/x?token=***&n=1 failed'
    """
    text = _CREDENTIALS.sub(rf"\g<scheme>{HIDDEN}@", text)
    text = _QUERY.sub(rf"\g<name>{HIDDEN}", text)
    return _BEARER.sub(rf"\g<name>{HIDDEN}", text)


def scrub(value: Any) -> Any:
    """Return a structure without secrets: texts as by `scrub_text`, and the values of keys that name one.

    >>> scrub({"uri": "http://a:b@c", "api_key": "k", "n": [1]})
    {'uri': 'http://***@c', 'api_key': '***', 'n': [1]}
    """
    if isinstance(value, str):
        return scrub_text(value)
    if isinstance(value, Mapping):
        return {k: HIDDEN if isinstance(v, str) and _SECRET_NAME.search(str(k)) else scrub(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [scrub(item) for item in value]
    return value
