"""ArrayRecord files: Riegeli's chunks, with a table of the chunks at the end. They are read by position, local or
remote, without the package `array_record`.

A file is cut into blocks of 64 KB that begin with a header of 24 bytes, independently of the chunks; *logical*
positions do not count these headers. A chunk consists of a header of 40 bytes, then the sizes and the values of its
records, which are compressed separately. The header has checksums of itself and of the data after it. The format is
described in Riegeli's doc/riegeli_records_file_format.md.
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
_BLOCK_DATA = BLOCK - BLOCK_HEADER  # bytes of chunks in a block
_MAGIC = 0x71930E704FDAE05E  # the postscript's magic number
_threads = threading.local()  # one decompressor per thread
_CHUNK_ERRORS = {
    ChunkError.HEADER_UNREAD: "its chunk's header can't be read",
    ChunkError.HEADER_HASH: "the checksum of its chunk's header is wrong",
    ChunkError.OTHER_CHUNK: "there is no chunk of one record of this size: the file's table, or the file, is damaged",
    ChunkError.DATA_HASH: "its checksum is wrong",
}
_WHOLE_CODECS = {ord("b"): "Brotli", ord("s"): "Snappy"}  # compressed data that are decompressed only as a whole
_SNAPPY_EXPANSION = 64  # limit of decompressed to compressed size: an element of Snappy has 2 bytes for at most 64
_DEFAULTS = Storage()
# Limit of the records in a file, as the list of all records takes memory. Each has a byte or more for its size, and a
# group of 65,536 equal records takes 100 bytes with zstd.
_RECORDS_PER_BYTE = 1 << 10
_AT_ONCE = 1 << 16  # numbers of a table that are parsed at a time
_PART = 1 << 22  # bytes of a table that are read at a time
_PLAUSIBLE = 100  # up to this ratio of decompressed to compressed size, memory is allocated at once
_PIECE = 1 << 14  # otherwise so many bytes are decompressed at a time, which gives 512 MB at most


def logical(position: Any) -> Any:
    """The logical position of a position in the file."""
    return position // BLOCK * _BLOCK_DATA + np.maximum(position % BLOCK - BLOCK_HEADER, 0)


def physical(position: Any) -> Any:
    """The position in the file of a logical position."""
    return position // _BLOCK_DATA * BLOCK + BLOCK_HEADER + position % _BLOCK_DATA


class BlockedRanges(Ranges):
    """Ranges whose `start` and `size` are logical."""

    _read_packed = staticmethod(_cpu.read_packed_blocked)

    @staticmethod
    def _file_extents(start: np.ndarray, size: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """See `Ranges._file_extents`. The bytes in the file include the headers of blocks that lie between them."""
        first = physical(start)
        return first, np.where(size > 0, physical(start + size - 1) + 1 - first, 0)

    def read(self, i: int) -> bytes:
        """See `Ranges.read`. Leaves out the headers of blocks."""
        first, _ = self._file_extent(i)
        return joined(super().read(i), first)


def record_begin(size: np.ndarray) -> np.ndarray:
    """The offset of a record in its chunk, ``u8[n]``, if the chunk has only this record of `size` bytes,
    uncompressed.
    """
    # Before the record are the chunk's header, the kind of compression, the number of bytes of the size (one byte), and
    # the size as a varint, with 7 bits in each byte.
    begin = np.full(len(size), CHUNK_HEADER + 3, np.uint8)
    for bits in range(7, 8 * size.dtype.itemsize, 7):
        begin += size >= 1 << bits
    return begin


class PlainRecords(BlockedRanges):
    """Uncompressed records of local files, each alone in its chunk. The checksums of a chunk are checked when it is
    first read.

    Args:
      files, file: as of `Ranges`.
      start: ``i64[N]``, where each record begins: the start of its chunk plus `record_begin`.
      size: ``i64[N]``, sizes of the records.
    """

    def __init__(self, files: Files, file: np.ndarray, start: np.ndarray, size: np.ndarray):
        super().__init__(files, file, start, size)
        self._checked = np.zeros(len(size), bool)

    def read_to(self, index: np.ndarray, packed: Packed, first: int, pool: int) -> dict[int, str]:
        """See `Ranges.read_to`. Reads the headers of chunks that were not checked yet, and checks these chunks."""
        failed = super().read_to(index, packed, first, pool)
        checked = self._checked[index]
        if checked.all():
            return failed
        unchecked = np.flatnonzero(~checked)
        unchecked = unchecked[[k not in failed for k in unchecked.tolist()]] if failed else unchecked
        # From here on, item k is the k-th unchecked record: its header is row k, with all bytes before the record, of
        # which fewer than 16 follow the chunk's header.
        chunks, samples = index[unchecked], first + unchecked
        header_sizes = record_begin(self.size[chunks]).astype(np.int64)
        headers = np.zeros((len(unchecked), CHUNK_HEADER + 16), np.uint8)
        header_starts, header_places = (
            self.start[chunks].astype(np.int64) - header_sizes,
            np.arange(len(unchecked)) * headers.shape[1],
        )
        file = self.file[chunks].astype(np.int64)
        error = np.full(len(unchecked), ChunkError.NONE, np.int32)
        # (item, error number) of each header that can't be read.
        for k, _ in _cpu.read_blocked(
            self.files.table,
            file,
            header_starts,
            headers.reshape(-1),
            header_places,
            header_sizes,
            self._file_sizes,
            pool,
        ):
            error[k] = ChunkError.HEADER_UNREAD
        starts, sizes = packed.starts[samples], packed.shapes[samples, 0]
        _cpu.check_chunks(headers, header_sizes, packed.data.reshape(-1), starts, sizes, error, pool)
        self._checked[chunks[error == ChunkError.NONE]] = True
        damaged = np.flatnonzero(error).tolist()
        return failed | {
            int(unchecked[k]): f"{self.name(int(chunks[k]))}: {_CHUNK_ERRORS[ChunkError(error[k])]}" for k in damaged
        }


def joined(data: bytes, start: int) -> bytes:
    """The bytes of a file from `start` on, without the headers of blocks."""
    if start % BLOCK >= BLOCK_HEADER and start % BLOCK + len(data) <= BLOCK:
        return data
    # `position` counts the bytes of `data`. Each block that it reaches may begin with (the rest of) a header.
    parts, position = [], 0
    while position < len(data):
        skip = max(BLOCK_HEADER - (start + position) % BLOCK, 0)
        end = position + BLOCK - (start + position) % BLOCK
        parts.append(data[position + skip : end])
        position = end
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
    data, kind, decoded_size = _checked_data(chunk)
    if kind != ord("r") | 1 << 8:  # the kind of a chunk of records, with one record
        raise ValueError(f"a chunk of one record was expected, its kind is {kind}")
    # The data are the kind of compression, the size of the compressed sizes, the sizes (skipped), and the value.
    length, offset = _varint(data, 1)
    record = _decompress(data[0], data[offset + length :], settings)
    if len(record) != decoded_size:
        raise ValueError(f"a chunk's record has {len(record)} bytes, {decoded_size} were expected")
    return record


def _checked_data(chunk: memoryview) -> tuple[memoryview, int, int]:
    """(data after a chunk's header, kind and number of records, decompressed size), after the checksums were checked.

    The kind is in the lowest byte, the number of records in the 56 bits above it.
    """
    size, data_hash, kind, decoded_size = _checked_header(chunk)
    data = chunk[CHUNK_HEADER : CHUNK_HEADER + size]
    if len(data) < size or not size:
        raise ValueError(f"a chunk of {size} bytes is cut off after {len(data)}")
    if data_hash != _cpu.highway_hash(np.frombuffer(data, np.uint8)):
        raise ValueError("the checksum of a chunk is wrong")
    return data, kind, decoded_size


def _checked_header(chunk: bytes | memoryview) -> tuple[int, int, int, int]:
    """The fields of a chunk's header: size and checksum of the data after it, kind and number of records (in one
    number, whose lowest byte is the kind), decompressed size.
    """
    # Five numbers of 64 bits, of which the first is the checksum of the others.
    header_hash, size, data_hash, kind, decoded_size = struct.unpack_from("<QQQQQ", chunk)
    if header_hash != _cpu.highway_hash(np.frombuffer(chunk[8:CHUNK_HEADER], np.uint8)):
        raise ValueError("the checksum of a chunk's header is wrong")
    return size, data_hash, kind, decoded_size


def _sizes_and_values(chunk: bytes, settings: Storage) -> tuple[np.ndarray, memoryview]:
    """(sizes of a chunk's records, their bytes one after another)."""
    if len(chunk) < CHUNK_HEADER:
        raise ValueError(f"a chunk of {len(chunk)} bytes has no header")
    data, kind, decoded_size = _checked_data(memoryview(chunk))
    # The lowest byte of `kind` is a letter, and the number of records is above it.
    num_records = kind >> 8
    if kind & 255 != ord("r"):
        raise ValueError(f"a chunk is of the kind {chr(kind & 255)!r}, which is not supported")
    # The data are the kind of compression, the size of the compressed sizes, the sizes, and the values.
    length, offset = _varint(data, 1)
    if length > len(data) - offset:
        raise ValueError(f"the sizes of a chunk's records would take {length} of its {len(data)} bytes")
    sizes = _varints(_decompress(data[0], data[offset : offset + length], settings))
    values = _decompress(data[0], data[offset + length :], settings)
    if len(sizes) != num_records or int(sizes.sum()) != len(values) or len(values) != decoded_size:
        raise ValueError(
            f"a chunk of {num_records} records and {decoded_size} bytes has {len(sizes)} records and {len(values)} bytes"
        )
    return sizes, values


@dataclasses.dataclass
class ChunkTable:
    """The chunks of a file.

    Attributes:
      start: ``i64[n]``, logical position of each chunk.
      size: ``[n]``, total size of the records of each chunk in bytes.
      records: ``[n]``, number of the records of each chunk.
      end: logical position of the end of the last chunk.
      plain: whether the records are uncompressed.
    """

    start: np.ndarray
    size: np.ndarray
    records: np.ndarray
    end: int
    plain: bool


def chunk_table(files: Files, i: int, digest: Any) -> ChunkTable:
    """The table of the chunks of file `i`. It is read and parsed in parts, because for ten million chunks it is larger
    than 100 MB.

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
    # The last block has a postscript: a message with the position of the footer (1) and a magic number (2). The footer
    # is a chunk. Its first record is metadata, which has the options of the writer; the others are the table.
    (postscript, *_) = records_of(_logical_bytes(files, i, logical(size - BLOCK), _BLOCK_DATA), files.store.settings)
    fields = dict(_fields(postscript))  # by number
    if fields.get(2) != _MAGIC:
        raise ValueError("it is not an ArrayRecord file: there is no postscript in its last 64 KB")
    position = fields.get(1, 0)
    if not isinstance(position, int) or position >= size:
        _damaged()
    footer, end = int(logical(position)), int(logical(size))
    sizes, parts = _sizes_and_parts(files, i, footer, end)
    if not len(sizes):
        raise ValueError("it has no metadata")
    buffer, options_size = b"", int(sizes[0])
    while len(buffer) < options_size:
        buffer += _damaged() if (part := next(parts, None)) is None else part
    # Field 1 of the first record is the metadata of the file, whose field 4 is the text of the options.
    options = dict(_fields(dict(_fields(memoryview(buffer)[:options_size]))[1]))[4].tobytes().decode("utf-8", "replace")
    if "transpose:true" in options:
        raise ValueError("it was written with transpose:true, which is not supported")
    plain, num_records = "uncompressed" in options, 0.0
    max_records = size if plain else _RECORDS_PER_BYTE * size
    start, sizes_in_bytes, records = np.empty(len(sizes) - 1, np.int64), [], []
    rows, num_chunks, last_position, remainder = np.empty((_AT_ONCE, 3), np.int64), 0, 0, buffer[options_size:]
    del sizes, buffer  # they may be large
    while True:
        part = next(parts, None)  # None: there are no more, so what remains must be complete rows
        data, offset = np.frombuffer(remainder + (part or b""), np.uint8), 0
        # Parses the complete rows (position, size, number of records). The rest stays for the next part.
        while True:
            count, used = _cpu.parse_chunk_table(data[offset:], part is None, rows)
            offset += used
            if count < 0 or num_chunks + count > len(start):
                _damaged()
            if not count:
                break
            chunk_rows = rows[:count]
            positions = chunk_rows[:, 0]
            if not (positions[0] > last_position and (np.diff(positions) > 0).all()):
                _damaged()
            num_records += chunk_rows[:, 2].sum(dtype=np.float64)  # of floats, which do not overflow
            if chunk_rows[:, 1:].min() < 0 or num_records > max_records:
                _damaged()
            last_position = int(positions[-1])
            digest.update(chunk_rows.tobytes())
            start[num_chunks : num_chunks + count] = logical(positions)
            sizes_in_bytes.append(narrowed(chunk_rows[:, 1]).copy())
            records.append(narrowed(chunk_rows[:, 2]).copy())
            num_chunks += count
        remainder = data[offset:].tobytes()
        if part is None:
            break
    if num_chunks != len(start) or remainder or (num_chunks and start[-1] >= footer):
        _damaged()
    empty = [np.zeros(0, np.uint8)]
    return ChunkTable(
        start,
        np.concatenate(sizes_in_bytes or empty),
        np.concatenate(records or empty),
        footer,
        plain,
    )


def _damaged() -> NoReturn:
    raise ValueError("the table of its chunks is damaged")


def _logical_bytes(files: Files, i: int, start: int, size: int) -> bytes:
    """`size` bytes of file `i` from the logical position `start` on."""
    if not size:
        return b""
    first = int(physical(start))
    return joined(files.store.read(files.path(i), first, int(physical(start + size - 1)) + 1 - first), first)


def _sizes_and_parts(files: Files, i: int, start: int, end: int) -> tuple[np.ndarray, Iterator[bytes]]:
    """(sizes in bytes of the records of the chunk at `start`, the bytes of the records in parts).

    The checksum is checked before the last part is returned.

    Args:
      start: logical position of the chunk.
      end: logical position of the end of the file.
    """
    # The chunk's header, and the begin of its data: the kind of compression (1 byte), and the size of the compressed
    # sizes (at most 10). The sizes follow, and then the values.
    head = _logical_bytes(files, i, start, min(CHUNK_HEADER + 16, end - start))
    if len(head) < CHUNK_HEADER:
        raise ValueError(f"a chunk of {len(head)} bytes has no header")
    size, data_hash, kind, decoded_size = _checked_header(head)
    if not size or size > end - start - CHUNK_HEADER:
        raise ValueError(f"a chunk of {size} bytes is cut off after {end - start - CHUNK_HEADER}")
    # The lowest byte of `kind` is a letter, and the number of records is above it.
    if kind & 255 != ord("r"):
        raise ValueError(f"a chunk is of the kind {chr(kind & 255)!r}, which is not supported")
    if reason := files.store.settings.too_large(decoded_size):
        raise ValueError(f"the table of its chunks: {reason}")
    head = head[CHUNK_HEADER : CHUNK_HEADER + size]
    if head[0] in _WHOLE_CODECS:  # these can't be decompressed in parts
        sizes, values = _sizes_and_values(_logical_bytes(files, i, start, CHUNK_HEADER + size), files.store.settings)
        return sizes, iter([values.tobytes()])
    length, offset = _varint(head, 1)
    if length > size - offset:
        raise ValueError(f"the sizes of a chunk's records would take {length} of its {size} bytes")
    data_start = start + CHUNK_HEADER
    packed = _logical_bytes(files, i, data_start + offset, length)
    sizes = _varints(_decompress(head[0], memoryview(packed), files.store.settings))
    if len(sizes) != kind >> 8 or int(sizes.sum()) != decoded_size:
        raise ValueError(
            f"a chunk of {kind >> 8} records and {decoded_size} bytes has {len(sizes)} records of {int(sizes.sum())} bytes"
        )
    data_hasher = _cpu.HighwayHash()
    for data in (head[:offset], packed):
        data_hasher.append(np.frombuffer(data, np.uint8))

    def parts() -> Iterator[bytes]:
        """Reads, hashes and decompresses the values, `_PART` bytes of the file at a time."""
        num_bytes, inflate = 0, None if head[0] == 0 else _decompressor(head[0], decoded_size)
        for first in range(offset + length, size, _PART):
            data = _logical_bytes(files, i, data_start + first, min(_PART, size - first))
            data_hasher.append(np.frombuffer(data, np.uint8))
            if inflate is not None:
                # Compressed values begin with their decompressed size, which is skipped.
                data = inflate(data[_varint(data, 0)[1] if first == offset + length else 0 :])
            num_bytes += len(data)
            if first + _PART >= size:
                if data_hasher.finish() != data_hash:
                    raise ValueError("the checksum of a chunk is wrong")
                if num_bytes != decoded_size:
                    raise ValueError(f"a chunk's records have {num_bytes} bytes, {decoded_size} were expected")
            yield data

    return sizes, parts()


def _varints(data: Any) -> np.ndarray:
    """Decodes a sequence of varints. The result is ``u8`` if all are below 128, otherwise ``i64``."""
    raw, arrays = np.frombuffer(data, np.uint8), [np.zeros(0, np.int64)]
    if raw.max(initial=0) < 128:
        return raw
    if len(raw) and raw[-1] >= 128:
        raise ValueError("a number is damaged")
    begin = 0
    while begin < len(raw):
        # Decodes all numbers that end in this part. The last byte of a number is below 128. Each byte has 7 bits of it,
        # the lowest first.
        ends = np.flatnonzero(raw[begin : begin + 16 * _AT_ONCE] < 128)
        if not len(ends):
            raise ValueError("a number is damaged")
        part = raw[begin : begin + int(ends[-1]) + 1]
        starts = np.append(0, ends[:-1] + 1)
        # 7 times the place of each byte in its number.
        shift = 7 * (np.arange(len(part), dtype=np.int64) - np.repeat(starts, ends - starts + 1))
        if shift.max() > 63:
            raise ValueError("a number is damaged")
        arrays.append(np.add.reduceat((part & 127).astype(np.int64) << shift, starts))
        begin += len(part)
    return np.concatenate(arrays)


def _zstandard(compression: int) -> Any:
    """The module `zstandard`. Raises ValueError if `compression` is not zstd."""
    if compression != ord("z"):
        raise ValueError(f"a chunk is compressed by method {compression}; supported are zstd, Brotli, Snappy and none")
    try:
        import zstandard
    except ImportError as e:
        raise ImportError('zstd of ArrayRecord files needs zstandard: pip install "jaxdali[array_record]"') from e
    return zstandard


def _decompress_whole(compression: int, packed: memoryview, size: int) -> memoryview:
    """Decompresses Brotli or Snappy data to `size` bytes."""
    name = _WHOLE_CODECS[compression]
    try:
        import pyarrow as pa
    except ImportError as e:
        raise ImportError(f'{name} of ArrayRecord files needs pyarrow: pip install "jaxdali[parquet]"') from e
    try:
        if name == "Brotli":
            # One byte more than expected, to notice if there are more.
            with pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(packed)), "brotli") as stream:
                data = memoryview(stream.read_buffer(size + 1)) if packed else packed
        else:
            if (stated := _varint(packed, 0)[0]) != size or size > _SNAPPY_EXPANSION * len(packed):
                raise ValueError(f"a chunk has {size} bytes, Snappy's header says {stated}")
            data = memoryview(pa.decompress(pa.py_buffer(packed), size, codec="snappy"))
    except (pa.ArrowException, OSError) as e:
        raise ValueError(f"a chunk can't be decompressed: {e}") from e
    if len(data) != size:
        raise ValueError(
            f"a chunk has {size} bytes, {name} made of it {len(data)}{' or more' if len(data) > size else ''}"
        )
    return data


def _decompress(compression: int, data: memoryview, settings: Storage) -> memoryview:
    """Decompresses data that begin with their decompressed size. Raises ValueError if they are damaged or too large.

    Args:
      compression: the method, as the letter in the file; 0: none.
    """
    if compression == 0:
        return data
    size, offset = _varint(data, 0)
    packed = data[offset:]
    if reason := settings.too_large(size):
        raise ValueError(f"its chunk is too large: {reason}")
    if compression in _WHOLE_CODECS:
        return _decompress_whole(compression, packed, size)
    zstandard = _zstandard(compression)
    _threads.zstd = decompressor = getattr(_threads, "zstd", None) or zstandard.ZstdDecompressor()
    try:
        if (stated := zstandard.frame_content_size(packed)) not in (-1, size):  # -1: the header states no size
            raise ValueError(f"a chunk has {size} bytes, zstd's header says {stated}")
        if size > _PLAUSIBLE * len(packed):  # maybe a wrong size: memory is only allocated for data that are there
            return memoryview(_decompressor(compression, size)(packed))
        return memoryview(decompressor.decompress(packed, max_output_size=size))
    except zstandard.ZstdError as e:
        raise ValueError(f"a chunk can't be decompressed: {e}") from e


def _decompressor(compression: int, max_size: int) -> Callable[[Any], bytes]:
    """A function that decompresses data in parts. It raises ValueError for damaged data, and if they are more than
    `max_size` bytes.
    """
    zstandard = _zstandard(compression)
    inflate, num_bytes = zstandard.ZstdDecompressor().decompressobj(), 0

    def decompress(data: Any) -> bytes:
        """The decompressed bytes of the next part. Stops soon after the limit, before they take much memory."""
        nonlocal num_bytes
        pieces = []
        for first in range(0, len(data), _PIECE):
            try:
                pieces.append(inflate.decompress(data[first : first + _PIECE]))
            except zstandard.ZstdError as e:
                raise ValueError(f"a chunk can't be decompressed: {e}") from e
            num_bytes += len(pieces[-1])
            if num_bytes > max_size:
                raise ValueError(f"a chunk's records have {num_bytes} bytes or more, {max_size} were expected")
        return b"".join(pieces)

    return decompress


def _varint(data: Any, offset: int) -> tuple[int, int]:
    """(a varint of Protocol Buffers, the offset after it)."""
    x = shift = 0
    while True:
        if offset >= len(data) or shift > 63:
            raise ValueError("a number is damaged")
        byte = data[offset]
        x |= (byte & 127) << shift
        offset, shift = offset + 1, shift + 7
        if byte < 128:
            return x, offset


def _fields(message: Any) -> Iterator[tuple[int, Any]]:
    """(number, integer or bytes) for each field of a message of Protocol Buffers with integers, strings and
    messages.
    """
    offset = 0
    while offset < len(message):
        # The tag is number * 8 + wire type. Wire type 2 is a length and as many bytes; the others here are varints.
        tag, offset = _varint(message, offset)
        x, offset = _varint(message, offset)
        if tag & 7 == 2:
            yield tag >> 3, memoryview(message)[offset : offset + x]
            offset += x
        else:
            yield tag >> 3, x
