"""A cache of limited size on disk, for what was fetched or took long to compute. Several processes may share it."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import pathlib
import re
import struct
from collections.abc import Callable, Iterator
from typing import Any

from .. import _cpu
from .._core.errors import ArgumentError

_FOLDER = "jaxdali-cache"
_TAG = "CACHEDIR.TAG"  # marks a folder as a cache that jaxdali made, see https://bford.info/cachedir
_TAG_TEXT = b"Signature: 8a477f597d28d172789f06886806bc55\n# A cache of jaxdali: what it fetched. It may be deleted.\n"
_NEW = ".new-"  # prefix of files that are being written
_ROOM = 0.1  # the part of the limit that is freed at a time, so that the directory is rarely searched
_MAGIC = b"jaxdali1"
_HEADER = struct.Struct("<8s32sqI")  # magic, digest of the key, size, CRC-32C


class DiskCache:
    """Bytes by key, one file for each. The least recently used files are removed when the limit would be exceeded.

    A file gets its name only when it is complete, so readers need no lock. Writers lock the file ``.total``, which
    holds the total size. The header of a file has its key, length and checksum. A damaged file is removed, and treated
    as missing. A cache that this process can't write serves what it has.

    Args:
      directory: the cache makes its own folder in it, and removes only its own files there.
      limit: total size of all files in bytes.
      damaged: is called for each damaged file, in any thread.

    Attributes:
      folder: the cache's own folder.
    """

    def __init__(self, directory: str, limit: int, damaged: Callable[[], None] = lambda: None):
        """Makes the folder if there is none. Raises ArgumentError if there is one that jaxdali did not make."""
        self._limit, self._damaged = limit, damaged
        self.folder = pathlib.Path(directory, _FOLDER)
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        if not self.folder.exists():
            self._make_folder()
        if self.folder.exists() and not (self.folder / _TAG).is_file():
            raise ArgumentError(
                f"Storage: cache_dir={directory!r} has a folder {_FOLDER} that jaxdali did not make: it has no file {_TAG}"
            )

    def _make_folder(self):
        """Makes the folder under another name, and renames it when it has its tag, since another process may look at
        any time. If the disk can't be written, there is no cache.
        """
        temporary = self.folder.with_name(f".{_FOLDER}-{os.urandom(8).hex()}")
        with contextlib.suppress(OSError):
            temporary.mkdir()
            (temporary / _TAG).write_bytes(_TAG_TEXT)
            temporary.rename(self.folder)
            return
        with contextlib.suppress(OSError):  # another process was faster
            (temporary / _TAG).unlink(missing_ok=True)
            temporary.rmdir()

    def get(self, key: Any, size: int | None = None) -> bytes | None:
        """The data of a key; None if there are none. Data that are damaged, or do not have `size` bytes, are
        removed.
        """
        path = self._path(key)
        try:
            with open(path, "rb") as f:
                header, content_size = f.read(_HEADER.size), os.fstat(f.fileno()).st_size - _HEADER.size
                if len(header) == _HEADER.size:
                    *expected, checksum = _HEADER.unpack(header)
                    # The length is checked first, because a damaged file may have any size.
                    is_intact = expected == [_MAGIC, _digest(key), content_size] and size in (None, content_size)
                    if is_intact and checksum == _cpu.crc32c(content := f.read()):
                        with contextlib.suppress(OSError):  # the cache may belong to another user
                            os.utime(path)  # the time of the last use
                        return content
        except OSError:
            return None
        with contextlib.suppress(OSError):
            path.unlink()  # .total is too high then, which is corrected when the limit is reached
        self._damaged()
        return None

    def put(self, key: Any, data: bytes) -> None:
        """Stores `data`, unless they are too large or the disk is full."""
        size = _HEADER.size + len(data)
        if size > self._limit * (1 - _ROOM):
            return
        path = self._path(key)
        with contextlib.suppress(OSError), self._locked() as total:
            if path.exists():  # another process was faster
                return
            text = total.read(20)
            used = int(text) if re.fullmatch(rb"\d{1,18}", text) else -1
            if used < 0 or used + size > self._limit:  # the total is unknown, or the limit is reached
                used = self._shrink(int(self._limit * (1 - _ROOM)) - size)
            total.seek(0)
            total.truncate()
            total.write(b"%d" % (used + size))
            # Before the file: a process that is killed here leaves a total that is too high, never too low.
            total.flush()
            path.parent.mkdir(exist_ok=True)
            part = self.folder / f"{_NEW}{os.urandom(8).hex()}"
            try:
                with open(part, "xb") as f:
                    f.write(_HEADER.pack(_MAGIC, _digest(key), len(data), _cpu.crc32c(data)))
                    f.write(data)
                os.replace(part, path)
            except OSError:
                part.unlink(missing_ok=True)
                raise

    def _path(self, key: Any) -> pathlib.Path:
        """The file of a key: two digits of its digest name a sub-folder, the next ones the file."""
        digest = _digest(key).hex()
        return self.folder / digest[:2] / f"{digest[2:40]}.record"

    @contextlib.contextmanager
    def _locked(self) -> Iterator[Any]:
        """The open file ``.total``, at its beginning, locked against other writers."""
        with open(self.folder / ".total", "a+b") as f:
            fcntl.flock(f, fcntl.LOCK_EX)
            f.seek(0)
            yield f  # closing it unlocks it

    def _shrink(self, limit: int) -> int:
        """Removes the least recently used files until at most `limit` bytes are left. Returns the number of bytes left.

        It also removes partial files of processes that were killed: while the lock is held no one writes. Files with
        other names are not the cache's, and are kept.
        """
        for path in self.folder.glob(f"{_NEW}*"):
            path.unlink(missing_ok=True)
        files = []
        for folder in os.scandir(self.folder):
            if re.fullmatch("[0-9a-f]{2}", folder.name) and folder.is_dir(follow_symlinks=False):
                entries = (
                    entry for entry in os.scandir(folder.path) if re.fullmatch(r"[0-9a-f]{38}\.record", entry.name)
                )
                # The times of their last use come first, so that sorting brings the oldest to the front.
                files += [
                    (status.st_mtime_ns, status.st_size, entry.path)
                    for entry in entries
                    if entry.is_file(follow_symlinks=False)
                    for status in [entry.stat()]
                ]
        total = sum(size for _, size, _ in files)
        for _, size, path in sorted(files):
            if total <= limit:
                break
            with contextlib.suppress(FileNotFoundError):  # a damaged file is removed without the lock
                os.unlink(path)
            total -= size
        return total


def _digest(key: Any) -> bytes:
    return hashlib.sha256(repr(tuple(key)).encode("utf-8", "surrogateescape")).digest()
