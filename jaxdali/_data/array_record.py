"""ArrayRecord files: Riegeli's chunks, with a table of them at the end. Read by position, local or remote, without the package.

A file is cut into blocks of 64 KB that begin with a header of 24 bytes, wherever a chunk happens to be; *logical* positions don't count
these. A chunk is a header of 40 bytes and the sizes and values of its records, each compressed by themselves. The header has checksums of
itself and of what follows.
"""

from __future__ import annotations

import dataclasses
import struct
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

from .. import _cpu
from .._core.context import HostContext
from .._cpu import CHUNK_HEADER, ChunkError, Status
from .files import Files
from .ranges import Ranges, why
from .storage import Range

BLOCK, BLOCK_HEADER = 1 << 16, 24
_INSIDE = BLOCK - BLOCK_HEADER
_MAGIC = 0x71930E704FDAE05E  # of the postscript
_threads = threading.local()  # a decompressor for each
_WRONG = {
    ChunkError.HEADER_UNREAD: "its chunk's header can't be read",
    ChunkError.HEADER_HASH: "the checksum of its chunk's header is wrong",
    ChunkError.OTHER_CHUNK: "there is no chunk of one record of this size: the file's table, or the file, is damaged",
    ChunkError.DATA_HASH: "its checksum is wrong",
}
_AT_ONCE = 1 << 18  # entries of a table that are parsed at once


def logical(position: Any) -> Any:
    """Of a position in the file."""
    return position // BLOCK * _INSIDE + np.maximum(position % BLOCK - BLOCK_HEADER, 0)


def physical(position: Any) -> Any:
    """Where in the file a logical position is."""
    return position // _INSIDE * BLOCK + BLOCK_HEADER + position % _INSIDE


class BlockedRanges(Ranges):
    """Ranges by their logical positions.

    Args:
      files: with sizes; file: ``i64[N]``, which of them each is in.
      start, size: ``i64[N]``, logical.
    """

    def __init__(self, files: Files, file: np.ndarray, start: np.ndarray, size: np.ndarray):
        first = physical(start)
        super().__init__(files, file, first, np.where(size > 0, physical(start + size - 1) + 1 - first, 0))
        self._span, self.size = (
            self.size,
            np.asarray(size, np.min_scalar_type(int(size.max(initial=0)))),
        )  # in the file, and without headers

    def _range(self, i: int) -> Range:
        return Range(self.files.path(int(self.file[i])), int(self.start[i]), int(self._span[i]))

    def read(self, i: int) -> bytes:
        return joined(super().read(i), int(self.start[i]))

    def read_to(self, ctx: HostContext, index: np.ndarray, data: np.ndarray, places: np.ndarray, sizes: np.ndarray, first: int):
        if self.files.remote:
            super().read_to(ctx, index, data, places, sizes, first)
            return
        error = self._read_logical(index, logical(self.start[index].astype(np.int64)), sizes, data, places, ctx.pool)
        for k in np.flatnonzero(error).tolist():
            ctx.fail(first + k, Status.READ_ERROR, f"{self.name(int(index[k]))}: {why(int(error[k]))}")

    def _read_logical(
        self, index: np.ndarray, begin: np.ndarray, sizes: np.ndarray, data: np.ndarray, places: np.ndarray, pool: int
    ) -> np.ndarray:
        """Reads from the files of ranges what is at logical positions, to its places; an error for each, as of `_cpu.read_ranges`."""
        error = np.empty(len(index), np.int32)
        file = self.file[index].astype(np.int64)
        _cpu.read_blocked(self.files.table, file, begin, data, places, sizes, self._file_sizes, error, pool)
        return error


class PlainRecords(BlockedRanges):
    """The only records of chunks, which lie in local files as they are. The checksums of a chunk are checked when it is read first.

    Args:
      files, file: as above.
      chunk: ``i64[N]``, logical, where each chunk begins.
      size: ``i64[N]``, of its record.
    """

    def __init__(self, files: Files, file: np.ndarray, chunk: np.ndarray, size: np.ndarray):
        # Header, kind of compression, the number of bytes of the size (one byte), the size, then the record.
        self._head = np.full(len(size), CHUNK_HEADER + 3, np.uint8)
        for bits in range(7, 63, 7):
            self._head[size >= 1 << bits] += 1
        super().__init__(files, file, chunk + self._head, size)
        self._checked = np.zeros(len(size), bool)

    def read_to(self, ctx: HostContext, index: np.ndarray, data: np.ndarray, places: np.ndarray, sizes: np.ndarray, first: int):
        failed = set[int]()

        def fail(i: int, code: int, reason: str = ""):
            failed.add(i)
            ctx.fail(i, code, reason)

        super().read_to(dataclasses.replace(ctx, fail=fail), index, data, places, sizes, first)
        new = np.flatnonzero(~self._checked[index])
        new = new[[first + k not in failed for k in new.tolist()]] if failed else new
        if not len(new):
            return
        chunks, head = index[new], self._head[index[new]].astype(np.int64)
        heads = np.zeros((len(new), CHUNK_HEADER + 16), np.uint8)
        at = logical(self.start[chunks].astype(np.int64)) - head
        error = self._read_logical(chunks, at, head, heads.reshape(-1), np.arange(len(new)) * heads.shape[1], ctx.pool)
        error = np.where(error != 0, ChunkError.HEADER_UNREAD, ChunkError.NONE).astype(np.int32)
        _cpu.check_chunks(heads, head, data, places[new], sizes[new], error, ctx.pool)
        for k in np.flatnonzero(error).tolist():
            ctx.fail(first + int(new[k]), Status.READ_ERROR, f"{self.name(int(chunks[k]))}: {_WRONG[ChunkError(error[k])]}")
        self._checked[chunks[error == ChunkError.NONE]] = True


