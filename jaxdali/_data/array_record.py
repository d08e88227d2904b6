"""ArrayRecord files: Riegeli's chunks, with a table of them at the end. They are read by position, local or remote,
without the package.

A file is cut into blocks of 64 KB that begin with a header of 24 bytes, independently of the chunks; *logical*
positions do not count these headers. A chunk consists of a header of 40 bytes, then the sizes and the values of its
records, which are compressed separately. The header has checksums of itself and of what follows.
"""

from __future__ import annotations

import dataclasses
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import numpy as np

from .. import _cpu
from .._core.ragged import Packed
from .._cpu import CHUNK_HEADER, ChunkError
from .files import Files
from .ranges import Ranges, narrowed
from .storage import Storage

BLOCK, BLOCK_HEADER = 1 << 16, 24
_INSIDE = BLOCK - BLOCK_HEADER
_MAGIC = 0x71930E704FDAE05E  # the postscript's magic number
_threads = threading.local()  # one decompressor per thread
_WRONG = {
    ChunkError.HEADER_UNREAD: "its chunk's header can't be read",
    ChunkError.HEADER_HASH: "the checksum of its chunk's header is wrong",
    ChunkError.OTHER_CHUNK: "there is no chunk of one record of this size: the file's table, or the file, is damaged",
    ChunkError.DATA_HASH: "its checksum is wrong",
}
_WHOLE = {ord("b"): "Brotli", ord("s"): "Snappy"}  # these can only be decompressed as a whole
_SNAPPY_EXPANSION = 64  # maximum: an element of 2 bytes stands for at most 64
_DEFAULTS = Storage()
_AT_ONCE = 1 << 16  # numbers of a table that are parsed at a time
_PART = 1 << 22  # bytes of a table that are read at a time,
_PLAUSIBLE = 100  # up to this ratio of decompressed to compressed size, memory is allocated at once
_PIECE = 1 << 14  # and bytes that are decompressed at a time, which gives 512 MB at most


def logical(position: Any) -> Any:
    """The logical position of a position in the file."""
    return position // BLOCK * _INSIDE + np.maximum(position % BLOCK - BLOCK_HEADER, 0)


def physical(position: Any) -> Any:
    """The position in the file of a logical position."""
    return position // _INSIDE * BLOCK + BLOCK_HEADER + position % _INSIDE


