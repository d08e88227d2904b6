"""readers.parquet: columns of Parquet and Arrow files."""

from __future__ import annotations

import collections
import dataclasses
import io
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, ClassVar, Literal, Unpack

import numpy as np

from ... import _cpu
from ..._core.context import HostContext
from ..._core.declaration import Range as Limits
from ..._core.graph import DataNode
from ..._core.operator_function import operator_function
from ..._core.ragged import Packed, plan_offsets
from ..._core.values import Spec
from ..._data.files import Files, Paths, as_list
from ..._data.listed import OnError, Reader, ReaderHints, Records
from ..._data.storage import Range, Storage, Store, is_url, join

_KEPT_BYTES = 512 << 20  # of row groups that are kept decoded


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as e:
        raise ImportError('readers.parquet needs pyarrow: pip install "jaxdali[parquet]"') from e
    return pyarrow


def _spec_of(name: str, kind: Any) -> Spec:
    """Of a column. RuntimeError where its type is none of those that are read."""
    pa = _pyarrow()
    t = pa.types
    if t.is_dictionary(kind):
        kind = kind.value_type
    if t.is_struct(kind) and kind.get_field_index("bytes") >= 0:  # an image or sound as Hugging Face's datasets write it
        kind = kind.field("bytes").type
    if t.is_binary(kind) or t.is_large_binary(kind) or t.is_string(kind) or t.is_large_string(kind):
        return Spec(np.dtype(np.uint8), 1, None)
    if t.is_boolean(kind) or t.is_integer(kind) or t.is_floating(kind):
        return Spec(np.dtype(kind.to_pandas_dtype()), 0, ())
    if t.is_list(kind) or t.is_large_list(kind) or t.is_fixed_size_list(kind):
        of = kind.value_type
        if t.is_boolean(of) or t.is_integer(of) or t.is_floating(of):
            dtype = np.dtype(of.to_pandas_dtype())
            return Spec(dtype, 1, (kind.list_size,) if t.is_fixed_size_list(kind) else None)
    raise RuntimeError(f"{name} is of type {kind}; numbers, texts, bytes, lists of numbers, and images (bytes, path) are read")


@dataclasses.dataclass(frozen=True)
class _Column:
    """The rows of a column, as arrays.

    Attributes:
      values: of the rows one after another; offsets: ``i64[rows + 1]``, where each row's begin; None: a row is an element of `values`.
      valid: ``bool[rows]``; None: all are.
      other: where a row is that is not valid; None: nowhere.
    """

    values: np.ndarray
    offsets: np.ndarray | None
    valid: np.ndarray | None
    other: Callable[[int], np.ndarray] | None = None

    def row(self, i: int) -> np.ndarray:
        """Row `i`. ValueError where there is none."""
        if self.valid is not None and not self.valid[i]:
            if self.other is None:
                raise ValueError("it is null")
            return self.other(i)
        return self.values[i] if self.offsets is None else self.values[self.offsets[i] : self.offsets[i + 1]]


def _column_of(column: Any, fetch: Callable[[str], bytes]) -> _Column:
    """The rows of pyarrow's column. `fetch` gets a file that an image names instead of holding it."""
    pa = _pyarrow()
    t = pa.types
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)
    if t.is_dictionary(column.type):
        column = column.dictionary_decode()
    if t.is_struct(column.type):
        where = column.field("path") if column.type.get_field_index("path") >= 0 else None

        def beside(i: int) -> np.ndarray:
            if where is None or not where[i].is_valid:
                raise ValueError("it has neither bytes nor a path")
            return np.frombuffer(fetch(where[i].as_py()), np.uint8)

        inside = _column_of(column.field("bytes"), fetch)
        valid = _valid(column.field("bytes")) & _valid(column)
        return dataclasses.replace(inside, valid=None if valid.all() else valid, other=beside)
    valid = None if not column.null_count else _valid(column)
    if t.is_binary(column.type) or t.is_string(column.type) or t.is_large_binary(column.type) or t.is_large_string(column.type):
        offsets = _buffer(column, 1, np.int64 if str(column.type).startswith("large") else np.int32, column.offset, len(column) + 1)
        data = column.buffers()[2]
        return _Column(np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8), offsets, valid)
    if t.is_fixed_size_list(column.type):
        size = column.type.list_size
        first = column.offset * size
        return _Column(_numbers(column.values)[first : first + len(column) * size].reshape(len(column), size), None, valid)
    if t.is_list(column.type) or t.is_large_list(column.type):
        return _Column(_numbers(column.values), column.offsets.to_numpy(), valid)
    return _Column(_numbers(column), None, valid)