def joined(data: bytes, start: int) -> bytes:
    """Bytes from `start` of a file on without the headers of blocks."""
    if start % BLOCK >= BLOCK_HEADER and start % BLOCK + len(data) <= BLOCK:
        return data
    parts, at = [], 0
    while at < len(data):
        skip = max(BLOCK_HEADER - (start + at) % BLOCK, 0)
        until = at + BLOCK - (start + at) % BLOCK
        parts.append(data[at + skip : until])
        at = until
    return b"".join(parts)


def records_of(chunk: bytes) -> list[memoryview]:
    """The records of a chunk, given from its header on.

    Raises:
      ValueError: it is damaged, or of a kind that is not read.
    """
    sizes, values = _sizes_and_values(chunk)
    return [values[end - n : end] for end, n in zip(np.cumsum(sizes).tolist(), sizes.tolist())]


def only_record_of(chunk: memoryview) -> memoryview:
    """The record of a chunk that has one: what `records_of` returns, in less time."""
    if len(chunk) < CHUNK_HEADER + 2:
        raise ValueError(f"a chunk of {len(chunk)} bytes has no record")
    data, kind, decoded = _checked_data(chunk)
    if kind != ord("r") | 1 << 8:
        raise ValueError(f"a chunk of one record was expected, its kind is {kind}")
    length, at = _varint(data, 1)
    record = _plain(data[0], data[at + length :])
    if len(record) != decoded:
        raise ValueError(f"a chunk's record has {len(record)} bytes, {decoded} were expected")
    return record


def _checked_data(chunk: memoryview) -> tuple[memoryview, int, int]:
    """What follows a chunk's header, its kind and number of records, and its bytes when decompressed."""
    check, size, data_check, kind, decoded = struct.unpack_from("<QQQQQ", chunk)
    if check != _cpu.highway_hash(np.frombuffer(chunk[8:CHUNK_HEADER], np.uint8)):
        raise ValueError("the checksum of a chunk's header is wrong")
    data = chunk[CHUNK_HEADER : CHUNK_HEADER + size]
    if len(data) < size or not size:
        raise ValueError(f"a chunk of {size} bytes is cut off after {len(data)}")
    if data_check != _cpu.highway_hash(np.frombuffer(data, np.uint8)):
        raise ValueError("the checksum of a chunk is wrong")
    return data, kind, decoded


def _sizes_and_values(chunk: bytes) -> tuple[np.ndarray, memoryview]:
    if len(chunk) < CHUNK_HEADER:
        raise ValueError(f"a chunk of {len(chunk)} bytes has no header")
    data, kind, decoded = _checked_data(memoryview(chunk))
    number = kind >> 8
    if kind & 255 != ord("r"):
        raise ValueError(f"a chunk is of the kind {chr(kind & 255)!r}, which is not read")
    length, at = _varint(data, 1)
    if length > len(data) - at:
        raise ValueError(f"the sizes of a chunk's records would take {length} of its {len(data)} bytes")
    sizes = _varints(_plain(data[0], data[at : at + length]))
    values = _plain(data[0], data[at + length :])
    if len(sizes) != number or int(sizes.sum()) != len(values) or len(values) != decoded:
        raise ValueError(f"a chunk of {number} records and {decoded} bytes has {len(sizes)} records and {len(values)} bytes")
    return sizes, values


