"""Compressed Arrow files: their messages, whose decompressed sizes are known before anything is decompressed.

pyarrow decompresses a batch when it is asked for, regardless of the sizes that the batch states. These sizes stand in
front of each buffer, and a message's metadata, a flatbuffer, say where the buffers are (format/Message.fbs of Arrow).
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Iterator, Sequence
from typing import Any

from ..._data.storage import Storage
from ._columns import import_pyarrow

_FILE_MAGIC = b"ARROW1\0\0"  # before the messages of a file; a stream begins with them
_DICTIONARY_BATCH, _RECORD_BATCH = 2, 3  # of the union MessageHeader


@dataclasses.dataclass(frozen=True)
class _Message:
    """Where a message is, and what it says about a batch.

    Attributes:
      begin, end: its position in the file.
      kind: its kind, from the union MessageHeader.
      sizes: decompressed sizes of the buffers.
      views: see `_count`.
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
      schema: of the batches; rows: the number of rows of each.

    Args:
      data: the whole file or stream.
      messages: as `messages_of` returns them.
    """

    def __init__(self, data: Any, messages: Sequence[_Message]):
        pa = import_pyarrow()
        self._data = data
        self._schema = messages[0]
        self._dictionaries = [m for m in messages if m.kind == _DICTIONARY_BATCH]
        self._batches = [m for m in messages if m.kind == _RECORD_BATCH]
        self.schema = pa.ipc.open_stream(pa.BufferReader(data.slice(self._schema.begin))).schema
        self.rows = [m.rows for m in self._batches]

    def read(self, k: int, columns: Sequence[str], settings: Storage) -> Any:
        """Some columns of a batch. Raises ValueError if they or the dictionaries are larger than `settings` allow."""
        pa = import_pyarrow()
        batch = self._batches[k]
        names = self.schema.names
        wanted = sorted({names.index(c) for c in columns})
        size = max(sum(sum(m.sizes) for m in self._dictionaries), self._size(batch, wanted))
        if why := settings.too_large(size):
            raise ValueError(f"its group of rows is too large: {why}")
        parts = [self._schema, *(m for m in self._dictionaries), batch]
        stream = pa.py_buffer(b"".join(self._data[m.begin : m.end] for m in parts))
        options = pa.ipc.IpcReadOptions(included_fields=wanted, use_threads=False)
        (found,) = pa.ipc.open_stream(pa.BufferReader(stream), options=options)
        if found.num_rows != batch.rows:
            raise ValueError(f"it has {found.num_rows} rows, its metadata say {batch.rows}")
        return found.select(list(columns))

    def nbytes(self, k: int, columns: Sequence[str]) -> int:
        """About the size of some columns of a batch in memory."""
        rows, t = self._batches[k].rows, import_pyarrow().types
        size = self._size(self._batches[k], [self.schema.names.index(c) for c in columns])
        if not any(t.is_dictionary(self.schema.field(c).type) for c in columns):
            return size
        return size + sum(rows * sum(m.sizes) // max(m.rows, 1) for m in self._dictionaries)

    def _size(self, batch: _Message, wanted: Sequence[int]) -> int:
        """Decompressed size of these fields in bytes; of all fields if it is not known which buffers belong to them."""
        views, at, size = iter(batch.views), 0, 0
        for i, field in enumerate(self.schema):
            count = _count(field.type, views)
            if count is None:
                return sum(batch.sizes)
            size += sum(batch.sizes[at : at + count]) if i in wanted else 0
            at += count
        return size if at == len(batch.sizes) else sum(batch.sizes)


def compressed_batches(data: Any) -> CompressedBatches | None:
    """The batches of a file or a stream if any is compressed, else None. Raises pyarrow.ArrowException if it is
    damaged.
    """
    messages = list(_messages(data))
    return CompressedBatches(data, messages) if any(m.compressed for m in messages) else None


def _messages(data: Any) -> Iterator[_Message]:
    pa = import_pyarrow()
    reader = pa.BufferReader(data)
    reader.seek(8 if data[: len(_FILE_MAGIC)].to_pybytes() == _FILE_MAGIC else 0)
    while True:
        begin = reader.tell()
        try:
            message = pa.ipc.read_message(reader)
        except EOFError:
            return
        try:
            yield _described(
                begin,
                reader.tell(),
                memoryview(message.metadata),
                memoryview(message.body) if message.body else memoryview(b""),
            )
        except (struct.error, IndexError) as e:
            raise pa.ArrowInvalid(f"the message at {begin} can't be parsed: {e}") from e


def _described(begin: int, end: int, metadata: memoryview, body: memoryview) -> _Message:
    message = _Table(metadata, struct.unpack_from("<I", metadata)[0])
    kind, header = message.number(1, "<B"), message.table(2)
    batch = header.table(1) if kind == _DICTIONARY_BATCH and header is not None else header
    if kind not in (_DICTIONARY_BATCH, _RECORD_BATCH) or batch is None:
        return _Message(begin, end, kind, 0, (), (), False)
    # As Arrow 0.17 wrote it.
    compressed = batch.table(3) is not None or b"ARROW:experimental_compression" in bytes(metadata)
    sizes = []
    for place, length in struct.iter_unpack("<qq", batch.vector(2, 16)):
        stated = struct.unpack_from("<q", body, place)[0] if compressed and length >= 8 else -1
        sizes.append(length if stated < 0 else stated)  # -1: this buffer is not compressed
    views = tuple(n for (n,) in struct.iter_unpack("<q", batch.vector(4, 8)))
    return _Message(begin, end, kind, batch.number(0, "<q"), tuple(sizes), views, compressed)


class _Table:
    """A table of a flatbuffer: fields by their numbers, of which any may be missing."""

    def __init__(self, data: memoryview, at: int):
        self._data, self._at = data, at
        self._fields = at - struct.unpack_from("<i", data, at)[0]
        if self._fields < 0:
            raise IndexError("a table lies outside of it")

    def _place(self, field: int) -> int:
        place = 4 + 2 * field
        if place >= struct.unpack_from("<H", self._data, self._fields)[0]:
            return 0
        offset = struct.unpack_from("<H", self._data, self._fields + place)[0]
        return self._at + offset if offset else 0

    def number(self, field: int, form: str) -> int:
        place = self._place(field)
        return struct.unpack_from(form, self._data, place)[0] if place else 0

    def _followed(self, field: int) -> int:
        place = self._place(field)
        return place + struct.unpack_from("<I", self._data, place)[0] if place else 0

    def table(self, field: int) -> _Table | None:
        place = self._followed(field)
        return _Table(self._data, place) if place else None

    def vector(self, field: int, width: int) -> memoryview:
        """The bytes of a vector of structs or numbers."""
        place = self._followed(field)
        if not place:
            return memoryview(b"")
        n = struct.unpack_from("<I", self._data, place)[0] * width
        if n > len(self._data) - place - 4:
            raise IndexError("a vector lies outside of it")
        return self._data[place + 4 : place + 4 + n]


def _count(of: Any, views: Iterator[int]) -> int | None:
    """The number of buffers of a field of a type and its children, or None if it is not known. `views`: how many more
    buffers each field of views has.
    """
    t = import_pyarrow().types
    if isinstance(of, import_pyarrow().BaseExtensionType):
        return _count(of.storage_type, views)
    if t.is_dictionary(of):
        return 2
    if t.is_string_view(of) or t.is_binary_view(of):
        more = next(views, None)
        return None if more is None else 2 + more
    if t.is_null(of):
        return 0
    if any(f(of) for f in (t.is_string, t.is_binary, t.is_large_string, t.is_large_binary)):
        return 3
    if t.is_struct(of) or t.is_fixed_size_list(of):
        own = 1
    elif t.is_list(of) or t.is_large_list(of) or t.is_map(of):
        own = 2
    elif of.num_fields:  # unions, views of lists, run ends
        return None
    else:
        return 2
    counts = [_count(of.field(i).type, views) for i in range(of.num_fields)]
    return None if None in counts else own + sum(n for n in counts if n is not None)