def _valid(column: Any) -> np.ndarray:
    return column.is_valid().to_numpy(zero_copy_only=False) if column.null_count else np.ones(len(column), bool)


def _numbers(column: Any) -> np.ndarray:
    if column.null_count:
        column = column.fill_null(False if _pyarrow().types.is_boolean(column.type) else 0)
    return column.to_numpy(zero_copy_only=False)


def _buffer(column: Any, which: int, dtype: Any, first: int, count: int) -> np.ndarray:
    buffer = column.buffers()[which]
    return np.frombuffer(buffer, dtype, count, first * np.dtype(dtype).itemsize) if buffer is not None else np.zeros(count, dtype)


class _Span(io.RawIOBase):
    """A file in a store, for pyarrow: reads by position, from what was fetched where it was."""

    def __init__(self, store: Store, path: str, size: int):
        self._store, self._path, self._size, self._at = store, path, size, 0
        self.fetched: dict[int, bytes] = {}  # by their place

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def size(self) -> int:
        return self._size

    def read(self, size: int = -1) -> bytes:
        size = self._size - self._at if size is None or size < 0 else min(size, self._size - self._at)
        for begin, data in self.fetched.items():
            if begin <= self._at and self._at + size <= begin + len(data):
                found = data[self._at - begin : self._at - begin + size]
                break
        else:
            found = self._store.read(self._path, self._at, size) if size > 0 else b""
        self._at += len(found)
        return found


class _Table:
    """One file: its schema, its groups of rows, and how one is read. Not for several threads at once."""

    def __init__(self, files: Files, i: int):
        pa = _pyarrow()
        assert files.sizes is not None
        path, size = files.path(i), files.sizes[i]
        self.lock = threading.Lock()
        self._path = None if is_url(path) else path
        self._stamp = self._stamped()
        self._file: Any = None
        if files.store.read(path, 0, min(4, size)) == b"PAR1":
            self._span = _Span(files.store, path, size) if is_url(path) else None
            self._file = pa.parquet.ParquetFile(self._span or path, memory_map=self._span is None, page_checksum_verification=True)
            self.schema = self._file.schema_arrow
            self.rows = [self._file.metadata.row_group(g).num_rows for g in range(self._file.num_row_groups)]
        else:
            source = pa.py_buffer(files.store.read(path)) if is_url(path) else pa.memory_map(path)
            try:
                opened = pa.ipc.open_file(source)
                self._batches = [opened.get_batch(g) for g in range(opened.num_record_batches)]
            except pa.ArrowInvalid:  # a stream, as Hugging Face's datasets keep them
                opened = pa.ipc.open_stream(source)
                self._batches = list(opened)
            self.schema = opened.schema
            self.rows = [b.num_rows for b in self._batches]

    def _stamped(self) -> Any:
        status = None if self._path is None else os.stat(self._path)
        return status and (status.st_size, status.st_mtime_ns)

    def check(self):
        """OSError where a local file is another one than when it was opened: one that is mapped and became shorter ends the process."""
        if self._stamped() != self._stamp:
            raise OSError(0, "the file has changed since the pipeline was built", self._path)

    def ranges(self, group: int, columns: Sequence[str]) -> list[tuple[int, int]]:
        """(place, bytes) of what is fetched of a group; nothing where that is not known, or the file is here."""
        if self._file is None or self._span is None:
            return []
        found = []
        metadata = self._file.metadata.row_group(group)
        for k in range(metadata.num_columns):
            column = metadata.column(k)
            if column.path_in_schema.split(".")[0] in columns:
                begin = column.data_page_offset
                if column.dictionary_page_offset is not None and column.dictionary_page_offset > 0:
                    begin = min(begin, column.dictionary_page_offset)
                found.append((begin, column.total_compressed_size))
        return found

    def read(self, group: int, columns: Sequence[str], fetched: dict[int, bytes]) -> Any:
        """A group's columns."""
        if self._file is None:
            return self._batches[group].select(list(columns))
        with self.lock:
            if self._span is not None:
                self._span.fetched = fetched
            return self._file.read_row_group(group, columns=list(columns), use_threads=False)


