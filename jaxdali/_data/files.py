"""Lists of files: in directories, or named in a text file."""

from __future__ import annotations

import fnmatch
import hashlib
import os
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import _cpu
from ..errors import ArgumentError

Path = str | os.PathLike[str]
Paths = Path | Sequence[Path]


class Files:
    """A list of files: names relative to `root` (or absolute).

    Attributes:
      digest: of the names; table: the same list for the native code.
    """

    def __init__(self, root: Path, names: Sequence[bytes]):
        self.root = os.fspath(root)
        self.names = names
        blob = b"".join(names)
        ends = np.cumsum(np.fromiter(map(len, names), np.int64, len(names)))
        self.table = _cpu.FileTable(os.fsencode(root), blob, ends)
        self.digest = hashlib.sha256(blob + ends.tobytes())

    def __len__(self) -> int:
        return len(self.names)

    def name(self, i: int) -> str:
        return os.fsdecode(self.names[i])

    def path(self, i: int) -> str:
        return os.path.join(self.root, self.name(i))


def as_list(x: Any) -> tuple[Any, ...]:
    """What one value or several of them were given for."""
    return x if isinstance(x, tuple) else (x,)


def check_which(file_root: Any, file_list: Any, files: Any):
    """Whether the arguments name one list of files."""
    if files is not None and file_list is not None:
        raise ArgumentError("files and file_list can't be given together; pass one of them")
    if files is None and file_list is None and file_root is None:
        raise ArgumentError("one of file_root, file_list and files must be given")
    if files == ():
        raise ArgumentError("files is empty")


def read_lines(path: Path) -> list[tuple[int, bytes]]:
    """Number and text of the lines of a file list that are not empty, without white space at their end."""
    try:
        with open(path, "rb") as f:
            lines = [(number, line.rstrip()) for number, line in enumerate(f.read().split(b"\n"), 1)]
    except OSError as e:
        raise RuntimeError(f"can't read file_list {path}: {e.strerror}") from e
    lines = [(number, line) for number, line in lines if line]
    if not lines:
        raise RuntimeError(f"file_list {path} names no files")
    return lines


def root_of(file_list: Path, file_root: Path | None) -> Path:
    """Where the relative paths in a file list start."""
    return os.path.dirname(os.path.abspath(file_list)) if file_root is None else file_root


def in_directories(
    root: Path, keep_file: Callable[[bytes], bool], keep_dir: Callable[[bytes], bool] = lambda name: True, own: bool = False
) -> list[list[bytes]]:
    """The files of each sub-directory of `root`, both in byte order; deeper levels are not entered.

    Args:
      own: whether the files of `root` itself come first, as those of a directory ``.``.
    """
    directory = os.fsencode(root)
    try:
        with os.scandir(directory) as entries:
            names = sorted(e.name for e in entries if e.is_dir() and keep_dir(e.name))
        found = []
        for name in [b"."] * own + names:
            with os.scandir(os.path.join(directory, name)) as entries:
                # A broken link is listed: reading it fails and names it, instead of the sample missing silently.
                kept = (e.name for e in entries if keep_file(e.name) and (e.is_file() or (e.is_symlink() and not e.is_dir())))
                found.append(sorted(name + b"/" + n for n in kept))
    except OSError as e:
        raise RuntimeError(f"can't list file_root {root}: {os.fsdecode(e.filename or root)}: {e.strerror}") from e
    return found


def matcher(patterns: Sequence[str], case_sensitive: bool) -> Callable[[bytes], bool]:
    """A test whether a file name matches one of the glob patterns."""
    encoded = [os.fsencode(p if case_sensitive else p.lower()) for p in patterns]
    fold = (lambda name: name) if case_sensitive else bytes.lower
    suffixes = tuple(p[1:] for p in encoded if p.startswith(b"*") and not re.search(rb"[*?\[]", p[1:]))
    if len(suffixes) == len(encoded):  # the usual case, and 10 times as fast as a regular expression
        return lambda name: fold(name).endswith(suffixes)
    expression = re.compile(b"|".join(b"(?:%s)" % fnmatch.translate(p.decode("latin-1")).encode("latin-1") for p in encoded))
    return lambda name: expression.match(fold(name)) is not None
