"""Makes indices of containers that have none."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable

import numpy as np

from .. import _cpu
from .._core.writing import write_whole
from .compression import HEAD, WINDOW, compression_of, refusal
from .deflate import Inflater, RestartPoint
from .files import Path

_HEAD = 12  # bytes of a record before its data: their number (8), and its checksum (4)
_FRAME = 16  # these, and behind the data their checksum (4)
# The head of a record without data. Others that begin with zeros begin a hole of a sparse file.
_EMPTY_RECORD = bytes(8) + bytes.fromhex("29039807")
_AT_ONCE = 1 << 18  # decompressed bytes in which records are sought at a time

Progress = Callable[[int], object]  # is called with the number of bytes that were read since the last call


def tfrecord_extents(path: Path, progress: Progress = lambda n: None) -> np.ndarray:
    """Offset and size of each record of a TFRecord file, ``i64[n, 2]``.

    Raises:
      RuntimeError: the file can't be read, or ends within a record.
    """
    extents: list[int] = []
    try:
        with open(path, "rb") as f:
            fd, size, offset = f.fileno(), os.fstat(f.fileno()).st_size, 0
            while offset < size:
                num_bytes = _record_size(os.pread(fd, _HEAD, offset), path, extents, offset, size)
                extents += offset, num_bytes
                offset += num_bytes
                progress(num_bytes)
    except OSError as e:
        raise RuntimeError(f"can't read {os.fspath(path)}: {e.strerror}") from None
    return np.array(extents, np.int64).reshape(-1, 2)


def _record_size(head: bytes, path: Path, extents: list[int], offset: int, end: int) -> int:
    """The size of a record by its head, with its frame. Raises RuntimeError if it can't be right.

    Args:
      path: of the file, for messages.
      extents: offsets and sizes of the records before.
      offset: of the record.
      end: of the file.
    """
    num_bytes = int.from_bytes(head[:8], "little") + _FRAME
    if num_bytes == _FRAME and len(head) == _HEAD and head != _EMPTY_RECORD:
        raise RuntimeError(
            f"{os.fspath(path)}: record {len(extents) // 2} at index {offset} has no data, and no checksum of that: "
            "the file is damaged, or not a TFRecord file"
        )
    if len(head) < _HEAD or num_bytes > end - offset:
        raise RuntimeError(
            f"{os.fspath(path)}: record {len(extents) // 2} at index {offset} would have {num_bytes} bytes, but the file ends "
            f"{end - offset} bytes later: it is truncated, damaged, or not a TFRecord file"
        )
    return num_bytes


def compressed_extents(
    path: Path,
    compression: str,
    keep: Callable[[RestartPoint], int] = lambda point: 1 << 62,
    progress: Progress = lambda n: None,
) -> np.ndarray:
    """Offset and size of each record of a compressed TFRecord file, in the decompressed data, ``i64[n, 2]``.

    Args:
      path: of the file.
      compression: "GZIP" or "ZLIB".
      keep: is called with restart points where records begin, at first with that of the first record. It returns a step
        in bytes: the next point is that of the first record at or behind a multiple of it.

    Raises:
      RuntimeError: the file can't be read, is damaged, or ends within a record.
    """
    try:
        with open(path, "rb") as f:
            fd = f.fileno()
            inflater = Inflater(lambda offset: os.pread(fd, _AT_ONCE, offset), os.fstat(fd).st_size, compression)
            return _inflated_extents(inflater, path, keep, progress)
    except OSError as e:
        raise RuntimeError(f"can't read {os.fspath(path)}: {e.strerror}") from None
    except ValueError as e:
        raise RuntimeError(f"{os.fspath(path)}: {e}") from e


def _inflated_extents(
    inflater: Inflater, path: Path, keep: Callable[[RestartPoint], int], progress: Progress
) -> np.ndarray:
    """See `compressed_extents`. Raises the errors of `Inflater.read`, too."""
    extents: list[int] = []
    begin, head, size = 0, b"", 0  # of a record; the size is 0 until its head is complete
    step = keep(inflater.point())
    next_point = step
    while True:
        # Decompresses to the place where a restart point is needed. If no record begins there, then to the end of the
        # record, or of its head.
        remaining = next_point - inflater.position
        if remaining <= 0:
            remaining = begin + size - inflater.position if size else _HEAD - len(head)
        position, offset = inflater.position, inflater.offset
        data = inflater.read(min(remaining, _AT_ONCE))
        progress(inflater.offset - offset)
        if not data:
            break
        k = 0  # of a byte in `data`
        while k < len(data):
            if not size:
                missing = _HEAD - len(head)
                head += data[k : k + missing]
                k += missing
                if len(head) < _HEAD:
                    break
                size = _record_size(head, path, extents, begin, inflater.longest)
            k = begin + size - position
            if k <= len(data):
                extents += begin, size
                begin, head, size = begin + size, b"", 0
        if begin == inflater.position >= next_point:
            step = keep(inflater.point())
            next_point = (begin // step + 1) * step
    if head:  # of a record that is cut off
        _record_size(head, path, extents, begin, inflater.position)
    return np.array(extents, np.int64).reshape(-1, 2)


def write_index(path: Path, index: Path, progress: Progress = lambda n: None) -> int:
    """Writes the index of a TFRecord file or a tar archive like DALI's tfrecord2idx and wds2idx (v1.2). The index of a
    compressed TFRecord file is that of the decompressed one. Returns the number of records.

    Raises:
      RuntimeError: the file can't be read, or the index can't be written. The former index stays.
    """
    try:
        with open(path, "rb") as f:
            head = f.read(HEAD)
    except OSError as e:
        raise RuntimeError(f"can't read {os.fspath(path)}: {e.strerror}") from None
    compression = compression_of(head)
    inflated = zlib.decompressobj(WINDOW[compression]).decompress(head, HEAD) if compression in WINDOW else b""
    if compression and (not inflated or inflated[257:262] == b"ustar"):
        raise RuntimeError(f"{os.fspath(path)}: {refusal(compression)}")
    if head[257:262] == b"ustar":  # the magic bytes of a tar header
        lines, count, error = _cpu.tar_index(os.fsencode(path), progress)
        if error:
            raise RuntimeError(f"{os.fspath(path)}{error}")
        text = b"v1.2 %d\n" % count + lines
    else:
        table = (
            compressed_extents(path, compression, progress=progress)
            if compression
            else tfrecord_extents(path, progress)
        )
        extents = table.tolist()
        text, count = b"".join(b"%d %d\n" % (offset, size) for offset, size in extents), len(extents)
    try:
        write_whole(index, text)
    except OSError as e:
        raise RuntimeError(f"can't write {os.fspath(index)}: {e.strerror}") from None
    return count