def _joined(ctx: HostContext, k: int, spec: Spec, columns: Sequence[_Column], which: np.ndarray, row: np.ndarray) -> Any:
    """Output `k`: rows of a column in groups, `columns`. Sample i is ``row[i]`` of group ``which[i]``; all are valid."""
    if spec.shape is not None:
        out = np.empty((ctx.N, *spec.shape), spec.dtype)
        for g, column in enumerate(columns):
            out[which == g] = column.values[row[which == g]]
        return out
    begin, size = np.empty(ctx.N, np.int64), np.empty((ctx.N, 1), np.int64)
    for g, column in enumerate(columns):
        assert column.offsets is not None
        rows = row[which == g]
        begin[which == g] = column.offsets[rows]
        size[which == g, 0] = column.offsets[rows + 1] - column.offsets[rows]
    offsets, need = plan_offsets(size, ctx.S)
    packed = Packed(ctx.empty(need, spec.dtype, k), offsets, size)
    item, buffers = spec.dtype.itemsize, [column.values.view(np.uint8) for column in columns]
    data = packed.data.reshape(-1).view(np.uint8)
    _cpu.copy_parts(buffers, which, begin * item, data, packed.starts * item, size[:, 0] * item, ctx.pool)
    return packed


class _Rows(Records):
    """Rows of files. A row is read with all of its group, which is kept: groups near each other in the order are read once."""

    def __init__(self, op: ReadParquet):
        pa = _pyarrow()
        self._files = files = Files.of(op.path, op.storage)
        self._columns = as_list(op.columns)
        self._tables, where, sizes, per_file = [], [], [], []
        for i in range(len(files)):
            try:
                table = _Table(files, i)
                names = table.schema.names
            except (pa.ArrowException, OSError, UnicodeDecodeError) as e:  # the last of a damaged name
                raise RuntimeError(f"{files.path(i)}: {e}") from e
            missing = [c for c in self._columns if c not in names]
            if missing:
                raise RuntimeError(f"{files.path(i)}: there is no column {missing[0]!r}; it has {', '.join(names)}")
            specs = tuple(_spec_of(f"{files.path(i)}: column {c!r}", table.schema.field(c).type) for c in self._columns)
            if i and specs != self.specs:
                raise RuntimeError(f"{files.path(i)}: its columns differ in type from those of {files.path(0)}")
            self.specs = specs
            self._tables.append(table)
            where += [(i, g) for g in range(len(table.rows))]
            sizes += table.rows
            per_file.append(sum(table.rows))
        self._groups = where
        self._first = np.cumsum([0, *sizes])
        self.bounds = np.cumsum([0, *per_file])
        if not self.bounds[-1]:
            raise RuntimeError(f"there are no rows in {', '.join(map(files.path, range(len(files))))}")
        digest = files.digest.copy()
        digest.update(repr((self._columns, sizes)).encode())
        self.digest = digest.hexdigest()[:16]
        self._decoded: collections.OrderedDict[int, tuple[int, list[_Column]]] = collections.OrderedDict()
        self._lock = threading.Lock()
        self._reading: dict[int, threading.Lock] = collections.defaultdict(threading.Lock)

    def __len__(self) -> int:
        return int(self.bounds[-1])

    def name(self, i: int) -> str:
        file = int(np.searchsorted(self.bounds, i, "right")) - 1
        return f"{self._files.path(file)}, row {i - int(self.bounds[file])}"

    @property
    def read_ahead(self) -> int:
        return self._files.read_ahead

    def ahead(self, index: np.ndarray, now: int) -> None:
        groups = np.searchsorted(self._first, index, "right") - 1
        needed = [g for g in dict.fromkeys(groups.tolist()) if g not in self._decoded]
        at_once = {*groups[:now].tolist()}
        ranges = [r for g in needed for r in self._ranges(g)]
        self._files.store.ahead(ranges, sum(len(self._ranges(g)) for g in needed if g in at_once))

    def _ranges(self, group: int) -> list[Range]:
        file, g = self._groups[group]
        return [Range(self._files.path(file), begin, size) for begin, size in self._tables[file].ranges(g, self._columns)]

    def _group(self, group: int) -> list[_Column]:
        """The columns of a group of rows."""
        self._tables[self._groups[group][0]].check()
        with self._lock:
            lock = self._reading[group]
        with lock:  # one thread reads it, the others wait for that
            with self._lock:
                if group in self._decoded:
                    self._decoded.move_to_end(group)
                    return self._decoded[group][1]
            file, g = self._groups[group]
            fetched = {r.start: self._files.store.read(*r) for r in self._ranges(group)}
            table = self._tables[file].read(g, self._columns, fetched)
            columns = [_column_of(table.column(c), lambda name: self._beside(file, name)) for c in self._columns]
            with self._lock:
                self._decoded[group] = table.nbytes, columns
                while len(self._decoded) > 1 and sum(n for n, _ in self._decoded.values()) > _KEPT_BYTES:
                    self._decoded.popitem(last=False)
            return columns

    def _beside(self, file: int, name: str) -> bytes:
        path = self._files.path(file)
        return self._files.store.read(join(path.rpartition("/")[0], name))

    def read(self, i: int) -> list[np.ndarray]:
        group = int(np.searchsorted(self._first, i, "right")) - 1
        pa = _pyarrow()
        try:
            found = []
            for name, column in zip(self._columns, self._group(group)):
                try:
                    found.append(np.asarray(column.row(i - int(self._first[group]))))
                except ValueError as e:
                    raise ValueError(f"column {name!r}: {e}") from e
            return found
        except (pa.ArrowException, ValueError) as e:
            raise ValueError(f"{self.name(i)}: {e}") from e

    @classmethod
    def read_batch(cls, ctx: HostContext, parts: Sequence[tuple[_Rows, np.ndarray]], threads: ThreadPoolExecutor) -> tuple[Any, ...]:
        columns, which, row = [], [], []  # of the groups, and of each sample its group and its row there
        for records, index in parts:
            groups, inverse = np.unique(np.searchsorted(records._first, index, "right") - 1, return_inverse=True)
            row.append(index - records._first[groups][inverse])
            which.append(inverse + len(columns))
            try:
                columns += (map if ctx.num_threads == 1 else threads.map)(records._group, groups.tolist())
            except (_pyarrow().ArrowException, ValueError, OSError):  # read one by one, each says what is wrong with it
                return super().read_batch(ctx, parts, threads)
        if any(column.valid is not None for group in columns for column in group):
            return super().read_batch(ctx, parts, threads)
        specs = parts[0][0].specs
        return tuple(
            _joined(ctx, k, spec, list(of), np.concatenate(which), np.concatenate(row))
            for k, (spec, of) in enumerate(zip(specs, zip(*columns)))
        )

    def counts(self) -> Mapping[str, int]:
        return self._files.store.counts

    def close(self) -> None:
        self._decoded.clear()
        self._files.store.close()


