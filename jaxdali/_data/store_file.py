"""Files of a store, for libraries that read by position."""

from __future__ import annotations

import io
from typing import Any

from .storage import Store


class StoreFile(io.RawIOBase):
    """A file of a store, for libraries that read by position.

    Args:
      size: of the file in bytes.

    Attributes:
      fetched: bytes that were already fetched, by their position in the file. Reads use them.
    """

    def __init__(self, store: Store, path: str, size: int):
        self._store, self._path, self._size, self._position = store, path, size, 0
        self.fetched: dict[int, bytes] = {}

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        return self._position

    def tell(self) -> int:
        return self._position

    def size(self) -> int:
        return self._size

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def read(self, size: int | None = -1) -> bytes:
        """The next `size` bytes, or all up to the end (None or negative). Uses `fetched` if it has all of them."""
        remaining = max(self._size - self._position, 0)
        size = remaining if size is None or size < 0 else min(size, remaining)
        for begin, data in self.fetched.items():
            if begin <= self._position and self._position + size <= begin + len(data):
                result = data[self._position - begin : self._position - begin + size]
                break
        else:
            result = self._store.read(self._path, self._position, size) if size > 0 else b""
        self._position += len(result)
        return result
