"""A directory of limited size that keeps what was fetched; processes may share it."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import pathlib
import re
import struct
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

from .. import _cpu
from .._core.errors import ArgumentError

_FOLDER = "jaxdali-cache"
_TAG = "CACHEDIR.TAG"  # a folder with it is a cache that we made, see https://bford.info/cachedir
_TAG_TEXT = b"Signature: 8a477f597d28d172789f06886806bc55\n# A cache of jaxdali: what it fetched. It may be deleted.\n"
_NEW = ".new-"  # files in the making
_ROOM = 0.1  # of the limit is made free at once, so that the directory is searched rarely
_MAGIC = b"jaxdali1"
_HEADER = struct.Struct("<8s32sqI")  # magic, digest of the key, bytes, their CRC-32C


class DiskCache:
    """Bytes by key, each a file; those not used for the longest time are removed where the limit would be passed.

    A file appears under its name when it is whole, so readers need no lock. Writers share one: of the file ``.total``, which tells how
    many bytes there are. A file says whose it is, how long, and its checksum: one that is damaged is removed, as if it had not been there.

    Args:
      directory: in it the cache makes a folder of its own, and removes nothing but files of its own in that.
      limit: bytes of all files together.
      damaged: is called for each file that was found damaged, in any thread.

    Attributes:
      folder: that of the cache's own.
    """

    def __init__(self, directory: str, limit: int, damaged: Callable[[], None] = lambda: None):
        self._limit, self._damaged = limit, damaged
        self.folder = pathlib.Path(directory, _FOLDER)
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        if not self.folder.exists():
            self._make()
        if self.folder.exists() and not (self.folder / _TAG).is_file():
            raise ArgumentError(f"Storage: cache_dir={directory!r} has a folder {_FOLDER} that jaxdali did not make: it has no file {_TAG}")

    def _make(self):
        """With its mark in it from the first moment on: another process may look. On a disk that can't be written there is no cache."""
        made = self.folder.with_name(f".{_FOLDER}-{os.urandom(8).hex()}")
        with contextlib.suppress(OSError):
            made.mkdir()
            (made / _TAG).write_bytes(_TAG_TEXT)
            made.rename(self.folder)
            return
        with contextlib.suppress(OSError):  # another process was faster
            (made / _TAG).unlink(missing_ok=True)
            made.rmdir()

    def get(self, key: Any, size: int | None = None) -> bytes | None:
        """What was put there; None: it is not there, or not any more, or was damaged or not of `size` bytes, and is removed."""
        path = self._path(key)
        try:
            data = path.read_bytes()
            os.utime(path)  # its last use
        except OSError:
            return None
        if len(data) >= _HEADER.size:
            magic, owner, length, checksum = _HEADER.unpack_from(data)
            content = data[_HEADER.size :]
            right = (magic, owner, length) == (_MAGIC, _digest(key), len(content)) and size in (None, length)
            if right and checksum == _cpu.crc32c(content):
                return content
        with contextlib.suppress(OSError):
            path.unlink()  # what .total says is too much then, and is found out when there is no room
        self._damaged()
        return None

    def put(self, key: Any, data: bytes) -> None:
        """Keeps `data`. What can't be kept, as it is too large or the disk is full, is not."""
        size = _HEADER.size + len(data)
        if size > self._limit * (1 - _ROOM):
            return
        path = self._path(key)
        with contextlib.suppress(OSError), self._locked() as total:
            if path.exists():  # another process was faster
                return
            text = total.read()
            have = int(text) if re.fullmatch(rb"\d{1,18}", text) else -1
            if have < 0 or have + size > self._limit:  # damaged, or there is no room
                have = self._shrink(int(self._limit * (1 - _ROOM)) - size)
            total.seek(0)
            total.truncate()
            total.write(b"%d" % (have + size))
            total.flush()  # before the file is there: whoever is killed in between leaves a total that is too high, not too low
            path.parent.mkdir(exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self.folder, prefix=_NEW, delete=False) as f:
                try:
                    f.write(_HEADER.pack(_MAGIC, _digest(key), len(data), _cpu.crc32c(data)))
                    f.write(data)
                    f.flush()
                    os.replace(f.name, path)
                except OSError:
                    os.unlink(f.name)
                    raise

    def _path(self, key: Any) -> pathlib.Path:
        digest = _digest(key).hex()
        return self.folder / digest[:2] / f"{digest[2:40]}.record"

    @contextlib.contextmanager
    def _locked(self) -> Iterator[Any]:
        with open(self.folder / ".total", "a+b") as f:
            fcntl.flock(f, fcntl.LOCK_EX)
            f.seek(0)
            yield f  # closing it unlocks it

    def _shrink(self, limit: int) -> int:
        """Removes the files that were used first until no more than `limit` bytes are left, which it returns.

        What a process that was killed left half written goes, too: with the lock held nobody is writing. What has no name of the cache's
        form is somebody else's, and stays.
        """
        for path in self.folder.glob(f"{_NEW}*"):
            path.unlink(missing_ok=True)
        files = []
        for folder in os.scandir(self.folder):
            if re.fullmatch("[0-9a-f]{2}", folder.name) and folder.is_dir(follow_symlinks=False):
                own = (e for e in os.scandir(folder.path) if re.fullmatch(r"[0-9a-f]{38}\.record", e.name))
                files += [(s.st_mtime_ns, s.st_size, e.path) for e in own if e.is_file(follow_symlinks=False) for s in [e.stat()]]
        total = sum(size for _, size, _ in files)
        for _, size, path in sorted(files):
            if total <= limit:
                break
            with contextlib.suppress(FileNotFoundError):  # one that was damaged is removed without the lock
                os.unlink(path)
            total -= size
        return total


def _digest(key: Any) -> bytes:
    return hashlib.sha256(repr(tuple(key)).encode("utf-8", "surrogateescape")).digest()
