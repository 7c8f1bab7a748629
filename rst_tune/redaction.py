"""Removes credentials from texts and structures before they are written anywhere.

Two mechanisms work together. Values known to be secret (the password of a storage URL, a token of the environment)
are registered and replaced wherever they occur. Patterns catch what nobody registered: credentials in a URL, values
after a telling name, bearer tokens.
"""

import os
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, unquote, urlsplit

__all__ = ["HIDDEN", "redact", "redact_text", "register_environment", "register_url"]

HIDDEN = "***"
SHORTEST = 4  # a shorter registered value would blank out ordinary words

_TELLING_WORDS = (
    r"pass(?:word|wd|phrase|code)?|pwd|secret|token|credentials?|authorization|signature|sig|"
    r"(?:api|access|private|secret|account|auth|session)[_-]?key"
)
# In a name the word ends it or is followed by a separator: `tokens` and `tokenizer` are ordinary names.
_SECRET_NAME = re.compile(rf"(?:^|[_.\-\s])(?:{_TELLING_WORDS})(?:$|[_.\-\s])", re.IGNORECASE)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
# user:password@ — the password may hold any character but white space, so the last @ ends it.
_URL_PASSWORD = re.compile(r"(?P<scheme>[A-Za-z][\w+.-]*://)[^\s:/?#@]*:\S*@")
_URL_USER = re.compile(r"(?P<scheme>[A-Za-z][\w+.-]*://)[^\s/?#\"'<>@]+@")
_BEARER = re.compile(r"(?P<name>\b(?:bearer|basic)\s+)[\w.~+/=-]{6,}", re.IGNORECASE)
_ASSIGNED = re.compile(
    rf"(?P<name>[\"']?(?P<word>[\w.-]*(?:{_TELLING_WORDS})[\w.-]*)[\"']?\s*(?:=|:(?!//))\s*)"
    r"(?P<value>\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|[^\s&;,\"'{}\[\]]+)",
    re.IGNORECASE,
)
_ENVIRONMENT = re.compile(r"(?:PASSWORD|PASSWD|TOKEN|SECRET|CREDENTIALS?|API_?KEY|ACCESS_?KEY)$")

_known: set[str] = set()


def register_url(url: str | None) -> None:
    """Remember the credentials of a URL as secret."""
    if not url:
        return
    before, at, _ = url.partition("://")[2].rpartition("@")
    if at:
        user, _, password = before.partition(":")
        _register(password or user)
    for part in urlsplit(url).query.split("&"):
        name, _, value = part.partition("=")
        if _is_secret_name(name):
            _register(value)


def register_environment() -> None:
    """Remember the values of environment variables whose names end in PASSWORD, TOKEN, SECRET and the like."""
    for name, value in os.environ.items():
        if _ENVIRONMENT.search(name.upper()):
            _register(value)


def _register(value: str) -> None:
    for form in (value, unquote(value), quote(value, safe=""), quote(value)):
        if len(form) >= SHORTEST:
            _known.add(form)


def _is_secret_name(name: str) -> bool:
    return bool(_SECRET_NAME.search(_CAMEL.sub("_", name)))


def redact_text(text: str) -> str:
    """Return the text without credentials.

    >>> redact_text("https://ann:p/w?d@host:5000/x failed: dbPassword=abc, X-Api-Key: k123")
    'https://***@host:5000/x failed: dbPassword=***, X-Api-Key: ***'
    """
    for secret in sorted(_known, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    text = _URL_PASSWORD.sub(rf"\g<scheme>{HIDDEN}@", text)
    text = _URL_USER.sub(rf"\g<scheme>{HIDDEN}@", text)
    text = _BEARER.sub(rf"\g<name>{HIDDEN}", text)
    return _ASSIGNED.sub(_hide_value, text)


def _hide_value(match: re.Match[str]) -> str:
    if not _is_secret_name(match["word"]) or match["value"].lower() in ("bearer", "basic", "null", "none"):
        return match[0]
    mark = match["value"][0] if match["value"][0] in "\"'" else ""
    return f"{match['name']}{mark}{HIDDEN}{mark}"


def redact(value: Any) -> Any:
    """Return a structure without credentials: texts as by `redact_text`, and every value whose key names a secret.

    >>> redact({"uri": "http://a:b@c", "dbPassword": "k", "n": [1], "num_tokens": 3})
    {'uri': 'http://***@c', 'dbPassword': '***', 'n': [1], 'num_tokens': 3}
    """
    if isinstance(value, str):
        return redact_text(value)
    if isinstance(value, Mapping):
        return {key: HIDDEN if _hides(str(key), item) else redact(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [redact(item) for item in value]
    return value


def _hides(name: str, value: Any) -> bool:
    plain = isinstance(value, str | bytes | int | float) and not isinstance(value, bool)
    return plain and value != "" and _is_secret_name(name)
