"""Names of files: paths, and URLs of fsspec."""

from __future__ import annotations

import contextlib
import functools
import inspect
import ipaddress
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

Path = str | os.PathLike[str]
Paths = Path | Sequence[Path]

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)(::|://)")  # begins a URL, or chained ones
_IPV6 = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+://(?:[^/?#@]*@)?\[)([0-9A-Fa-f:.]+)(?=\])")  # such a host begins a URL
_FILE_URL = re.compile(r"^(file|local)://", re.IGNORECASE)
_PORTS = {"http": "80", "https": "443"}
# File systems of fsspec that open other URLs, or evaluate what they find. Others are recognized by their constructors.
_WRAPPING = frozenset(
    "async_wrapper asyncwrapper blockcache cached dask dir dvc filecache generic libarchive reference simplecache tar zip".split()
)


def is_url(path: str) -> bool:
    """Whether fsspec is needed to open a path. A ``file://`` URL is treated as a path."""
    return _URL.match(path) is not None and not _FILE_URL.match(path)


def plain(path: Path) -> str:
    """A path without ``file://``, so that native code can read it, or a URL with its protocol in lower case, as in
    fsspec.
    """
    path = _FILE_URL.sub("", os.fsdecode(path))
    url = _URL.match(path)
    return path if url is None else url[1].lower() + path[url.end(1) :]


def unabridged(url: str) -> str:
    """The URL, whose host has no ``::`` if it is an address of IPv6: that would seem to chain file systems."""
    host = _IPV6.match(url)
    with contextlib.suppress(ValueError):  # it is no address
        return url if host is None else host[1] + ipaddress.IPv6Address(host[2]).exploded + url[host.end() :]
    return url


def join(root: str, name: str) -> str:
    """The path of `name`, which is relative to `root` unless it is absolute or a URL."""
    if is_url(name) or not root:
        return name
    return f"{root.rstrip('/')}/{name}" if is_url(root) else os.path.join(root, name)


def origin(url: str) -> tuple[str, str]:
    """Protocol and host of a URL: credentials for one origin are not sent to another. A URL whose host is uncertain is
    an origin of its own.
    """
    url = unabridged(url)
    protocol, _, remainder = url.partition("://")
    # The host, maybe with a port, without "user:password@" before it.
    host = re.split(r"[/?#]", remainder, maxsplit=1)[0].rpartition("@")[2].lower()
    if "::" in url or not re.fullmatch(r"[\w.\[\]:-]*", host):
        return "", url
    # The protocol's default port means the same as none.
    host_name, _, port = host.rpartition(":")
    return protocol.lower(), host_name if port and port == _PORTS.get(protocol.lower()) else host


def chaining_reason(url: str, options: Mapping[str, Any]) -> str:
    """The reason why a URL may access more than a file on one server; "" if it can't."""
    if "::" in unabridged(url):
        return "the URL chains file systems"
    protocol = str(options.get("protocol") or url.partition("://")[0]).lower()
    return f"{protocol}:// may open other URLs" if protocol in _WRAPPING or _wraps_filesystem(protocol) else ""


@functools.cache
def _wraps_filesystem(protocol: str) -> bool:
    """Whether a file system is made from another one, by the parameters of the constructors of its class and base
    classes.
    """
    try:
        import fsspec

        classes = fsspec.get_filesystem_class(protocol).__mro__
    except (ImportError, ValueError):  # it can't be opened either
        return False
    parameters = {
        name for cls in classes if "__init__" in vars(cls) for name in inspect.signature(cls.__init__).parameters
    }
    # Names that fsspec's classes have for another file or file system.
    return not {"fo", "target_protocol", "target_options"}.isdisjoint(parameters)
