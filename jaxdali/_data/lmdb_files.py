"""LMDB databases: their keys, and values that remain in the mapped file."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np

from .storage import Path, is_url, plain

_open: weakref.WeakValueDictionary[str, Lmdb] = weakref.WeakValueDictionary()
_lock = threading.Lock()  # guards `_open`: the package refuses to open a database twice


class Lmdb:
    """A database that is opened for reading. A process may open a database only once: see `open_lmdb`.

    Attributes:
      path: as given by the user.
      ends: ``i64[n]``, where each key ends in `keys`.
    """

    def __init__(self, path: Path):
        try:
            import lmdb
        except ImportError:
            raise RuntimeError(
                'LMDB databases are read with the package lmdb, which is not installed: pip install "jaxdali[containers]"'
            ) from None
        self.path = os.fspath(path)
        self._file = self.path if os.path.isfile(self.path) else os.path.join(self.path, "data.mdb")
        try:
            self._stamp = _stamp(self._file)
            self._env = lmdb.open(
                self.path, subdir=self._file != self.path, readonly=True, lock=False, max_readers=1 << 10
            )
            used = (self._env.info()["last_pgno"] + 1) * self._env.stat()["psize"]
            if self._stamp[0] < used:
                raise RuntimeError(
                    f"{self._file} is truncated: it has {self._stamp[0]} bytes, of which {used} are in use"
                )
            with self._env.begin() as txn, txn.cursor() as cursor:
                keys = list(cursor.iternext(keys=True, values=False))
        except lmdb.Error as e:
            raise RuntimeError(f"can't open the LMDB database {self.path}: {e}") from e
        except OSError as e:
            raise RuntimeError(f"can't open the LMDB database {self.path}: {e.strerror}") from None
        if not keys:
            raise RuntimeError(f"the LMDB database {self.path} is empty")
        self.ends = np.cumsum(np.fromiter(map(len, keys), np.int64, len(keys)))
        self.keys = b"".join(keys)

    def __len__(self) -> int:
        return len(self.ends)

    def key(self, i: int) -> bytes:
        """The key of record `i`."""
        return self.keys[self.ends[i - 1] if i else 0 : self.ends[i]]

    @contextlib.contextmanager
    def values(self, index: np.ndarray) -> Iterator[list[Any]]:
        """The values of records, in the mapped file, valid inside the context. None for a key that is gone.

        Raises:
          OSError: the file has changed since it was opened.
        """
        stamp = _stamp(self._file)
        if stamp != self._stamp:  # reading beyond the end of a mapped file that was truncated would end the process
            raise OSError(0, "the file has changed since the pipeline was built", self._file)
        with self._env.begin(buffers=True) as txn:
            keys, get = self.keys, txn.get
            ends = self.ends[index].tolist()
            begins = np.where(index > 0, self.ends[index - 1], 0).tolist()
            yield [get(keys[begin:end]) for begin, end in zip(begins, ends)]


def _stamp(path: str) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns


def open_lmdb(path: Path) -> Lmdb:
    """The database at a path. Raises RuntimeError if there is none, or it is truncated."""
    path = plain(path)
    if is_url(path):
        raise RuntimeError(
            f"LMDB databases are mapped files: {path} must be copied here first, or its records to another container"
        )
    place = os.path.realpath(path)
    with _lock:
        found = _open.get(place)
        if found is None or _stamp(found._file) != found._stamp:
            found = _open[place] = Lmdb(path)
        return found
