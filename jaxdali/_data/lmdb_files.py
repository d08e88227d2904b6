"""LMDB databases: their keys, and values that remain in the mapped file."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np

from .urls import Path, is_url, plain

_open: weakref.WeakValueDictionary[str, Lmdb] = weakref.WeakValueDictionary()
_lock = threading.Lock()  # guards `_open`: the package refuses to open a database twice


class Lmdb:
    """A database that is opened for reading. A process may open a database only once, so `open_lmdb` makes these.

    Attributes:
      path: the user's path.
      keys: all keys, one after another.
      ends: ``i64[n]``, the end of each key in `keys`.
    """

    def __init__(self, path: Path):
        """Opens the database and reads all keys. Raises RuntimeError if it can't be read, is truncated or empty."""
        try:
            import lmdb
        except ImportError:
            raise RuntimeError(
                'LMDB databases are read with the package lmdb, which is not installed: pip install "jaxdali[containers]"'
            ) from None
        self.path = os.fspath(path)
        # A database is a file, or a folder with this file.
        self._file = self.path if os.path.isfile(self.path) else os.path.join(self.path, "data.mdb")
        try:
            self._stamp = _stamp(self._file)
            self._env = lmdb.open(
                self.path, subdir=self._file != self.path, readonly=True, lock=False, max_readers=1 << 10
            )
            # Pages up to the last one that is used, times the size of a page. The stamp begins with the file's size.
            size_in_use = (self._env.info()["last_pgno"] + 1) * self._env.stat()["psize"]
            if self._stamp[0] < size_in_use:
                raise RuntimeError(
                    f"{self._file} is truncated: it has {self._stamp[0]} bytes, of which {size_in_use} are in use"
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
        """The values of records as views of the mapped file, valid inside the context; None for a key that is gone.

        Raises:
          OSError: the file has changed since it was opened.
        """
        stamp = _stamp(self._file)
        # If a mapped file was truncated, reading beyond its end would kill the process by SIGBUS.
        if stamp != self._stamp:
            raise OSError(0, "the file has changed since the pipeline was built", self._file)
        with self._env.begin(buffers=True) as txn:
            keys, get = self.keys, txn.get
            ends = self.ends[index].tolist()
            begins = np.where(index > 0, self.ends[index - 1], 0).tolist()
            yield [get(keys[begin:end]) for begin, end in zip(begins, ends)]


def _stamp(path: str) -> tuple[int, int]:
    """Size and modification time of a file, to notice changes."""
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns


def open_lmdb(path: Path) -> Lmdb:
    """The database at a path, opened once in this process. Raises RuntimeError if there is none, or it is truncated."""
    path = plain(path)
    if is_url(path):
        raise RuntimeError(
            f"LMDB databases are mapped files: {path} must be copied here first, or its records to another container"
        )
    real_path = os.path.realpath(path)
    with _lock:
        database = _open.get(real_path)
        if database is None or _stamp(database._file) != database._stamp:  # the file has changed
            database = _open[real_path] = Lmdb(path)
        return database
