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

HIDDEN = "***"
# A shorter registered value, or one of these words, would blank out ordinary text.
SHORTEST, SHORTEST_USER = 6, 16
_ORDINARY = frozenset(("true", "false", "default", "password", "secret", "disabled", "enabled", "undefined"))

_TELLING_WORDS = (
    r"pass(?:word|wd|phrase|code)?|pwd|secret|token|credentials?|authorization|signature|sig|"
    r"(?:api|access|private|secret|account|auth|session)[_-]?key"
)
# In a name the word ends it or is followed by a separator: `tokens` and `tokenizer` are ordinary names.
_SECRET_NAME = re.compile(rf"(?:^|[_.\-\s])(?:{_TELLING_WORDS})(?:$|[_.\-\s])", re.IGNORECASE)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
# user:password@ — the password may hold any character but white space, so the last @ ends it.
_SCHEME = r"(?P<scheme>(?<![\w+.-])[A-Za-z][\w+.-]{0,30}://)"
_URL_PASSWORD = re.compile(_SCHEME + r"[^\s:/?#@]*:\S*@")
_URL_USER = re.compile(_SCHEME + r"[^\s/?#\"'<>@]+@")
_BEARER = re.compile(r"(?P<name>\b(?:bearer|basic)\s+)[\w.~+/=-]{6,}", re.IGNORECASE)
# A name before `=` or `:`. It is bounded and starts at a word's start, so that long words cost no more than short ones.
_NAME = re.compile(r"(?<![\w.-])([\w.-]{1,80})[\"']?\s{0,4}(?:=|:(?!//))\s{0,4}")
_VALUE = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|[^\s&;,\"'{}\[\]]+")
_ENVIRONMENT = re.compile(r"(?:PASSWORD|PASSWD|TOKEN|SECRET|CREDENTIALS?|API_?KEY|ACCESS_?KEY)$")

_NO_SECRETS = ("bearer", "basic", "null", "none", "true", "false")

_known: set[str] = set()


def register_url(url: str | None) -> None:
    """Remember the credentials of a URL as secret."""
    if not url:
        return
    before, at, _ = url.partition("://")[2].rpartition("@")
    if at:
        user, colon, password = before.partition(":")
        _register(password)
        if not colon and len(user) >= SHORTEST_USER:  # a token in the place of the user
            _register(user)
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
        if len(form) >= SHORTEST and form.lower() not in _ORDINARY:
            _known.add(form)


def _is_secret_name(name: str) -> bool:
    return bool(_SECRET_NAME.search(_CAMEL.sub("_", name)))


def redact_text(text: str) -> str:
    """Return the text without credentials.

    >>> redact_text("https://ann:p/w?d@host:5000/x failed: dbPassword=abc, X-Api-Key: k123")
    'https://***@host:5000/x failed: dbPassword=***, X-Api-Key: ***'
    """
    for secret in sorted(_known, key=len, reverse=True):
        if secret in text:  # as a word of its own: an id that happens to contain it stays
            text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", HIDDEN, text)
    text = _URL_PASSWORD.sub(rf"\g<scheme>{HIDDEN}@", text)
    text = _URL_USER.sub(rf"\g<scheme>{HIDDEN}@", text)
    text = _BEARER.sub(rf"\g<name>{HIDDEN}", text)
    return _hide_assigned(text)


def _hide_assigned(text: str) -> str:
    """Return the text with the values hidden that stand after a telling name and `=` or `:`."""
    parts, end = [], 0
    for name in _NAME.finditer(text):
        if name.start() < end or not _is_secret_name(name[1]):
            continue
        value = _VALUE.match(text, name.end())
        if value is None or value[0].lower() in _NO_SECRETS:
            continue
        mark = value[0][0] if value[0][0] in "\"'" else ""
        parts += [text[end : value.start()], f"{mark}{HIDDEN}{mark}"]
        end = value.end()
    return "".join([*parts, text[end:]])


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
