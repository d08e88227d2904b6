"""Credentials in texts: taken out of all that leaves the library.

Errors, warnings, log lines, `bad_samples`, statistics and `repr` name files, and a URL may hold a password or a signature; an error of an
HTTP library may hold the headers of its request. `redacted` is the one function that takes these out. It knows them by their form, and
those that were given as options of a `Storage` (`keep_secret`) by their value, too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

HIDDEN = "***"
_SHORTEST = 6  # characters of a value that is looked for everywhere: shorter ones would be found in any text
_SHORTEST_OF_URL = 4  # the same for those of a URL, which are looked for in texts about it

# Names of what must not be shown: of options, of headers, and of parameters in a URL's query.
_SECRET_NAME = re.compile(
    r"auth|token|secret|passw|pwd|key|cookie|cred|sig|sas|connection_string|session|bearer|assertion|policy|jwt", re.IGNORECASE
)
_OPEN_HEADER = re.compile(r"accept|user-agent|content-|range|referer|origin|host|connection", re.IGNORECASE)
_OPEN_VALUES = {"Bearer", "Basic", "Digest", "Token", "google_default", "browser"}
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s'\"<>]*[^\s'\"<>:,.)\]]")  # without what ends a sentence
_USER = re.compile(r"(://|::)[^/?#\s'\"<>]*@")
_PARAMETER = re.compile(r"([?&;#])([^=&;#?\s'\"<>]*)=([^&;#\s'\"<>]*)")
_HARMLESS = re.compile(r"\d{1,10}")  # values of a query that may be shown, unless their name says otherwise: numbers of files and pages
# A header or a setting in some library's text: Authorization: Bearer x, 'X-Api-Key': 'x', password=x, "token": "x".
_SETTING = re.compile(
    r"""(?P<name>["']?\b(?:proxy-?)?(?:authorization|(?:set-)?cookie|x-[\w-]*(?:key|token|auth|secret|signature)[\w-]*"""
    r"""|(?:\w+[_-])?(?:api[_-]?key|access[_-]?key|account[_-]?key|private[_-]?token|password|passwd|pwd|secret|signature|token|sig))["']?"""
    r"""\s*[:=]\s*)(?:"[^"]*"|'[^']*'|(?:(?:Bearer|Basic|Digest|Token|Negotiate)\s+)?[^\s,;&'"<>)}\]]*[^\s,;&'"<>)}\].:])""",
    re.IGNORECASE,
)
_SCHEME = re.compile(r"\b(Bearer|Basic|Digest)\s+[A-Za-z0-9+/=._~-]{6,}")

_secrets: set[str] = set()


def keep_secret(options: Mapping[str, Any]) -> None:
    """Has the values of options that are credentials, by their names, taken out of every text from now on."""

    def look(x: Any, secret: bool):
        if isinstance(x, Mapping):
            for name, value in x.items():
                # Headers are secret: which of them a server takes as a proof of identity is its own affair.
                named = "header" in str(name).lower() or _SECRET_NAME.search(str(name)) is not None
                look(value, named or (secret and _OPEN_HEADER.match(str(name)) is None))
        elif isinstance(x, (list, tuple)):
            for value in x:
                look(value, secret)
        elif secret and isinstance(x, (str, bytes)):
            text = x.decode("utf-8", "replace") if isinstance(x, bytes) else x
            _secrets.update(part for part in {text, *text.split()} if len(part) >= _SHORTEST and part not in _OPEN_VALUES)
        else:  # an object such as aiohttp.BasicAuth
            for name in ("login", "password", "token", "key") if secret else ():
                if isinstance(value := getattr(x, name, None), str):
                    look(value, True)

    look(options, False)


def redacted(text: str) -> str:
    """A text without credentials."""
    if "://" in text:
        text = _URL.sub(_without_credentials, text)
    if "=" in text or ":" in text:
        text = _SCHEME.sub(rf"\1 {HIDDEN}", _SETTING.sub(_named_value, text))
    for secret in sorted(_secrets, key=len, reverse=True):
        if secret in text:
            text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", HIDDEN, text)  # "secret" is no part of "secretary"
    return text


def redacted_beside(text: str, url: str) -> str:
    """The same of a text about a URL, of which a library may show credentials without the rest of it."""
    found = [x for m in _USER.finditer(url) for user in [m[0][len(m[1]) : -1]] for x in (user, user.partition(":")[2])]
    found += [m[3] for m in _PARAMETER.finditer(url) if HIDDEN in _parameter(m)]
    for secret in sorted({y for x in found for y in (x, unquote(x)) if len(y) >= _SHORTEST_OF_URL}, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return redacted(text)


def has_credentials(text: str) -> bool:
    """Whether it is a URL with a password or a signature."""
    return "://" in text and _URL.sub(_without_credentials, text) != text


def shown_error(e: BaseException | None) -> BaseException | None:
    """An exception that is to be shown as the cause of another: None where its text, or that of what caused it, holds credentials."""
    x = e
    while x is not None:
        text = f"{x} {x.args!r}"
        if redacted(text) != text:
            return None
        x = x.__cause__ or (None if x.__suppress_context__ else x.__context__)
    return e


def _without_credentials(url: re.Match[str]) -> str:
    text = _USER.sub(rf"\g<1>{HIDDEN}@", url[0])
    return _PARAMETER.sub(_parameter, text)


def _parameter(found: re.Match[str]) -> str:
    mark, name, value = found.groups()
    shown = not value or (_HARMLESS.fullmatch(value) and not _SECRET_NAME.search(name))
    return f"{mark}{name}={value if shown else HIDDEN}"


def _named_value(found: re.Match[str]) -> str:
    return f"{found['name']}{HIDDEN}"