def chunk_table(files: Files, i: int) -> tuple[np.ndarray, int, bool]:
    """The chunks of a file.

    Returns:
      (``i64[n, 3]``: place in the file, bytes of its records, number of its records; where the last one ends;
      whether the records lie in the file as they are).

    Raises:
      ValueError: it is no ArrayRecord file, or a damaged one.
    """
    assert files.sizes is not None
    size = files.sizes[i]
    if size < BLOCK or size % BLOCK:
        raise ValueError(f"it has {size} bytes: it is no ArrayRecord file, or cut off (these are multiples of {BLOCK} bytes)")
    (postscript, *_) = records_of(_logical_bytes(files, i, size - BLOCK, size))
    fields = dict(_fields(postscript))
    if fields.get(2) != _MAGIC:
        raise ValueError("it is no ArrayRecord file: there is no postscript in its last 64 KB")
    footer = fields.get(1, 0)
    head = _logical_bytes(files, i, footer, min(footer + 2 * CHUNK_HEADER + BLOCK_HEADER, size))
    (length,) = struct.unpack_from("<Q", head, 8)
    end = int(physical(logical(footer) + CHUNK_HEADER + length))
    sizes, values = _sizes_and_values(_logical_bytes(files, i, footer, min(end, size)))
    options = dict(_fields(dict(_fields(values[: sizes[0]]))[1]))[4].tobytes().decode("utf-8", "replace")
    if "transpose:true" in options:
        raise ValueError("it was written with transpose:true, which is not read")
    table = _entries(sizes[1:], values[sizes[0] :])
    places = table[:, 0]
    if len(table) and not (places[0] > 0 and places[-1] < footer and (np.diff(places) > 0).all() and (table >= 0).all()):
        raise ValueError("the table of its chunks is damaged")
    return table, footer, "uncompressed" in options


def _logical_bytes(files: Files, i: int, start: int, end: int) -> bytes:
    return joined(files.store.read(files.path(i), start, end - start), start)


def _entries(sizes: np.ndarray, data: memoryview) -> np.ndarray:
    """Messages {1: place, 2: bytes, 3: records} of these sizes, as ``i64[n, 3]``: they may be millions."""
    table = np.zeros((len(sizes), 3), np.int64)
    begin = 0
    for first in range(0, len(sizes), _AT_ONCE):
        count = sizes[first : first + _AT_ONCE].astype(np.int64)
        pairs = _varints(data[begin : (begin := begin + int(count.sum()))]).reshape(-1, 2)  # tag and number
        row = np.cumsum(pairs[:, 0] == 8) - 1 + first  # each begins with its place, which is never 0
        if not len(pairs) or pairs[0, 0] != 8 or row[-1] != first + len(count) - 1:
            raise ValueError("the table of its chunks is damaged")
        for k in range(3):
            here = pairs[:, 0] == 8 * (k + 1)
            table[row[here], k] = pairs[here, 1]
    return table


def _varints(data: Any) -> np.ndarray:
    """Numbers one after another, ``i64[n]``."""
    raw, found = np.frombuffer(data, np.uint8), [np.zeros(0, np.int64)]
    if len(raw) and raw[-1] >= 128:
        raise ValueError("a number is damaged")
    begin = 0
    while begin < len(raw):
        ends = np.flatnonzero(raw[begin : begin + 16 * _AT_ONCE] < 128)
        if not len(ends):
            raise ValueError("a number is damaged")
        part = raw[begin : begin + int(ends[-1]) + 1]
        starts = np.append(0, ends[:-1] + 1)
        shift = 7 * (np.arange(len(part), dtype=np.int64) - np.repeat(starts, ends - starts + 1))
        if shift.max() > 63:
            raise ValueError("a number is damaged")
        found.append(np.add.reduceat((part & 127).astype(np.int64) << shift, starts))
        begin += len(part)
    return np.concatenate(found)


def _plain(compression: int, data: memoryview) -> memoryview:
    if compression == 0:
        return data
    if compression != ord("z"):
        name = {ord("b"): "Brotli", ord("s"): "Snappy"}.get(compression, f"method {compression}")
        raise ValueError(f"a chunk is compressed by {name}; zstd and none are read")
    size, at = _varint(data, 0)
    try:
        import zstandard
    except ImportError as e:
        raise ImportError('zstd of ArrayRecord files needs zstandard: pip install "jaxdali[array_record]"') from e
    _threads.zstd = decompressor = getattr(_threads, "zstd", None) or zstandard.ZstdDecompressor()
    try:
        return memoryview(decompressor.decompress(data[at:], max_output_size=size))
    except zstandard.ZstdError as e:
        raise ValueError(f"a chunk can't be decompressed: {e}") from e


def _varint(data: Any, at: int) -> tuple[int, int]:
    """A number and the position behind it."""
    x = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ValueError("a number is damaged")
        byte = data[at]
        x |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return x, at


def _fields(message: Any) -> Iterator[tuple[int, Any]]:
    """(number, integer or bytes) of each field of a message of integers, texts and messages."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        x, at = _varint(message, at)
        if tag & 7 == 2:
            yield tag >> 3, memoryview(message)[at : at + x]
            at += x
        else:
            yield tag >> 3, x
