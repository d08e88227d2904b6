"""Records that are stored one after another in a few large files: their positions, and native reading of batches."""

from __future__ import annotations

import codecs
import contextlib
import dataclasses
import errno
import functools
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from typing import Any, ClassVar

import numpy as np

from .. import _cpu
from .._core.context import HostContext
from .._core.ragged import Packed, plan_offsets
from .._core.system import thread_pool
from .._core.values import Spec
from .._cpu import RecordFormat, RecordShape, Status, ValueType
from .files import Files, Path, refused_files
from .own_index import check_extents, own_indices, warn_no_index
from .records import Records
from .shuffle import Groups
from .storage import ByteRange, Store
from .urls import is_url, plain

_CHUNK = 1 << 22  # bytes of an index that are parsed at a time

_TYPES = {
    np.dtype(np.uint8): ValueType.BYTES,
    np.dtype(np.float32): ValueType.FLOATS,
    np.dtype(np.int64): ValueType.INTS,
    np.dtype(np.int32): ValueType.INTS,
}


@dataclasses.dataclass(frozen=True)
class RecordField:
    """The field of a record from which an output is made.

    Attributes:
      name: for messages, e.g. ``feature 'image/encoded'``.
      number: the number of the field in the native code.
      spec: of the output. If it has a shape, every record must have that number of values. With `dims`, of which one is
        None, a record must have a multiple of the product of the others.
      default: the value for records without the field: an array, a number for all elements of a shape, or bytes. None:
        the output is empty then, and an error if it has a shape.
      raw: whether the field holds the bytes of the elements.
      shape_kind: how the shape is determined, if not by `spec`. Strings and rows of examples have other kinds.
      values: the type of the field's values, if `spec` does not tell.
      required: whether a record without the field is an error.
    """

    name: str
    number: int
    spec: Spec
    default: np.ndarray | float | bytes | None = None
    raw: bool = False
    shape_kind: RecordShape | None = None
    values: ValueType | None = None
    required: bool = False

    def add_to(self, layout: _cpu.RecordLayout):
        """Adds this output to the layout."""
        # The number of values: any (COUNT), of a static shape, a multiple of the product of `dims` (ROWS), or as the
        # record states.
        spec, shape_kind, dims = self.spec, self.shape_kind, ()
        if spec.shape is not None:
            shape_kind, dims = RecordShape.FIXED, spec.shape
        elif shape_kind is RecordShape.STRINGS:
            dims = spec.dims[:-1] if spec.dims is not None else ()  # the last extent is that of the longest string
        elif shape_kind in (None, RecordShape.ROWS) and spec.dims is not None:
            shape_kind, dims = RecordShape.ROWS, spec.dims
        elif shape_kind is None:
            shape_kind = RecordShape.STATED if spec.ndim == 3 else RecordShape.COUNT
        default, shape_of_default = self.default, None
        if isinstance(default, np.ndarray):
            default, shape_of_default = default.astype(spec.dtype).tobytes(), default.shape
        elif not isinstance(default, bytes):
            default = b"" if default is None else np.array(default, spec.dtype).tobytes()
        values = ValueType.BYTES if self.raw else self.values or _TYPES[spec.dtype]
        is_text = values is ValueType.BYTES and shape_kind not in (RecordShape.COUNT, RecordShape.STATED)
        layout.add_output(
            self.name,
            "strings" if is_text and not self.raw else str(spec.dtype),
            self.number,
            values,
            spec.dtype.itemsize,
            shape_kind,
            [-1 if n is None else n for n in dims],
            default,
            None if spec.shape is not None else shape_of_default,
            self.required,
        )