class BlockedRanges(Ranges):
    """Ranges whose `start` and `size` are logical."""

    _read_packed = staticmethod(_cpu.read_packed_blocked)

    @staticmethod
    def _inside(start: np.ndarray, size: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        first = physical(start)
        return first, np.where(size > 0, physical(start + size - 1) + 1 - first, 0)

    def read(self, i: int) -> bytes:
        return joined(super().read(i), self._place(i)[0])


def record_begin(size: np.ndarray) -> np.ndarray:
    """Where in its chunk a record of `size` bytes begins, if it is the only one and not compressed, ``u8[n]``."""
    # The chunk's header, kind of compression, the number of bytes of the size (one byte), the size.
    begin = np.full(len(size), CHUNK_HEADER + 3, np.uint8)
    for bits in range(7, 8 * size.dtype.itemsize, 7):
        begin += size >= 1 << bits
    return begin


class PlainRecords(BlockedRanges):
    """Uncompressed records of local files, each alone in its chunk. The checksums of a chunk are checked when it is
    first read.

    Args:
      files, file: as above.
      start: ``i64[N]``, where each record begins: the start of its chunk plus `record_begin`.
      size: ``i64[N]``, sizes of the records.
    """

    def __init__(self, files: Files, file: np.ndarray, start: np.ndarray, size: np.ndarray):
        super().__init__(files, file, start, size)
        self._checked = np.zeros(len(size), bool)

    def read_to(self, index: np.ndarray, packed: Packed, first: int, pool: int) -> dict[int, str]:
        failed = super().read_to(index, packed, first, pool)
        checked = self._checked[index]
        if checked.all():
            return failed
        new = np.flatnonzero(~checked)
        new = new[[k not in failed for k in new.tolist()]] if failed else new
        chunks, samples = index[new], first + new
        head = record_begin(self.size[chunks]).astype(np.int64)
        heads = np.zeros((len(new), CHUNK_HEADER + 16), np.uint8)
        at, places = self.start[chunks].astype(np.int64) - head, np.arange(len(new)) * heads.shape[1]
        file = self.file[chunks].astype(np.int64)
        error = np.full(len(new), ChunkError.NONE, np.int32)
        for k, _ in _cpu.read_blocked(
            self.files.table, file, at, heads.reshape(-1), places, head, self._file_sizes, pool
        ):
            error[k] = ChunkError.HEADER_UNREAD
        starts, sizes = packed.starts[samples], packed.shapes[samples, 0]
        _cpu.check_chunks(heads, head, packed.data.reshape(-1), starts, sizes, error, pool)
        self._checked[chunks[error == ChunkError.NONE]] = True
        bad = np.flatnonzero(error).tolist()
        return failed | {int(new[k]): f"{self.name(int(chunks[k]))}: {_WRONG[ChunkError(error[k])]}" for k in bad}


def joined(data: bytes, start: int) -> bytes:
    """The bytes of a file from `start` on, without the headers of blocks."""
    if start % BLOCK >= BLOCK_HEADER and start % BLOCK + len(data) <= BLOCK:
        return data
    parts, at = [], 0
    while at < len(data):
        skip = max(BLOCK_HEADER - (start + at) % BLOCK, 0)
        until = at + BLOCK - (start + at) % BLOCK
        parts.append(data[at + skip : until])
        at = until
    return b"".join(parts)


def records_of(chunk: bytes, settings: Storage = _DEFAULTS) -> list[memoryview]:
    """The records of a chunk, which begins with its header.

    Raises:
      ValueError: the chunk is damaged, of an unsupported kind, or larger than `settings` allow.
    """
    sizes, values = _sizes_and_values(chunk, settings)
    return [values[end - n : end] for end, n in zip(np.cumsum(sizes).tolist(), sizes.tolist())]


def only_record_of(chunk: memoryview, settings: Storage) -> memoryview:
    """The record of a chunk with a single one. It returns the same as `records_of`, in less time."""
    if len(chunk) < CHUNK_HEADER + 2:
        raise ValueError(f"a chunk of {len(chunk)} bytes has no record")
    data, kind, decoded = _checked_data(chunk)
    if kind != ord("r") | 1 << 8:
        raise ValueError(f"a chunk of one record was expected, its kind is {kind}")
    length, at = _varint(data, 1)
    record = _plain(data[0], data[at + length :], settings)
    if len(record) != decoded:
        raise ValueError(f"a chunk's record has {len(record)} bytes, {decoded} were expected")
    return record


def _checked_data(chunk: memoryview) -> tuple[memoryview, int, int]:
    """(What follows a chunk's header, its kind and number of records, its decompressed size)."""
    size, data_check, kind, decoded = _checked_header(chunk)
    data = chunk[CHUNK_HEADER : CHUNK_HEADER + size]
    if len(data) < size or not size:
        raise ValueError(f"a chunk of {size} bytes is cut off after {len(data)}")
    if data_check != _cpu.highway_hash(np.frombuffer(data, np.uint8)):
        raise ValueError("the checksum of a chunk is wrong")
    return data, kind, decoded


def _checked_header(chunk: bytes | memoryview) -> tuple[int, int, int, int]:
    """The fields of a chunk's header: size and checksum of what follows, kind and number of records, decompressed size."""
    check, size, data_check, kind, decoded = struct.unpack_from("<QQQQQ", chunk)
    if check != _cpu.highway_hash(np.frombuffer(chunk[8:CHUNK_HEADER], np.uint8)):
        raise ValueError("the checksum of a chunk's header is wrong")
    return size, data_check, kind, decoded


def _sizes_and_values(chunk: bytes, settings: Storage) -> tuple[np.ndarray, memoryview]:
    if len(chunk) < CHUNK_HEADER:
        raise ValueError(f"a chunk of {len(chunk)} bytes has no header")
    data, kind, decoded = _checked_data(memoryview(chunk))
    number = kind >> 8
    if kind & 255 != ord("r"):
        raise ValueError(f"a chunk is of the kind {chr(kind & 255)!r}, which is not supported")
    length, at = _varint(data, 1)
    if length > len(data) - at:
        raise ValueError(f"the sizes of a chunk's records would take {length} of its {len(data)} bytes")
    sizes = _varints(_plain(data[0], data[at : at + length], settings))
    values = _plain(data[0], data[at + length :], settings)
    if len(sizes) != number or int(sizes.sum()) != len(values) or len(values) != decoded:
        raise ValueError(
            f"a chunk of {number} records and {decoded} bytes has {len(sizes)} records and {len(values)} bytes"
        )
    return sizes, values


@dataclasses.dataclass
class ChunkTable:
    """The chunks of a file.

    Attributes:
      start: ``i64[n]``, logical position of each; size: total size of its records in bytes; records: number of its
        records.
      end: logical position of the end of the last one.
      plain: whether the records are uncompressed.
    """

    start: np.ndarray
    size: np.ndarray
    records: np.ndarray
    end: int
    plain: bool


def chunk_table(files: Files, i: int, digest: Any) -> ChunkTable:
    """The table of file `i`. It is read and parsed in parts, because for ten million chunks it is larger than 100 MB.

    Args:
      digest: is updated with the positions, sizes and numbers of records.

    Raises:
      ValueError: the file is not an ArrayRecord file, or is damaged.
    """
    assert files.sizes is not None
    size = files.sizes[i]
    if size < BLOCK or size % BLOCK:
        raise ValueError(
            f"it has {size} bytes: it is not an ArrayRecord file, or it is cut off (these are multiples of {BLOCK} bytes)"
        )
    (postscript, *_) = records_of(_logical_bytes(files, i, logical(size - BLOCK), _INSIDE), files.store.settings)
    fields = dict(_fields(postscript))
    if fields.get(2) != _MAGIC:
        raise ValueError("it is not an ArrayRecord file: there is no postscript in its last 64 KB")
    footer, end = int(logical(fields.get(1, 0))), int(logical(size))
    sizes, values = _sizes_and_parts(files, i, footer, end)
    if not len(sizes):
        raise ValueError("it has no metadata")
    rest, wanted = b"", int(sizes[0])
    while len(rest) < wanted:
        rest += _damaged() if (more := next(values, None)) is None else more
    options = dict(_fields(dict(_fields(memoryview(rest)[:wanted]))[1]))[4].tobytes().decode("utf-8", "replace")
    if "transpose:true" in options:
        raise ValueError("it was written with transpose:true, which is not supported")
    start, bytes, records = np.empty(len(sizes) - 1, np.int64), [], []
    rows, n, before, part = np.empty((_AT_ONCE, 3), np.int64), 0, 0, rest[wanted:]
    del sizes, rest
    while True:
        more = next(values, None)
        data, at = np.frombuffer(part + (more or b""), np.uint8), 0
        while True:
            count, used = _cpu.parse_chunk_table(data[at:], more is None, rows)
            at += used
            if count < 0 or n + count > len(start):
                _damaged()
            if not count:
                break
            here = rows[:count]
            places = here[:, 0]
            if not (places[0] > before and (np.diff(places) > 0).all()):
                _damaged()
            before = int(places[-1])
            digest.update(here.tobytes())
            start[n : n + count] = logical(places)
            bytes.append(narrowed(here[:, 1]).copy())
            records.append(narrowed(here[:, 2]).copy())
            n += count
        part = data[at:].tobytes()
        if more is None:
            break
    if n != len(start) or part or (n and start[-1] >= footer):
        _damaged()
    empty = [np.zeros(0, np.uint8)]
    return ChunkTable(
        start, np.concatenate(bytes or empty), np.concatenate(records or empty), footer, "uncompressed" in options
    )


def _damaged() -> NoReturn:
    raise ValueError("the table of its chunks is damaged")


def _logical_bytes(files: Files, i: int, start: int, size: int) -> bytes:
    if not size:
        return b""
    first = int(physical(start))
    return joined(files.store.read(files.path(i), first, int(physical(start + size - 1)) + 1 - first), first)


def _sizes_and_parts(files: Files, i: int, start: int, end: int) -> tuple[np.ndarray, Iterator[bytes]]:
    """Sizes in bytes of the records of the chunk at `start`, and their values in parts. `end` is the end of the file.
    Positions are logical.

    Before the last part the checksum has been checked.
    """
    head = _logical_bytes(files, i, start, min(CHUNK_HEADER + 16, end - start))
    if len(head) < CHUNK_HEADER:
        raise ValueError(f"a chunk of {len(head)} bytes has no header")
    size, data_check, kind, decoded = _checked_header(head)
    if not size or size > end - start - CHUNK_HEADER:
        raise ValueError(f"a chunk of {size} bytes is cut off after {end - start - CHUNK_HEADER}")
    if kind & 255 != ord("r"):
        raise ValueError(f"a chunk is of the kind {chr(kind & 255)!r}, which is not supported")
    if why := files.store.settings.too_large(decoded):
        raise ValueError(f"the table of its chunks: {why}")
    head = head[CHUNK_HEADER : CHUNK_HEADER + size]
    if head[0] in _WHOLE:  # these can't be decompressed in parts
        sizes, values = _sizes_and_values(_logical_bytes(files, i, start, CHUNK_HEADER + size), files.store.settings)
        return sizes, iter([values.tobytes()])
    length, at = _varint(head, 1)
    if length > size - at:
        raise ValueError(f"the sizes of a chunk's records would take {length} of its {size} bytes")
    begin = start + CHUNK_HEADER
    packed = _logical_bytes(files, i, begin + at, length)
    sizes = _varints(_plain(head[0], memoryview(packed), files.store.settings))
    if len(sizes) != kind >> 8 or int(sizes.sum()) != decoded:
        raise ValueError(
            f"a chunk of {kind >> 8} records and {decoded} bytes has {len(sizes)} records of {int(sizes.sum())} bytes"
        )
    hash = _cpu.HighwayHash()
    for data in (head[:at], packed):
        hash.append(np.frombuffer(data, np.uint8))

    def parts() -> Iterator[bytes]:
        found, inflate = 0, None if head[0] == 0 else _decompressor(head[0], decoded)
        for first in range(at + length, size, _PART):
            data = _logical_bytes(files, i, begin + first, min(_PART, size - first))
            hash.append(np.frombuffer(data, np.uint8))
            if inflate is not None:
                data = inflate(data[_varint(data, 0)[1] if first == at + length else 0 :])
            found += len(data)
            if first + _PART >= size:
                if hash.finish() != data_check:
                    raise ValueError("the checksum of a chunk is wrong")
                if found != decoded:
                    raise ValueError(f"a chunk's records have {found} bytes, {decoded} were expected")
            yield data

    return sizes, parts()


def _varints(data: Any) -> np.ndarray:
    """Decodes a sequence of numbers; returns them as bytes if all are small."""
    raw, found = np.frombuffer(data, np.uint8), [np.zeros(0, np.int64)]
    if raw.max(initial=0) < 128:
        return raw
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


def _zstandard(compression: int) -> Any:
    """The package. Raises ValueError if `compression` is not zstd."""
    if compression != ord("z"):
        raise ValueError(f"a chunk is compressed by method {compression}; supported are zstd, Brotli, Snappy and none")
    try:
        import zstandard
    except ImportError as e:
        raise ImportError('zstd of ArrayRecord files needs zstandard: pip install "jaxdali[array_record]"') from e
    return zstandard


def _unpacked(compression: int, packed: memoryview, size: int) -> memoryview:
    """Decompresses Brotli or Snappy data to `size` bytes."""
    name = _WHOLE[compression]
    try:
        import pyarrow as pa
    except ImportError as e:
        raise ImportError(f'{name} of ArrayRecord files needs pyarrow: pip install "jaxdali[parquet]"') from e
    try:
        if name == "Brotli":
            with pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(packed)), "brotli") as stream:
                found = memoryview(stream.read_buffer(size + 1)) if packed else packed
        else:
            if (stated := _varint(packed, 0)[0]) != size or size > _SNAPPY_EXPANSION * len(packed):
                raise ValueError(f"a chunk has {size} bytes, Snappy's header says {stated}")
            found = memoryview(pa.decompress(pa.py_buffer(packed), size, codec="snappy"))
    except (pa.ArrowException, OSError) as e:
        raise ValueError(f"a chunk can't be decompressed: {e}") from e
    if len(found) != size:
        raise ValueError(f"a chunk has {size} bytes, {name} made of it {len(found)}{' or more' * (len(found) > size)}")
    return found


