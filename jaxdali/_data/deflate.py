"""Decompresses files of GZIP and ZLIB, from their beginning or from restart points in them."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

from .compression import WINDOW

# Compressed bytes that zlib takes at once. A restart point keeps those that are left of them.
_INPUT = 1 << 14
# The most bytes that one compressed byte can become: two bits, of which each may be a code, copy 258 bytes.
_EXPANSION = 1032


class RestartPoint(NamedTuple):
    """A place in a file from which it can be decompressed. It takes about 50 KB, most of them for the last 32 KB of
    decompressed data, which zlib keeps.

    Attributes:
      position: in the decompressed data.
      offset: in the file, of the next byte that `state` takes.
      state: zlib's object; None: a compressed stream begins here.
    """

    position: int = 0
    offset: int = 0
    state: Any = None


class Inflater:
    """The decompressed data of a file from a restart point on. A file may consist of several streams.

    Args:
      read: ``read(offset)`` returns the bytes of the file from an offset on, as many as it likes, but at least one. It
        may raise OSError.
      size: of the file in bytes.
      compression: "GZIP" or "ZLIB".
      point: the restart point.

    Attributes:
      position: in the decompressed data, of the byte that `read` returns next.
      offset: in the file, of the next byte to decompress.
    """

    def __init__(self, read: Callable[[int], bytes], size: int, compression: str, point: RestartPoint | None = None):
        point = point or RestartPoint()
        self.position, self.offset = point.position, point.offset
        self._state = None if point.state is None else point.state.copy()
        self._read, self._size, self._compression = read, size, compression
        self._chunk, self._chunk_offset = memoryview(b""), 0  # bytes of the file, and their place in it

    @property
    def longest(self) -> int:
        """An upper bound of the end of the decompressed data."""
        # zlib may hold a few bytes that it has taken and not decompressed.
        return self.position + _EXPANSION * (self._size - self.offset + 16)

    def point(self) -> RestartPoint:
        """The restart point at `position`."""
        return RestartPoint(self.position, self.offset, None if self._state is None else self._state.copy())

    def read(self, n: int) -> bytes:
        """The next `n` decompressed bytes; fewer at the end.

        Raises:
          OSError: the file can't be read.
          ValueError: it is damaged, or cut off.
        """
        parts = []
        while n > 0 and (state := self._state or self._begin_stream()) is not None:
            source = self._input()
            try:
                data = state.decompress(source, n)
            except zlib.error as e:
                reason = str(e).rpartition(": ")[2]  # "Error -3 while decompressing data: incorrect data check"
                if not self.position:
                    raise ValueError(f"it is not compressed by {self._compression}, or damaged ({reason})") from e
                raise ValueError(
                    f"its {self._compression} data are damaged after {self.position} decompressed bytes ({reason})"
                ) from e
            self.offset += len(source) - len(state.unused_data if state.eof else state.unconsumed_tail)
            self.position += len(data)
            n -= len(data)
            parts.append(data)
            if state.eof:
                self._state = None
            elif not source and not data:
                raise ValueError(
                    f"its {self._compression} data are cut off: they end after {self.position} decompressed bytes"
                )
        return b"".join(parts)

    def skip(self, end: int) -> None:
        """Drops data up to the position `end`. Raises the errors of `read`."""
        while self.position < end and self.read(min(end - self.position, 1 << 20)):
            pass

    def _begin_stream(self) -> Any:
        """Begins the next stream of the file. Returns zlib's object; None: there is none."""
        # Like gzip, this ignores zeros behind a stream.
        while (source := self._input()) and self.offset and not any(source):
            self.offset += len(source)
        if not source:
            return None
        if self.offset:
            self.offset += len(source) - len(bytes(source).lstrip(b"\0"))
        self._state = zlib.decompressobj(WINDOW[self._compression])
        return self._state

    def _input(self) -> memoryview:
        """Compressed bytes from `offset` on; none at the end of the file."""
        begin = self.offset - self._chunk_offset
        if not 0 <= begin < len(self._chunk) and self.offset < self._size:
            self._chunk, self._chunk_offset, begin = memoryview(self._read(self.offset)), self.offset, 0
        return self._chunk[begin : begin + _INPUT] if self.offset < self._size else memoryview(b"")