class ContainerRecords(Records):
    """A list of records that native code reads.

    Attributes:
      fields: the field for each output.
    """

    fields: tuple[RecordField, ...]

    @functools.cached_property
    def specs(self) -> tuple[Spec, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return tuple(f.spec for f in self.fields)

    def new_layout(self) -> _cpu.RecordLayout:
        """The format of the records, without outputs."""
        raise NotImplementedError(type(self).__name__)

    @functools.cached_property
    def layout(self) -> _cpu.RecordLayout:
        """The format of the records, with the outputs."""
        layout = self.new_layout()
        for f in self.fields:
            f.add_to(layout)
        return layout

    def scan(
        self,
        batch: _cpu.RecordBatch,
        index: np.ndarray,
        pool: int,
        stack: contextlib.ExitStack,
        free_bytes: Callable[[], int],
    ):
        """Finds the records of a batch in memory or in files.

        Args:
          batch: gets the records.
          index: the numbers of the records in this list.
          pool: id of the native thread pool.
          stack: releases resources that are needed until the records have been copied.
          free_bytes: see `refused_files`.
        """
        raise NotImplementedError(type(self).__name__)

    @classmethod
    def read_batch(cls, ctx: HostContext, parts: Sequence[tuple[Any, np.ndarray]], threads: Any) -> tuple[Any, ...]:
        """See `Records.read_batch`. Native code finds, parses and copies the records, without `threads`."""
        with contextlib.ExitStack() as stack:
            return tuple(fill_outputs(ctx, parts[0][0].specs, cls.scanned(ctx, parts, threads, stack), ctx.fail))

    @classmethod
    def scanned(
        cls, ctx: HostContext, parts: Sequence[tuple[Any, np.ndarray]], threads: Any, stack: contextlib.ExitStack
    ) -> list[_cpu.RecordBatch]:
        """The records of each part, found in files or in memory, which `stack` releases."""
        batches = []
        for records, index in parts:
            batch = _cpu.RecordBatch(records.layout, len(index))
            records.scan(batch, index, ctx.pool, stack, lambda: ctx.free_bytes(len(ctx.specs)))
            batches.append(batch)
        return batches


def fill_outputs(
    ctx: HostContext, specs: Sequence[Spec], batches: Sequence[_cpu.RecordBatch], fail: Callable[..., None]
) -> list[Any]:
    """The outputs of scanned records: for each output an array ``[N, *shape]`` or a `Packed`.

    Args:
      ctx: of the batch. Only the first outputs, as many as it has specs, are in its buffers.
      specs: of the outputs.
      batches: the records, all samples of the batch in order.
      fail: called like `HostContext.fail` for each record that can't be read.
    """
    # There are only a few native calls for each batch: after a batch was copied, the interpreter's code is no longer in
    # the caches. The first ones find the records and their shapes, then `fill` copies the values.
    shapes = [None if s.shape is not None else np.empty((ctx.N, s.ndim), np.int64) for s in specs]
    firsts = np.cumsum([0, *(b.n for b in batches)]).tolist()
    for first, batch in zip(firsts, batches):
        batch.shape(shapes, first)  # fills in the rows from `first` on
    # For each output: the array or `Packed`, its buffer, and for a ragged one the offsets of its samples.
    outputs, data, offsets = [], [], []
    for k, (spec, rows) in enumerate(zip(specs, shapes)):
        if rows is None:
            output = buffer = np.zeros((ctx.N, *(spec.shape or ())), spec.dtype)
            starts = None
        else:
            starts, need = plan_offsets(rows, ctx.S)
            buffer = ctx.empty(need, spec.dtype, k) if k < len(ctx.specs) else np.empty((ctx.S, need), spec.dtype)
            output = Packed(buffer, starts, rows)
        outputs.append(output)
        data.append(buffer)
        offsets.append(starts)
    for first, batch in zip(firsts, batches):
        batch.fill(data, offsets, first, ctx.pool)
        for i, reason in batch.errors():
            fail(first + i, Status.RECORD, reason)
    return outputs


def describe_records(batch: _cpu.RecordBatch, n: int, fields: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(types ``i32[n, fields]``, numbers of values ``i64[n, fields]``, shapes ``i64[n, fields, 3]``) of the fields of n
    scanned records.
    """
    x = np.empty((n, fields), np.int32), np.empty((n, fields), np.int64), np.empty((n, fields, 3), np.int64)
    batch.describe(*x)
    return x


class Extents:
    """Records that are parts of files.

    Attributes:
      table: ``i64[n, 2]``, offset and size of each record.
      bounds: ``i64[files + 1]``, the first record of each file, and the number of records.
      stamps: ``i64[2 * files]``, size and modification time (in ns; 0 of remote files) of each file.
      sizes: ``i64[files]``, the bytes of each file in which records can be.
      in_memory: whether records are read by `fetched`, and not by native code in the files.
      checked: ``u8[n]``, 1 if the record was checked before, for example its checksum.
      digest: a digest of `files`, `table` and `bounds`.

    Args:
      files: the containers.
      table, bounds: as above.
    """

    def __init__(self, files: Files, table: np.ndarray, bounds: np.ndarray):
        """Looks at each local file for its stamp. Raises OSError if one is gone."""
        self.files = files
        self.table = table
        self.bounds = bounds
        stamps = np.zeros((len(files), 2), np.int64)
        if files.remote:
            assert files.sizes is not None
            stamps[:, 0] = files.sizes
        else:
            for i in range(len(files)):
                status = os.stat(files.path(i))
                stamps[i] = status.st_size, status.st_mtime_ns
        self.stamps = stamps.reshape(-1)
        self.sizes = self.stamps[::2]
        self.in_memory = files.remote
        self.checked = np.zeros(len(table), np.uint8)
        digest = files.digest.copy()
        digest.update(np.ascontiguousarray(table).data)
        digest.update(bounds.tobytes())
        self.digest = digest.hexdigest()[:16]

    def __len__(self) -> int:
        return len(self.table)

    def file_of(self, index: np.ndarray | int) -> np.ndarray:
        """Numbers of the files that contain the records."""
        return np.searchsorted(self.bounds, index, "right") - 1

    def name(self, i: int) -> str:
        return f"{self.path(i)} at index {self.table[i, 0]}"

    def path(self, i: int) -> str:
        """The path of the file that contains record `i`."""
        return self.files.path(int(self.file_of(i)))

    def facts(self) -> dict[str, Callable[[int], Any]]:
        """The metadata of `Records.facts`: the file of a record, its offset, and its number in the file."""
        number = lambda i: i - int(self.bounds[int(self.file_of(i))])
        return {"filename": self.path, "offset": lambda i: int(self.table[i, 0]), "record": number}

    @property
    def store(self) -> Store:
        """The store that the files are read from."""
        return self.files.store

    def groups(self) -> Groups | None:
        """See `Records.groups`."""
        return None

    def read_by(self, shards: int) -> None:
        """See `Records.read_by`."""

    def prepare(self, index: np.ndarray, threads: Executor | None) -> Any:
        """Makes what `fetched` needs of several records, in `threads` if there are any. The caller keeps the result
        until they have been read.
        """

    def close(self) -> None:
        """Releases what is kept of the files."""

    @property
    def read_ahead(self) -> int:
        """See `Records.read_ahead`."""
        return self.files.read_ahead

    def ahead(self, index: np.ndarray, now: int) -> None:
        """Announces the records that are read next; see `Records.ahead`."""
        self.store.ahead(map(self.range, index.tolist()), now)

    def range(self, i: int) -> ByteRange:
        """The range of record `i`."""
        return ByteRange(self.path(i), int(self.table[i, 0]), int(self.table[i, 1]))

    def content(self, i: int) -> bytes:
        """The bytes of a record. Raises OSError if it can't be read, and ValueError if it is larger than the settings
        allow.
        """
        if reason := self.store.settings.too_large(int(self.table[i, 1])):
            raise ValueError(f"{self.name(i)}: {reason}")
        return bytes(self.fetched(i))

    def fetched(self, i: int) -> bytes | memoryview:
        """The bytes of a record; empty if its size is 0. Raises OSError if it can't be read."""
        offset, size = self.table[i].tolist()
        file_size = int(self.sizes[int(self.file_of(i))])
        if offset < 0 or size < 0 or size > file_size - offset:
            text = f"it lies outside the file, which has {file_size} bytes: the index is of another file, or the file is truncated"
            raise OSError(errno.EIO, text, self.path(i))
        return self.store.read(*self.range(i)) if size else b""


class RecordParts:
    """Records that consist of several parts, each stored at its own position in the same files.

    Args:
      parts: for each part, its extents of all records.

    Attributes:
      _files: what all parts share: the files as native code takes them; their stamps, size and modification time of
        each; the first record of each and the number of records.
      _tables: of each part ``i64[n, 2]``, offset and size in its file for each record.
      _checked: of each part ``u8[n]``, 1 for records that were checked before.
    """

    def __init__(self, parts: Sequence[Extents]):
        self._parts, first_part = parts, parts[0]
        self._remote, self._store = first_part.files.remote, first_part.store
        self._in_memory, self._sizes = first_part.in_memory, first_part.sizes
        self._files = first_part.files.table, first_part.stamps, first_part.bounds
        self._tables, self._checked = [x.table for x in parts], [x.checked for x in parts]

    def scan(
        self,
        batch: _cpu.RecordBatch,
        index: np.ndarray,
        pool: int,
        stack: contextlib.ExitStack,
        free_bytes: Callable[[], int],
    ):
        """Finds records in their files, see `ContainerRecords.scan`. If a file has changed since the list was made,
        each of its records gets an error.
        """
        oversized, settings = dict[int, str](), self._store.settings
        *_, bounds = self._files
        # The size of each record's file. A record outside its file gets another error, below.
        in_file = self._sizes[np.searchsorted(bounds, index, "right") - 1]
        totals = np.zeros(len(index), np.int64)  # bytes of all parts of each record
        for table in self._tables:
            sizes = np.where(table[index, 1] <= in_file, table[index, 1], 0)
            totals += sizes
            rows = np.flatnonzero(sizes > settings.record_bytes).tolist()
            oversized |= {k: settings.too_large(int(sizes[k])) for k in rows}
        if not self._remote and settings.max_record_bytes is None:
            totals[list(oversized)] = 0
            oversized |= refused_files(self._store, totals, free_bytes)
        if not self._in_memory:
            batch.scan_files(*self._files, index, self._tables, self._checked, pool)
            for k, reason in oversized.items():
                batch.fail(k, f"{self._parts[0].name(int(index[k]))}: {reason}")
            return
        # The bytes of all parts of all records, in this order; b"" for those with an error. A record that is too large
        # is not fetched.
        contents, errors = [], oversized
        for k, i in enumerate(index.tolist()):
            for part in self._parts:
                contents.append(b"")
                if k in oversized:
                    continue
                try:
                    contents[-1] = part.fetched(i)
                except OSError as e:
                    errors.setdefault(k, e.strerror or str(e))
        stack.callback(contents.clear)  # the batch copies from these arrays
        batch.scan_memory([np.frombuffer(x, np.uint8) for x in contents], pool)
        for k, reason in errors.items():
            batch.fail(k, reason)


class ExtentRecords(ContainerRecords):
    """Records that are parts of files.

    Attributes:
      format: the format of the records.
      names: the names of the fields that are read, if the format has names.

    Args:
      extents: the positions of the records.
    """

    format: ClassVar[RecordFormat]
    names: tuple[str, ...] = ()

    def __init__(self, extents: Extents):
        self.stored = self.extents = extents
        self.scan = RecordParts([extents]).scan  # in place of the method: a record has a single part
        self.bounds = extents.bounds
        self.digest = extents.digest

    def __len__(self) -> int:
        return len(self.extents)

    def name(self, i: int) -> str:
        return self.extents.name(i)

    def facts(self) -> dict[str, Callable[[int], Any]]:
        return super().facts() | self.extents.facts()

    def groups(self) -> Groups | None:
        return self.extents.groups()

    def read_by(self, shards: int) -> None:
        self.extents.read_by(shards)

    @classmethod
    def scanned(
        cls, ctx: HostContext, parts: Sequence[tuple[Any, np.ndarray]], threads: Any, stack: contextlib.ExitStack
    ) -> list[_cpu.RecordBatch]:
        pool = None if ctx.num_threads == 1 else threads
        prepared = [records.extents.prepare(index, pool) for records, index in parts]
        stack.callback(prepared.clear)
        return super().scanned(ctx, parts, threads, stack)

    def close(self) -> None:
        self.extents.close()
        super().close()

    def new_layout(self) -> _cpu.RecordLayout:
        # The native code gets the number of the fields of a record, up to the last one that is read.
        return _cpu.RecordLayout(self.format, self.names, max((f.number for f in self.fields), default=-1) + 1)


def read_indices(paths: Sequence[Path], store: Store) -> tuple[np.ndarray, np.ndarray]:
    """Reads index files with two integers per line.

    Returns:
      (all lines ``i64[n, 2]``, the first line of each file and the number of lines ``i64[files + 1]``).

    Raises:
      RuntimeError: a file can't be read, is empty, or has a line of another form.
    """
    # First an upper bound of the number of lines before each file, then, file by file, the number itself.
    bounds = np.cumsum([0] + [sum(1 + chunk.count(b"\n") for chunk in chunks(p, store)) for p in paths])
    table = np.empty(2 * int(bounds[-1]), np.int64)
    n = 0  # numbers so far
    for k, path in enumerate(paths):
        bounds[k] = n // 2
        lines = 0  # of this file so far
        for chunk in chunks(path, store):
            chunk = chunk.removeprefix(codecs.BOM_UTF8)
            count, bad_offset = _cpu.parse_integers(chunk, table[n:])
            if bad_offset >= 0:
                number = lines + chunk[:bad_offset].count(b"\n") + 1
                raise RuntimeError(
                    f"{os.fspath(path)}, line {number}: expected two whole numbers, got {chunk[bad_offset : bad_offset + 20]!r}"
                )
            n += count
            lines += chunk.count(b"\n")
        if n == 2 * bounds[k] or n % 2:
            raise RuntimeError(
                f"{os.fspath(path)} is not an index: it has {n - 2 * bounds[k]} numbers, expected two for each record"
            )
    bounds[len(paths)] = n // 2
    return table[:n].reshape(-1, 2), bounds


def indexed(
    reader: str,
    files: Files,
    indices: Sequence[Path | None] | None,
    make: Callable[[Path], np.ndarray],
    num_threads: int = 1,
) -> tuple[np.ndarray, np.ndarray]:
    """Reads indices of TFRecord files like `read_indices`. One that does not exist is made from its container, with a
    warning.

    Args:
      reader: name of the reader, for the warning.
      indices: one for each container; None: those that lie beside the containers and fit them, see `own_index`.
      make: makes the index of a local container, ``i64[n, 2]``.
      num_threads: the number of threads that call `make`.
    """
    own_tables: dict[int, np.ndarray] = {}

    def check(k: int, index: str) -> str:
        assert files.sizes is not None
        if not files.sizes[k]:  # the index of an empty file is empty, too
            own_tables[k] = np.empty((0, 2), np.int64)
            return ""
        table, _ = read_indices([index], files.store)
        own_tables[k] = table
        return check_extents(index, table, files.sizes[k])

    existing: Sequence[Path | None]
    if indices is None:
        existing = own_indices(reader, files, check)
    else:
        existing = [i if i is not None and (is_url(plain(i)) or os.path.exists(plain(i))) else None for i in indices]
        lacking = [files.path(k) for k, i in enumerate(existing) if i is None]
        if not lacking:
            return read_indices([i for i in existing if i is not None], files.store)
        warn_no_index(reader, files, lacking)

    def table(k: int) -> np.ndarray:
        """The index of container `k`."""
        if (index := existing[k]) is None:
            return make(files.path(k))
        return own_tables[k] if indices is None else read_indices([index], files.store)[0]

    if num_threads == 1:
        tables = list(map(table, range(len(files))))
    else:
        threads = thread_pool(num_threads, "jaxdali-index")
        try:
            tables = list(threads.map(table, range(len(files))))
        finally:
            threads.shutdown(wait=False, cancel_futures=True)
    bounds = np.cumsum([0] + [len(t) for t in tables])
    if not bounds[-1]:
        raise RuntimeError(f"there are no records in {', '.join(map(files.path, range(len(files))))}")
    return np.concatenate(tables), bounds


def chunks(path: Path, store: Store) -> Iterator[bytes]:
    """Reads a text file in parts that consist of whole lines. The first may begin with the byte-order mark of UTF-8.

    Raises:
      RuntimeError: the file can't be read, or is in UTF-16.
    """
    for number, chunk in enumerate(_chunks(path, store)):
        if not number and chunk.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise RuntimeError(f"the index {os.fspath(path)} is in UTF-16: save it as UTF-8")
        yield chunk


def _chunks(path: Path, store: Store) -> Iterator[bytes]:
    """The parts of `chunks`, without the check of the encoding. A remote file is one part."""
    try:
        if is_url(plain(path)):
            yield store.read(plain(path))
            return
        with open(plain(path), "rb") as f:
            remainder = b""
            while chunk := f.read(_CHUNK):
                head, newline, tail = chunk.rpartition(b"\n")
                if newline:
                    yield remainder + head + newline
                    remainder = tail
                else:
                    remainder += chunk
                if len(remainder) > _CHUNK:  # two numbers are far shorter
                    raise RuntimeError(f"{os.fspath(path)} is not an index: it has a line of more than {_CHUNK} bytes")
            yield remainder
    except OSError as e:
        raise RuntimeError(f"can't read the index {os.fspath(path)}: {e.strerror}") from e.__cause__


def check_indices(files: Files, indices: Sequence[Path | None]):
    """Raises RuntimeError unless there is one index for each container."""
    if len(files) != len(indices):
        raise RuntimeError(f"there must be an index for each file, got {len(files)} files and {len(indices)} indices")
