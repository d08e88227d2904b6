"""Names of files that occur in data: in a table's cells, a list of files, annotations, a manifest.

The author of the data chose these names, so they may only mean files below the data's own root. A name that leads
elsewhere could read a private file of this machine, or send the credentials in `Storage.options` to another host.
`Storage(allow_outside=True)` permits such names. Symbolic links below the root are followed: they belong to whoever made
the folder.

A zero byte would end the name in native code, so it is refused in any case.
"""

from __future__ import annotations

import os
import re
from urllib.parse import unquote

from .._core.errors import quoted
from .storage import Storage
from .urls import is_url

_PROTOCOL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(//|:)")  # begins a URL, or a chained one
# Characters that no file's name has: zero, and surrogates, except those that stand for bytes that are not UTF-8.
_IMPOSSIBLE = re.compile("[\0\ud800-\udc7f\udd00-\udfff]")
# Names that don't match can't lead elsewhere: `check_names` looks closely only at the others.
_SUSPICIOUS = re.compile(rf"[:%\x00-\x1f\x7f]|\.[\s\\]*\.|^/|{_IMPOSSIBLE.pattern}")
_LONGEST = 8192  # characters: paths of Linux have at most 4096 bytes, and most servers allow URLs of 8 KB
_PERMIT = "Storage(allow_outside=True) permits it where the data are trusted"


def check_name(name: str, root: str, storage: Storage, *, absolute: bool) -> None:
    """Checks that a name in data means a file below `root`, unless `storage` allows others.

    Args:
      root: a directory or a URL; "": the current directory.
      absolute: whether absolute paths of local files are allowed, too. They are in lists that the user names.

    Raises:
      ValueError: the name leads elsewhere, or no file can have it. The message explains it, and names the option.
    """
    if len(name) > _LONGEST:
        raise ValueError(f"the name {quoted(name)} has {len(name)} characters, more than {_LONGEST}")
    if impossible := _IMPOSSIBLE.search(name):
        character = "a zero byte" if impossible[0] == "\0" else f"the character {impossible[0]!r}"
        raise ValueError(f"the name {quoted(name)} has {character}, which no file's name has")
    if storage.allow_outside:
        return
    if _PROTOCOL.match(name) or "::" in name:
        raise ValueError(
            f"the name {quoted(name)} is a URL; names in data must be relative to {_shown(root)}. {_PERMIT}"
        )
    remote = is_url(root)
    if os.path.isabs(name) and not (absolute and not remote):
        raise ValueError(
            f"the name {quoted(name)} is an absolute path; names in data must be relative to {_shown(root)}. {_PERMIT}"
        )
    if not os.path.isabs(name) and _leads_out(name, remote):
        raise ValueError(f"the name {quoted(name)} leads out of {_shown(root)}. {_PERMIT}")


def check_names(names: list[str], root: str, storage: Storage, *, absolute: bool) -> None:
    """Checks many names as `check_name` does. The message begins with the number of the name."""
    find = (_IMPOSSIBLE if storage.allow_outside else _SUSPICIOUS).search
    for i, name in enumerate(names):
        if len(name) > _LONGEST or find(name):  # very few names
            try:
                check_name(name, root, storage, absolute=absolute)
            except ValueError as e:
                raise ValueError(f"entry {i}: {e}") from None


def normal(name: str) -> str:
    """A name without ``..``. After a symbolic link to a directory, ``..`` would lead to another folder than the name
    says.
    """
    parts = name.split("/")
    if ".." not in parts or ".." == parts[0] or is_url(name):  # other names may lead outside
        return name
    return os.path.normpath(name)


def _leads_out(name: str, remote: bool) -> bool:
    """Whether ``..`` leads above the root. Servers may decode percent signs repeatedly, and take backslashes for
    slashes.
    """
    if remote:
        while (decoded := unquote(name)) != name:
            name = decoded
        name = re.sub(r"[\x00-\x1f\x7f]", "", name).replace("\\", "/")  # URL libraries drop control characters
    depth = 0
    for part in name.split("/"):
        part = part.split(";")[0].strip() if remote else part  # some servers treat ..;x as ..
        # "" and "." stay in the same folder.
        depth += -1 if part == ".." else part not in ("", ".")
        if depth < 0:
            return True
    return False


def _shown(root: str) -> str:
    return root or "the current directory"
