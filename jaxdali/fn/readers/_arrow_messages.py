"""Compressed Arrow files: their messages, whose decompressed sizes are known before anything is decompressed.

pyarrow decompresses a batch when it is asked for, regardless of the sizes that the batch states. The size stands in
front of each buffer, 8 bytes, -1 for a buffer that is not compressed. The places of the buffers are in the message's
metadata, a flatbuffer (format/Message.fbs of Arrow). Numbers of fields here are their positions in that schema.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Iterator, Sequence
from typing import Any

from ..._data.storage import Storage
from ._columns import import_pyarrow

_FILE_MAGIC = b"ARROW1\0\0"  # before the messages of a file; a stream begins with them
_DICTIONARY_BATCH, _RECORD_BATCH = 2, 3  # values of the union MessageHeader
_EXPANSION = 1 << 16  # limit of the decompressed to the compressed size: zstd makes 128 KB of 4 bytes at most
_ROWS_WITHOUT_BYTES = 1 << 16
_MAX_SIZE = 1 << 48  # of a buffer, in bytes: more than memory


@dataclasses.dataclass(frozen=True)
class _ArrowMessage:
    """The place of a message, and the properties of its batch.

    Attributes:
      begin, end: its position in the file, in bytes.
      kind: its kind, from the union MessageHeader.
      rows: the number of rows.
      sizes: decompressed sizes of the buffers, in bytes.
      views: for each field of Arrow's type string_view or binary_view, the number of its buffers of data.
      compressed: whether any buffer may be compressed.
    """

    begin: int
    end: int
    kind: int
    rows: int
    sizes: tuple[int, ...]
    views: tuple[int, ...]
    compressed: bool


class CompressedBatches:
    """The record batches of a file or a stream, each decompressed when it is read.

    Attributes:
      schema: the schema of the batches.
      rows: the number of rows of each batch.

    Args:
      data: the whole file or stream.
      messages: its messages, the schema first.
    """

    def __init__(self, data: Any, messages: Sequence[_ArrowMessage]):
        pa = import_pyarrow()
        self._data = data
        self._schema = messages[0]
        self._dictionaries = [m for m in messages if m.kind == _DICTIONARY_BATCH]
        self._batches = [m for m in messages if m.kind == _RECORD_BATCH]
        self.schema = pa.ipc.open_stream(pa.BufferReader(data.slice(self._schema.begin))).schema
        self.rows = [m.rows for m in self._batches]

    def read(self, k: int, columns: Sequence[str], settings: Storage) -> Any:
        """Reads some columns of a batch. Raises ValueError if they or the dictionaries exceed a limit of `settings`."""
        pa = import_pyarrow()
        batch = self._batches[k]
        names = self.schema.names
        fields = sorted({names.index(c) for c in columns})
        size = max(sum(sum(m.sizes) for m in self._dictionaries), self._size(batch, fields))
        if reason := settings.too_large(size):
            raise ValueError(f"its group of rows is too large: {reason}")
        # A stream of its own, so that pyarrow decompresses nothing else.
        parts = [self._schema, *(m for m in self._dictionaries), batch]
        stream = pa.py_buffer(b"".join(self._data[m.begin : m.end] for m in parts))
        options = pa.ipc.IpcReadOptions(included_fields=fields, use_threads=False)
        (record_batch,) = pa.ipc.open_stream(pa.BufferReader(stream), options=options)
        if record_batch.num_rows != batch.rows:
            raise ValueError(f"it has {record_batch.num_rows} rows, its metadata say {batch.rows}")
        return record_batch.select(list(columns))

    def nbytes(self, k: int, columns: Sequence[str]) -> int:
        """The approximate size of some columns of a batch in memory, in bytes."""
        rows, t = self._batches[k].rows, import_pyarrow().types
        size = self._size(self._batches[k], [self.schema.names.index(c) for c in columns])
        if not any(t.is_dictionary(self.schema.field(c).type) for c in columns):
            return size
        # Each row counts with the mean size of a value of each dictionary.
        return size + sum(rows * sum(m.sizes) // max(m.rows, 1) for m in self._dictionaries)

    def _size(self, batch: _ArrowMessage, fields: Sequence[int]) -> int:
        """Decompressed size of these fields in bytes; of all fields if it is unknown which buffers belong to them."""
        views, first, size = iter(batch.views), 0, 0
        for i, field in enumerate(self.schema):
            count = _num_buffers(field.type, views)
            if count is None:
                return sum(batch.sizes)
            size += sum(batch.sizes[first : first + count]) if i in fields else 0
            first += count
        return size if first == len(batch.sizes) else sum(batch.sizes)


def compressed_batches(data: Any) -> CompressedBatches | None:
    """The batches of a file or a stream if any batch is compressed, otherwise None.

    Raises:
      pyarrow.ArrowException: the data are damaged.
    """
    messages = list(_messages(data))
    return CompressedBatches(data, messages) if any(m.compressed for m in messages) else None


def _messages(data: Any) -> Iterator[_ArrowMessage]:
    """The messages of a file or a stream, one after another."""
    pa = import_pyarrow()
    reader = pa.BufferReader(data)
    reader.seek(len(_FILE_MAGIC) if data[: len(_FILE_MAGIC)].to_pybytes() == _FILE_MAGIC else 0)
    while True:
        begin = reader.tell()
        try:
            message = pa.ipc.read_message(reader)
        except EOFError:
            return
        try:
            yield _parse_message(
                begin,
                reader.tell(),
                memoryview(message.metadata),
                memoryview(message.body) if message.body else memoryview(b""),
            )
        except (struct.error, IndexError) as e:
            raise pa.ArrowInvalid(f"the message at {begin} can't be parsed: {e}") from e


def _parse_message(begin: int, end: int, metadata: memoryview, body: memoryview) -> _ArrowMessage:
    """Parses the metadata of a message. `body` has the buffers, of which only the stated sizes are read."""
    # Message: header_type is field 1, header field 2. DictionaryBatch: data (a RecordBatch) is field 1.
    # RecordBatch: length is field 0, nodes 1, buffers 2, compression 3, variadicBufferCounts 4.
    message = _FlatbufferTable(metadata, struct.unpack_from("<I", metadata)[0])
    kind, header = message.number(1, "<B"), message.table(2)
    batch = header.table(1) if kind == _DICTIONARY_BATCH and header is not None else header
    if kind not in (_DICTIONARY_BATCH, _RECORD_BATCH) or batch is None:
        return _ArrowMessage(begin, end, kind, rows=0, sizes=(), views=(), compressed=False)
    # Arrow 0.17 wrote the name of the compression into the metadata instead.
    compressed = batch.table(3) is not None or b"ARROW:experimental_compression" in bytes(metadata)
    sizes, max_bits = [], _ROWS_WITHOUT_BYTES
    for offset, length in struct.iter_unpack("<qq", batch.vector(2, 16)):
        # The size in front of the buffer; -1: the buffer is not compressed.
        stated = struct.unpack_from("<q", body, offset)[0] if compressed and length >= 8 else -1
        # A wrong size is an error of its batch, which can't be read. With a limit, sums of sizes fit 64 bits.
        sizes.append(min(max(length if stated < 0 else stated, 0), _MAX_SIZE))
        max_bits += 8 * min(sizes[-1], len(body) * _EXPANSION)
    # But numbers of rows are relied on before batches are read. The first node is that of the first column, which has as
    # many rows as the batch; and a column has a bit or more for each row, except of nulls and of lists without elements.
    rows, nodes = batch.number(0, "<q"), batch.vector(1, 16)
    if not 0 <= rows <= max_bits or (len(nodes) and rows != struct.unpack_from("<q", nodes)[0]):
        raise IndexError(f"it can't have {rows} rows")
    views = tuple(n for (n,) in struct.iter_unpack("<q", batch.vector(4, 8)))
    return _ArrowMessage(begin, end, kind, rows, tuple(sizes), views, compressed)


class _FlatbufferTable:
    """A table of a flatbuffer: fields by their numbers, of which any may be missing.

    A table begins with the distance back to its vtable. A vtable has its own size, the size of the table (16 bits
    each), and then the offset of each field in the table; 0: the field is missing.
    """

    def __init__(self, data: memoryview, begin: int):
        self._data, self._begin = data, begin
        self._vtable = begin - struct.unpack_from("<i", data, begin)[0]
        if self._vtable < 0:
            raise IndexError("a table lies outside of it")

    def _field_place(self, field: int) -> int:
        """The position of a field; 0 if it is missing."""
        entry = 4 + 2 * field
        if entry >= struct.unpack_from("<H", self._data, self._vtable)[0]:
            return 0
        offset = struct.unpack_from("<H", self._data, self._vtable + entry)[0]
        return self._begin + offset if offset else 0

    def number(self, field: int, format: str) -> int:
        """A number, of a format of `struct`; 0 if it is missing."""
        place = self._field_place(field)
        return struct.unpack_from(format, self._data, place)[0] if place else 0

    def _target(self, field: int) -> int:
        """The position of the table or vector to which a field refers; 0 if it is missing."""
        place = self._field_place(field)
        return place + struct.unpack_from("<I", self._data, place)[0] if place else 0

    def table(self, field: int) -> _FlatbufferTable | None:
        """The table to which a field refers; None if it is missing."""
        place = self._target(field)
        return _FlatbufferTable(self._data, place) if place else None

    def vector(self, field: int, width: int) -> memoryview:
        """The bytes of a vector of structs or numbers, of `width` bytes each; empty if it is missing."""
        place = self._target(field)
        if not place:
            return memoryview(b"")
        # A vector begins with the number of its elements, 32 bits.
        nbytes = struct.unpack_from("<I", self._data, place)[0] * width
        if nbytes > len(self._data) - place - 4:
            raise IndexError("a vector lies outside of it")
        return self._data[place + 4 : place + 4 + nbytes]


def _num_buffers(kind: Any, views: Iterator[int]) -> int | None:
    """The number of buffers of a field of a type and its children (Arrow's columnar format); None if it is unknown.

    Args:
      kind: the type.
      views: for each field of views, the number of its variadic buffers, which come after the usual ones.
    """
    t = import_pyarrow().types
    if isinstance(kind, import_pyarrow().BaseExtensionType):
        return _num_buffers(kind.storage_type, views)
    # Validity and indices; the dictionary is in messages of its own.
    if t.is_dictionary(kind):
        return 2
    # Validity, views, and the variadic buffers.
    if t.is_string_view(kind) or t.is_binary_view(kind):
        num_variadic = next(views, None)
        return None if num_variadic is None else 2 + num_variadic
    if t.is_null(kind):
        return 0
    # Validity, offsets and bytes.
    if any(f(kind) for f in (t.is_string, t.is_binary, t.is_large_string, t.is_large_binary)):
        return 3
    if t.is_struct(kind) or t.is_fixed_size_list(kind):
        num_parent = 1  # validity
    elif t.is_list(kind) or t.is_large_list(kind) or t.is_map(kind):
        num_parent = 2  # validity and offsets
    elif kind.num_fields:  # unions, views of lists, run ends
        return None
    else:
        return 2  # validity and values
    counts = [_num_buffers(kind.field(i).type, views) for i in range(kind.num_fields)]
    return None if None in counts else num_parent + sum(n for n in counts if n is not None)
