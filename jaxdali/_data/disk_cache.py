"""A directory of limited size that keeps what was fetched; processes may share it."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import pathlib
import tempfile
from collections.abc import Iterator
from typing import Any

_ROOM = 0.1  # of the limit is made free at once, so that the directory is searched rarely


class DiskCache:
    """Bytes by key, each a file of the directory; those not used for the longest time are removed where the limit would be passed.

    A file appears under its name when it is whole, so readers need no lock. Writers share one: of the file ``.total``, which tells how
    many bytes there are.

    Args:
      directory: is made when it is missing.
      limit: bytes of all files together.
    """

    def __init__(self, directory: str, limit: int):
        self._directory = pathlib.Path(directory)
        self._limit = limit
        self._directory.mkdir(parents=True, exist_ok=True)

    def get(self, key: Any) -> bytes | None:
        """What was put there; None: it is not there, or not any more."""
        path = self._path(key)
        try:
            data = path.read_bytes()
            os.utime(path)  # its last use
        except OSError:
            return None
        return data

    def put(self, key: Any, data: bytes) -> None:
        """Keeps `data`. What can't be kept, as it is too large or the disk is full, is not."""
        if len(data) > self._limit * (1 - _ROOM):
            return
        path = self._path(key)
        with contextlib.suppress(OSError), self._locked() as total:
            if path.exists():  # another process was faster
                return
            have = int(total.read() or 0)
            if have + len(data) > self._limit:
                have = self._shrink(int(self._limit * (1 - _ROOM)) - len(data))
            total.seek(0)
            total.truncate()
            total.write(str(have + len(data)))
            total.flush()  # before the file is there: whoever is killed in between leaves a total that is too high, not too low
            path.parent.mkdir(exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self._directory, prefix=".new", delete=False) as f:
                try:
                    f.write(data)
                    f.flush()
                    os.replace(f.name, path)
                except OSError:
                    os.unlink(f.name)
                    raise

    def _path(self, key: Any) -> pathlib.Path:
        digest = hashlib.sha256(repr(tuple(key)).encode()).hexdigest()
        return self._directory / digest[:2] / digest[2:40]

    @contextlib.contextmanager
    def _locked(self) -> Iterator[Any]:
        with open(self._directory / ".total", "a+") as f:
            fcntl.flock(f, fcntl.LOCK_EX)
            f.seek(0)
            yield f  # closing it unlocks it

    def _shrink(self, limit: int) -> int:
        """Removes the files that were used first until no more than `limit` bytes are left, which it returns.

        What a process that was killed left half written goes, too: with the lock held nobody is writing.
        """
        for path in self._directory.glob(".new*"):
            path.unlink(missing_ok=True)
        files = []
        for folder in os.scandir(self._directory):
            if folder.is_dir():
                files += [(s.st_mtime_ns, s.st_size, e.path) for e in os.scandir(folder.path) for s in [e.stat()]]
        total = sum(size for _, size, _ in files)
        for _, size, path in sorted(files):
            if total <= limit:
                break
            os.unlink(path)
            total -= size
        return total
