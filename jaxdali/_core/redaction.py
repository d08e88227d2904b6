"""Removes credentials from all text that leaves the library.

Errors, warnings, log lines, `bad_samples`, statistics and `repr` name files, and a URL may contain a password or a
signature. An error of an HTTP library may contain the headers of its request. Only `redacted` removes these. It
recognizes them by their form, and the options of a `Storage` (`keep_secret`) also by their value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

HIDDEN = "***"
_SHORTEST = 6  # minimal length of a secret that is removed from all texts: shorter ones would occur in any text
_LONGEST_CAUSE = 100_000  # characters
_SHORTEST_OF_URL = 4  # minimal length of a secret from a URL, which is removed only from texts about that URL

# Names of options, headers and query parameters whose values are secret.
_SECRET_NAME = re.compile(
    r"auth|token|secret|passw|pwd|key|cookie|cred|sig|sas|connection_string|session|bearer|assertion|policy|jwt",
    re.IGNORECASE,
)
_OPEN_HEADER = re.compile(r"accept|user-agent|content-|range|referer|origin|host|connection", re.IGNORECASE)
_OPEN_VALUES = {"Bearer", "Basic", "Digest", "Token", "google_default", "browser"}
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s'\"<>]*[^\s'\"<>:,.)\]]")  # without punctuation that ends a sentence
_USER = re.compile(r"(://|::)[^/?#\s'\"<>]*@")
_PARAMETER = re.compile(r"([?&;#])([^=&;#?\s'\"<>]*)=([^&;#\s'\"<>]*)")
_HARMLESS = re.compile(r"\d{1,10}")  # query values that may be shown unless their name is secret: small numbers
# A header or setting in the text of some library: Authorization: Bearer x, 'X-Api-Key': 'x', password=x, "token": "x".
_SETTING = re.compile(
    r"""(?P<name>["']?\b(?:proxy-?)?(?:authorization|(?:set-)?cookie|x-[\w-]*(?:key|token|auth|secret|signature)[\w-]*"""
    r"""|(?:\w+[_-])?(?:api[_-]?key|access[_-]?key|account[_-]?key|private[_-]?token|password|passwd|pwd|secret|signature|token|sig))["']?"""
    r"""\s*[:=]\s*)(?:"[^"]*"|'[^']*'|(?:(?:Bearer|Basic|Digest|Token|Negotiate)\s+)?[^\s,;&'"<>)}\]]*[^\s,;&'"<>)}\].:])""",
    re.IGNORECASE,
)
_SCHEME = re.compile(r"\b(Bearer|Basic|Digest)\s+[A-Za-z0-9+/=._~-]{6,}")

_secrets: set[str] = set()  # the values that `keep_secret` has marked


def keep_secret(options: Mapping[str, Any]) -> None:
    """Marks the values of options with secret names, so that they are removed from every text from now on."""

    def collect(x: Any, is_secret: bool):
        """Marks the texts in `x`, at any depth, if `x` is secret or has a secret name inside."""
        if isinstance(x, Mapping):
            for name, value in x.items():
                collect(value, _is_secret(name, is_secret))
        elif isinstance(x, (list, tuple)):
            for value in x:
                collect(value, is_secret)
        elif is_secret and isinstance(x, (str, bytes)):
            text = x.decode("utf-8", "replace") if isinstance(x, bytes) else x
            _secrets.update(
                part for part in {text, *text.split()} if len(part) >= _SHORTEST and part not in _OPEN_VALUES
            )
        else:  # an object such as aiohttp.BasicAuth
            for name in ("login", "password", "token", "key") if is_secret else ():
                if isinstance(value := getattr(x, name, None), str):
                    collect(value, is_secret=True)

    collect(options, is_secret=False)


def open_part(x: Any, is_secret: bool = False) -> Any:
    """Options without the values of secret names, as plain values in the order of the names. An object, which may be a
    new one in each process, is represented by its class.

    Args:
      is_secret: whether `x` is the value of a secret name.
    """
    if isinstance(x, Mapping):
        parts = []
        for name, value in x.items():
            is_part_secret = _is_secret(name, is_secret)
            # Azure's names the account: AccountName=x;AccountKey=x;...
            if name == "connection_string" and isinstance(value, str):
                value, is_part_secret = dict(re.findall("([^=;]+)=([^;]*)", value)), False
            parts.append((str(name), open_part(value, is_part_secret)))
        return sorted(parts, key=lambda part: part[0])
    if isinstance(x, (list, tuple)):
        return [open_part(value, is_secret) for value in x]
    if is_secret:
        return HIDDEN
    return x if x is None or isinstance(x, (str, bytes, int, float)) else type(x).__qualname__


def _is_secret(name: Any, within: bool) -> bool:
    """Whether the value of an option is secret, by its name. `within`: whether it is part of a secret value."""
    # All headers are secret, because any of them may identify the user to some server.
    has_secret_name = "header" in str(name).lower() or _SECRET_NAME.search(str(name)) is not None
    return has_secret_name or (within and _OPEN_HEADER.match(str(name)) is None)


def redacted(text: str) -> str:
    """The text without credentials."""
    if "://" in text:
        text = _URL.sub(_without_credentials, text)
    if "=" in text or ":" in text:
        text = _SCHEME.sub(rf"\1 {HIDDEN}", _SETTING.sub(_named_value, text))
    for secret in sorted(_secrets, key=len, reverse=True):
        if secret in text:
            text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", HIDDEN, text)  # "secret" is not found in "secretary"
    return text


def redacted_beside(text: str, url: str) -> str:
    """The text without credentials, also without those of `url`: a library may show these without the rest of the
    URL.
    """
    # "user:password" before the "@" of each URL, the password alone, and the values of secret parameters.
    parts = [x for m in _USER.finditer(url) for user in [m[0][len(m[1]) : -1]] for x in (user, user.partition(":")[2])]
    parts += [m[3] for m in _PARAMETER.finditer(url) if HIDDEN in _parameter(m)]
    for secret in sorted(
        {form for x in parts for form in (x, unquote(x)) if len(form) >= _SHORTEST_OF_URL}, key=len, reverse=True
    ):
        text = text.replace(secret, HIDDEN)
    return redacted(text)


def has_credentials(text: str) -> bool:
    """Whether the text is a URL with a password or a signature."""
    return "://" in text and _URL.sub(_without_credentials, text) != text


def shown_error(e: BaseException | None) -> BaseException | None:
    """An exception that may be shown as the cause of another one: `e`, or None if its text, or that of its causes,
    contains credentials, or is so long that looking for them takes time.
    """
    x = e
    while x is not None:
        text = f"{x} {x.args!r}"
        if len(text) > _LONGEST_CAUSE or redacted(text) != text:
            return None
        x = x.__cause__ or (None if x.__suppress_context__ else x.__context__)
    return e


def _without_credentials(url: re.Match[str]) -> str:
    """A URL without user, password, and the values of secret parameters."""
    text = _USER.sub(rf"\g<1>{HIDDEN}@", url[0])
    return _PARAMETER.sub(_parameter, text)


def _parameter(match: re.Match[str]) -> str:
    """A query parameter of a URL, with its value hidden unless that is harmless."""
    separator, name, value = match.groups()
    is_harmless = not value or (_HARMLESS.fullmatch(value) and not _SECRET_NAME.search(name))
    return f"{separator}{name}={value if is_harmless else HIDDEN}"


def _named_value(match: re.Match[str]) -> str:
    return f"{match['name']}{HIDDEN}"