class ReadParquet(Reader):
    """`readers.parquet`; the fields are its arguments."""

    name: ClassVar[str] = "readers.parquet"

    path: Paths
    columns: str | tuple[str, ...]

    @property
    def num_outputs(self) -> int:
        return len(as_list(self.columns))

    def open(self) -> _Rows:
        return _Rows(self)


@operator_function(ReadParquet)
def parquet(
    *,
    path: Paths,
    columns: str | Sequence[str],
    weights: float | Sequence[float] | None = None,
    random_shuffle: bool = False,
    initial_fill: Annotated[int, Limits(1)] = 1024,
    shuffle_after_epoch: bool = False,
    shuffle_after_epoch_seed: int | None = None,
    shuffle: Literal["global"] | None = None,
    num_shards: Annotated[int, Limits(1)] = 1,
    shard_id: Annotated[int, Limits(0)] = 0,
    stick_to_shard: bool = False,
    pad_last_batch: bool = False,
    storage: Storage | None = None,
    seed: int = -1,
    on_error: OnError = "raise",
    device: Literal["cpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[ReaderHints],
) -> DataNode | tuple[DataNode, ...]:
    """Reads columns of Parquet or Arrow files, also those that Hugging Face's ``datasets`` write. Beyond DALI.

    A row is read with its row group, which is decoded once and kept while there is room (512 MB): small row groups suit random orders.

    Args:
      path: of the files (Parquet, Arrow's file or stream format), which are read one after another; patterns (``*``, ``?``, ``[``)
        stand for the files that match, in byte order.
      columns: which are read: of numbers, texts, bytes, lists of numbers, or images (structs of ``bytes`` and ``path``), of which the bytes
        are read; where these are null, the file that the path names, relative to the table's folder.
      weights: how often the files' rows come, in proportion: one number for each file that `path` names. They are mixed evenly, and an
        epoch has each row at least once: those of a file that is too small for its weight come again.
      random_shuffle: shuffle the list before it is split into shards, and each epoch of a shard in a new order.
      initial_fill: places of the buffer that this order is drawn with: small ones shuffle only locally, 1 not at all.
      shuffle_after_epoch: shuffle the order of the files anew in each epoch, alike for all shards, and read the same part of the
        list. The records of each stay together, in their order; with `weights` all records are shuffled.
      shuffle_after_epoch_seed: another seed for this than the fixed one.
      shuffle: "global": the same by `seed`, which must be one for all shards: the order of each epoch is a new permutation of the whole
        list.
      num_shards: parts that the list is split into: part i of S begins at entry ``floor(i*N/S)``.
      shard_id: the part to read, ``0 .. num_shards - 1``.
      stick_to_shard: read this part in every epoch, not the next one.
      pad_last_batch: repeat a shard's last sample until all shards are equally long and the last batch is full.
      storage: how URLs are read: `jaxdali.Storage`.
      seed: seed of the shuffling; negative: the pipeline's.
      on_error: what becomes of a record that can't be read: "raise": its batch fails. "replace": a later one of the list takes its place.
        "skip": its batch goes without it. The last two are reported by `Pipeline.bad_samples`. Beyond DALI.
      device: "cpu" or None.
      name: of the reader, for ``reader_name`` and error messages.

    Returns:
      One output for each column: a number of the column's type, shape (); ``uint8[bytes]`` of texts, bytes and images; a vector of a list.
      Their source_info is the file's path and the number of the row in it.

    Raises:
      ValueError, TypeError: arguments that contradict each other or are out of range.
      RuntimeError: at build, a file that can't be read, or lacks a column, or has one of another type. A row that can't be read, or is
        null, fails when its batch runs.

    Example:
      >>> jpegs, labels = fn.readers.parquet(path="hf://datasets/user/name/data/train-*.parquet", columns=["image", "label"])
    """
    ...