def _plain(compression: int, data: memoryview, settings: Storage) -> memoryview:
    if compression == 0:
        return data
    size, at = _varint(data, 0)
    packed = data[at:]
    if why := settings.too_large(size):
        raise ValueError(f"its chunk is too large: {why}")
    if compression in _WHOLE:
        return _unpacked(compression, packed, size)
    zstandard = _zstandard(compression)
    _threads.zstd = decompressor = getattr(_threads, "zstd", None) or zstandard.ZstdDecompressor()
    try:
        if (stated := zstandard.frame_content_size(packed)) not in (-1, size):
            raise ValueError(f"a chunk has {size} bytes, zstd's header says {stated}")
        if size > _PLAUSIBLE * len(packed):
            return memoryview(_decompressor(compression, size)(packed))
        return memoryview(decompressor.decompress(packed, max_output_size=size))
    except zstandard.ZstdError as e:
        raise ValueError(f"a chunk can't be decompressed: {e}") from e


def _decompressor(compression: int, most: int) -> Callable[[Any], bytes]:
    """A function that decompresses data in parts. It raises ValueError, also if there are more than `most` bytes."""
    zstandard = _zstandard(compression)
    inflate, found = zstandard.ZstdDecompressor().decompressobj(), 0

    def part(data: Any) -> bytes:
        nonlocal found
        pieces = []
        for first in range(0, len(data), _PIECE):
            try:
                pieces.append(inflate.decompress(data[first : first + _PIECE]))
            except zstandard.ZstdError as e:
                raise ValueError(f"a chunk can't be decompressed: {e}") from e
            found += len(pieces[-1])
            if found > most:
                raise ValueError(f"a chunk's records have {found} bytes or more, {most} were expected")
        return b"".join(pieces)

    return part


def _varint(data: Any, at: int) -> tuple[int, int]:
    """A number, and the position after it."""
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
    """(number, integer or bytes) for each field of a message of integers, strings and messages."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        x, at = _varint(message, at)
        if tag & 7 == 2:
            yield tag >> 3, memoryview(message)[at : at + x]
            at += x
        else:
            yield tag >> 3, x
