"""readers.parquet: columns of Parquet and Arrow files."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import os
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar, Unpack

import numpy as np

from ..._core.context import HostContext
from ..._core.errors import cut, quoted
from ..._core.graph import DataNode
from ..._core.operator_function import operator_function
from ..._data.files import Files, Paths, as_list
from ..._data.named_in_data import check_name, normal
from ..._data.records import Records
from ..._data.shuffle import Groups
from ..._data.storage import ByteRange, Storage, WholeFile
from ..._data.store_file import StoreFile
from ..._data.urls import is_url, join, plain
from ._arrow_messages import compressed_batches
from ._columns import (
    Column,
    column_of,
    expanded_size,
    gather_rows,
    import_pyarrow,
    needs_no_validation,
    size_without_dictionary,
    spec_of_column,
)
from ._reader import ContainerArguments, Reader

_CACHE_BYTES = 512 << 20  # limit of the decoded row groups that are kept, for each shard

_MAX_ROWS = 1 << 40  # of a file
_MAX_SIZE = 1 << 44  # of a group in bytes, more than memory: a damaged file may state any, but sums fit 64 bits


class _Table:
    """One file: its schema and its groups of rows.

    A group is a row group of Parquet, or a record batch of Arrow. In Parquet, the part of a group that belongs to a
    column of the file's schema is a "part" here (a column chunk); a struct has several. Only one thread at a time may
    use a table.

    Attributes:
      lock: guards pyarrow's file.
      schema: pyarrow's schema of the file.
      rows: the number of rows of each group.

    `_file` is pyarrow's file of Parquet, and None for Arrow. Of Arrow's files, either `_compressed` has the batches, or
    `_batches` are views of the file.
    """

    def __init__(self, files: Files, i: int):
        pa = import_pyarrow()
        assert files.sizes is not None
        path, size = files.path(i), files.sizes[i]
        self.lock = threading.Lock()
        self._path = None if is_url(path) else path
        self._stamp = self._file_stamp()
        self._file: Any = None
        # Parquet begins with its magic number. Arrow's file format begins with ARROW1, a stream with a message.
        if files.store.read(path, 0, min(4, size)) == b"PAR1":
            self._remote_file = StoreFile(files.store, path, size) if is_url(path) else None
            self._file = pa.parquet.ParquetFile(
                self._remote_file or path, memory_map=self._remote_file is None, page_checksum_verification=True
            )
            self.schema = self._file.schema_arrow
            self._part_numbers: dict[str, list[int]] = {}  # the numbers of each column's parts in a group
            self.rows = [self._file.metadata.row_group(g).num_rows for g in range(self._file.num_row_groups)]
            total = self._file.metadata.num_rows
            if min(self.rows, default=0) < 0 or sum(self.rows) != total or total > _MAX_ROWS:
                raise pa.ArrowInvalid(f"its metadata are damaged: groups of {sum(self.rows)} rows, {total} in all")
        else:
            source = (
                pa.py_buffer(files.store.read(path, 0, size)) if is_url(path) else pa.memory_map(path).read_buffer()
            )
            # None: nothing is compressed, and `_batches` are views of the file.
            self._compressed = compressed_batches(source)
            if self._compressed is not None:
                self.schema, self.rows = self._compressed.schema, self._compressed.rows
                return
            try:
                reader = pa.ipc.open_file(source)
                self._batches = [reader.get_batch(g) for g in range(reader.num_record_batches)]
            except pa.ArrowInvalid:  # a stream, the form of Hugging Face's datasets
                reader = pa.ipc.open_stream(source)
                self._batches = list(reader)
            self.schema = reader.schema
            self.rows = [b.num_rows for b in self._batches]

    def _file_stamp(self) -> Any:
        """Size and modification time of a local file, None for a remote one."""
        status = None if self._path is None else os.stat(self._path)
        return status and (status.st_size, status.st_mtime_ns)

    def check(self):
        """Raises OSError if a local file has changed since it was opened.

        Reading a mapped file that has become shorter would end the process.
        """
        if self._file_stamp() != self._stamp:
            raise OSError(0, "the file has changed since the pipeline was built", self._path)

    def ranges(self, group: int, columns: Sequence[str]) -> list[tuple[int, int]]:
        """(offset, size) of each part of a group that is fetched, in bytes; none if unknown or if the file is local."""
        if self._file is None or self._remote_file is None:
            return []
        ranges = []
        for part in self._parts(group, columns):
            # The dictionary, if there is one, stands before the data. Offset 0 also means that there is none.
            begin = part.data_page_offset
            if part.dictionary_page_offset is not None and part.dictionary_page_offset > 0:
                begin = min(begin, part.dictionary_page_offset)
            ranges.append((begin, part.total_compressed_size))
        return ranges

    def read(self, group: int, columns: Sequence[str], fetched: dict[int, bytes], settings: Storage) -> Any:
        """Reads columns of a group.

        Args:
          fetched: contents of a remote file that were fetched before, by offset.

        Raises:
          pyarrow.ArrowException: they can't be read.
          ValueError: they are larger than `settings` allow.
        """
        if self._file is None:
            if self._compressed is not None:
                batch = self._compressed.read(group, columns, settings)
            else:
                batch = self._batches[group].select(list(columns))
            # pyarrow does not check offsets and indices from the file, and would read outside of the buffers.
            batch.validate(full=True)
            return batch
        with self.lock:
            if self._remote_file is not None:
                self._remote_file.fetched = fetched
            try:
                table = self._read_group(group, list(columns), settings)
            finally:
                if self._remote_file is not None:
                    self._remote_file.fetched = {}
        if table.num_rows != self.rows[group]:
            raise ValueError(f"its group has {table.num_rows} rows, its metadata say {self.rows[group]}")
        return table

    def nbytes(self, group: int, columns: Sequence[str], widths: Mapping[str, float]) -> int:
        """The approximate size of columns of a group in memory, in bytes.

        Args:
          widths: bytes of a row by column, a result of the method `widths`.
        """
        if self._file is not None:
            rows = self.rows[group]
            return sum(
                max(_decoded_size([c]), int(rows * widths.get(c.path_in_schema, 0)))
                for c in self._parts(group, columns)
            )
        if self._compressed is not None:
            return self._compressed.nbytes(group, columns)
        return sum(expanded_size(self._batches[group].column(c)) for c in columns)

    def columns_to_decode(self, columns: Sequence[str]) -> list[str]:
        """The columns whose bytes are decoded or validated when a group is read.

        Other columns, of a mapped Arrow file, are used in place.
        """
        is_mapped = self._file is None and self._compressed is None
        return [c for c in columns if not (is_mapped and needs_no_validation(self.schema.field(c).type))]

    def widths(self, columns: Sequence[str]) -> dict[str, float]:
        """Bytes of a row in memory, by column, estimated from the first rows or the first group.

        Only for columns with a dictionary, in which the file stores a value once for many rows.
        """
        group = next((g for g, rows in enumerate(self.rows) if rows), None)
        widths = dict[str, float]()
        if self._file is None or group is None:
            return widths
        for part in self._parts(group, columns):
            if part.physical_type != "BYTE_ARRAY" or not part.has_dictionary_page:
                continue
            name, nbytes = part.path_in_schema, part.total_uncompressed_size
            # An error here is reported when the group is read.
            with contextlib.suppress(import_pyarrow().ArrowException, OSError):
                # Short values: the first 100 rows tell the mean size.
                if nbytes < 1024 * self.rows[group]:
                    rows = next(self._file.iter_batches(100, row_groups=[group], columns=[name], use_threads=False))
                    widths[name] = expanded_size(rows.column(0)) / rows.num_rows
                # An image with several questions, for example, is one value of the dictionary for several rows.
                elif nbytes <= _CACHE_BYTES // 2 and _is_mostly_dictionary(part):
                    size = self._size_without_dictionary(group, name)
                    if size > 1.25 * nbytes:  # rows clearly share values
                        widths[name] = size / self.rows[group]
        return widths

    def _size_without_dictionary(self, group: int, name: str) -> int:
        """The size of a part of a group in memory, in bytes, computed without making all copies of its values."""
        # With `read_dictionary` pyarrow keeps each value once, and the rows as indices of the values.
        source, metadata = self._remote_file or self._path, self._file.metadata
        parquet = import_pyarrow().parquet.ParquetFile(
            source, metadata=metadata, read_dictionary=[name], memory_map=self._remote_file is None
        )
        chunks = parquet.read_row_group(group, columns=[name], use_threads=False).column(0).chunks
        return sum(map(size_without_dictionary, chunks))

    def _parts(self, group: int, columns: Sequence[str]) -> list[Any]:
        """The metadata of the parts of columns of a group."""
        metadata, schema = self._file.metadata.row_group(group), self._file.schema
        for column in columns:
            if column not in self._part_numbers:
                # With a dot at the end, so that a column "a" has the part "a.bytes", but not the part "ab".
                paths = [f"{schema.column(k).path}." for k in range(len(schema))]
                self._part_numbers[column] = [k for k, path in enumerate(paths) if path.startswith(f"{column}.")]
        return [metadata.column(k) for column in dict.fromkeys(columns) for k in self._part_numbers[column]]

    def _read_group(self, group: int, columns: list[str], settings: Storage) -> Any:
        """Reads columns of a Parquet group, in batches of rows if it might be too large in memory."""
        metadata, parts = self._file.metadata.row_group(group), self._parts(group, columns)
        if reason := settings.too_large(_decoded_size(parts)):
            raise ValueError(f"its group of rows is too large: {reason}")
        # A value of a dictionary may stand for all rows, so that a small file becomes large in memory. One row has no
        # more bytes than all pages of the part, which limits the size of a batch of rows.
        repeated = [
            c.total_uncompressed_size
            for c in parts
            if "RLE_DICTIONARY" in c.encodings or "PLAIN_DICTIONARY" in c.encodings
        ]
        # With this encoding a value may repeat the beginning of the one before.
        deltas = [c.total_uncompressed_size for c in parts if "DELTA_BYTE_ARRAY" in c.encodings]
        # Two ones, because `max` takes no single number, and both lists may be empty.
        rows_at_once = settings.record_bytes // max(*repeated, *deltas, 1, 1)
        if rows_at_once >= metadata.num_rows:
            return self._file.read_row_group(group, columns=columns, use_threads=False)
        batches, nbytes = [], 0
        for batch in self._file.iter_batches(
            max(rows_at_once, 1), row_groups=[group], columns=columns, use_threads=False
        ):
            batches.append(batch)
            nbytes += batch.nbytes
            if reason := settings.too_large(nbytes):
                raise ValueError(f"its group of rows is too large: {reason}")
        return import_pyarrow().Table.from_batches(
            batches, self._file.schema_arrow.empty_table().select(columns).schema
        )


def _is_mostly_dictionary(part: Any) -> bool:
    """Whether most bytes of a part are those of its dictionary, in which each value is stored once.

    Args:
      part: pyarrow's metadata of the part.
    """
    begin, end = part.dictionary_page_offset, part.data_page_offset
    # The dictionary has the bytes `begin .. end`, and the values' indices have the others. None left: it is damaged.
    return begin is not None and 0 < 2 * (part.total_compressed_size - (end - begin)) < part.total_compressed_size


def _decoded_size(parts: Sequence[Any]) -> int:
    """A lower bound of the size of parts in memory, in bytes, by pyarrow's metadata of them."""
    # Bytes of a value of a physical type, even if it is null. Others have 8 bytes or an offset.
    width = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4}
    return sum(max(c.total_uncompressed_size, c.num_values * width.get(c.physical_type, 8)) for c in parts)


@dataclasses.dataclass(frozen=True, eq=False)
class _Group:
    """A decoded group of rows.

    Attributes:
      nbytes: its approximate size in memory.
      columns: the columns that are outputs.
      metadata: pyarrow's columns that are metadata.
    """

    nbytes: int
    columns: list[Column]
    metadata: list[Any]


class _Rows(Records):
    """Rows of files.

    A row is read with its whole group. A group is kept for a while, so that it is read once for rows that are near each
    other in the order. Groups are numbered through all files: `_groups` has (file, number in the file) of each, and
    `_first_row` its first row in the list. `_decoded` is the cache of groups.
    """

    def __init__(self, op: ReadParquet):
        """Opens the files, and numbers their groups and rows.

        Attributes of `Records` are set here: `specs` of the outputs, `bounds`, the first row of each file, `doubts`,
        warnings, and `digest`, by which checkpoints recognize the list.
        """
        pa = import_pyarrow()
        self._files = files = Files.of(op.path, op.storage)
        self._columns = as_list(op.columns)
        self._metadata_columns: tuple[str, ...] = ()  # the columns that are metadata
        # Of all groups: (file, number in the file), and number of rows. Of each file: the number of rows.
        self._tables, groups, sizes, per_file = [], [], [], []
        for i in range(len(files)):
            try:
                table = _Table(files, i)
                names = table.schema.names
            # UnicodeDecodeError: the name of a column is damaged.
            except (pa.ArrowException, OSError, UnicodeDecodeError) as e:
                raise RuntimeError(f"{files.path(i)}: {cut(str(e))}") from e
            if not i:
                self._metadata_columns = tuple(n for n in op.metadata_names if n in names)
            missing = [c for c in (*self._columns, *self._metadata_columns) if c not in names]
            if missing:
                raise RuntimeError(
                    f"{files.path(i)}: there is no column {quoted(missing[0])}; it has {cut(', '.join(names[:50]))}"
                )
            specs = tuple(
                spec_of_column(f"{files.path(i)}: column {quoted(c)}", table.schema.field(c).type)
                for c in self._columns
            )
            if i and specs != self.specs:
                raise RuntimeError(f"{files.path(i)}: its columns differ in type from those of {files.path(0)}")
            self.specs = specs
            self._tables.append(table)
            groups += [(i, g) for g in range(len(table.rows))]
            sizes += table.rows
            per_file.append(sum(table.rows))
        self._groups = groups
        self._first_row = np.cumsum([0, *sizes])  # of each group in the list, and the number of all rows
        self.bounds = np.cumsum([0, *per_file])
        if not self.bounds[-1]:
            raise RuntimeError(f"there are no rows in {', '.join(map(files.path, range(len(files))))}")
        digest = files.digest.copy()
        digest.update(repr((self._columns, sizes)).encode())
        self.digest = digest.hexdigest()[:16]
        # Bytes of a row by column, where the file stores a value once for many rows. Only a random order needs them.
        # With weights, the list that is shuffled is a `Mixed`, which has no containers.
        self._widths: dict[str, float] = {}
        if op.shuffles(containers=op.weights is None):
            self._widths = self._tables[0].widths(self._read_columns)
            self.doubts = self._large_groups()
        self._num_shards = 1  # set by `read_by`
        self._decoded: collections.OrderedDict[int, _Group] = collections.OrderedDict()  # the cache, by group
        # Includes the groups that have left the cache, but that a batch still holds.
        self._groups_in_use: weakref.WeakValueDictionary[int, _Group] = weakref.WeakValueDictionary()
        self._sizes_in_progress: dict[int, int] = {}  # sizes of the groups that are being decoded
        self._lock = threading.Lock()  # guards `_decoded`, `_groups_in_use`, `_sizes_in_progress` and `_group_locks`
        self._group_locks: dict[int, threading.Lock] = collections.defaultdict(threading.Lock)

    def __len__(self) -> int:
        return int(self.bounds[-1])

    def groups(self) -> Groups | None:
        """See `Records.groups`."""
        # A list that fits into the cache, or whose columns to decode do, is shuffled row by row.
        nbytes = self._nbytes
        if (
            nbytes.sum() <= _CACHE_BYTES
            or self._sizes(lambda table: table.columns_to_decode(self._read_columns)).sum() <= _CACHE_BYTES
        ):
            return None
        return Groups(np.diff(self._first_row), nbytes, buffer=_CACHE_BYTES // 2)

    @functools.cached_property
    def _nbytes(self) -> np.ndarray:
        """The approximate size of each group in memory, in bytes."""
        return self._sizes(lambda table: self._read_columns)

    def _sizes(self, columns: Callable[[_Table], Sequence[str]]) -> np.ndarray:
        """The approximate size of some columns of each group in memory, in bytes."""
        names = [columns(table) for table in self._tables]
        sizes = (self._tables[file].nbytes(g, names[file], self._widths) for file, g in self._groups)
        return np.array([min(max(size, 0), _MAX_SIZE) for size in sizes], np.int64)

    def _large_groups(self) -> list[str]:
        """A warning for `Records.doubts` if groups exceed the buffer of a random order."""
        groups = self.groups()
        if groups is None or not (num_large := int((groups.nbytes > groups.buffer).sum())):
            return []
        file, k = self._groups[int(groups.nbytes.argmax())]
        return [
            f"{num_large} of {len(self._groups)} row groups take more than the {groups.buffer >> 20} MB of the buffer that shuffles rows, "
            f"up to {int(groups.nbytes.max()) >> 20} MB (group {k} of {self._files.path(file)}): their rows are mixed only with rows of "
            "the same group, and a whole group is in memory; python -m jaxdali.pack writes them as records that are read one by one, and "
            "pyarrow.parquet.write_table(row_group_size=) makes smaller groups"
        ]

    def read_by(self, shards: int) -> None:
        """See `Records.read_by`. The cache has `_CACHE_BYTES` for each shard."""
        self._num_shards = shards

    def name(self, i: int) -> str:
        file = int(np.searchsorted(self.bounds, i, "right")) - 1
        return f"{self._files.path(file)}, row {i - int(self.bounds[file])}"

    def facts(self) -> dict[str, Callable[[int], Any]]:
        """See `Records.facts`. The list has many rows for each file, so the file's name is found by the row."""

        def file(i: int) -> int:
            return int(np.searchsorted(self.bounds, i, "right")) - 1

        row_facts = {"filename": lambda i: self._files.path(file(i)), "row": lambda i: i - int(self.bounds[file(i)])}
        return super().facts() | row_facts

    def metadata(self, name: str) -> Callable[[int], Any] | None:
        """See `Records.metadata`. Besides `facts`, columns are metadata: the value of pyarrow's ``as_py``."""
        if name not in self._metadata_columns:
            return super().metadata(name)
        k = self._metadata_columns.index(name)

        def read_value(i: int) -> Any:
            group = int(np.searchsorted(self._first_row, i, "right")) - 1
            try:
                return self._group(group).metadata[k][i - int(self._first_row[group])].as_py()
            except (import_pyarrow().ArrowException, ValueError) as e:
                raise ValueError(f"{self.name(i)}: column {quoted(name)}: {e}") from e

        return read_value

    @property
    def read_ahead(self) -> int:
        return self._files.read_ahead

    def ahead(self, index: np.ndarray, now: int) -> None:
        """See `Records.ahead`. Rows become the ranges of their groups, without groups that are decoded already."""
        groups = np.searchsorted(self._first_row, index, "right") - 1
        to_decode = [g for g in dict.fromkeys(groups.tolist()) if g not in self._decoded]
        needed_now = {*groups[:now].tolist()}
        ranges = [r for g in to_decode for r in self._ranges(g)]
        self._files.store.ahead(ranges, sum(len(self._ranges(g)) for g in to_decode if g in needed_now))

    def _ranges(self, group: int) -> list[ByteRange]:
        """The bytes of a group that are fetched; none if the file is local."""
        file, g = self._groups[group]
        return [
            ByteRange(self._files.path(file), begin, size)
            for begin, size in self._tables[file].ranges(g, self._read_columns)
        ]

    @property
    def _read_columns(self) -> tuple[str, ...]:
        """The columns that are read, outputs and metadata, each once."""
        return tuple(dict.fromkeys((*self._columns, *self._metadata_columns)))

    def _group(self, group: int) -> _Group:
        """A group of rows, by its number among those of all files.

        It is decoded if neither the cache nor a batch has it.

        Raises:
          OSError, ValueError, pyarrow.ArrowException: it can't be read.
        """
        file, g = self._groups[group]
        self._tables[file].check()
        with self._lock:
            group_lock = self._group_locks[group]
        with group_lock:  # one thread decodes the group, and others that need it wait
            with self._lock:
                if group in self._decoded:
                    self._decoded.move_to_end(group)
                if (decoded := self._groups_in_use.get(group)) is not None:
                    return decoded
            fetched = {r.start: self._files.store.read(*r) for r in self._ranges(group)}
            settings = self._files.store.settings
            with self._lock:
                self._sizes_in_progress[group] = self._tables[file].nbytes(g, self._read_columns, self._widths)
                self._make_room(min_kept=0)
            try:
                table = self._tables[file].read(g, self._read_columns, fetched, settings)
                columns = [
                    column_of(table.column(c), lambda name: self._read_image_file(file, name), settings.too_large)
                    for c in self._columns
                ]
                metadata = [table.column(c) for c in self._metadata_columns]
            finally:
                with self._lock:
                    del self._sizes_in_progress[group]
            with self._lock:
                decoded = _Group(sum(c.nbytes for c in (*columns, *metadata)), columns, metadata)
                self._decoded[group] = self._groups_in_use[group] = decoded
                self._make_room(min_kept=1)  # the group itself stays, even if it exceeds the limit alone
            return decoded

    def _make_room(self, min_kept: int) -> None:
        """Drops the least recently used groups until the cache is within its limit; `min_kept` groups stay."""
        nbytes = sum(self._sizes_in_progress.values()) + sum(x.nbytes for x in self._decoded.values())
        limit = self._num_shards * _CACHE_BYTES
        # If not all groups can be kept, groups are decoded all the time, which takes memory, too. With 5/8 of the limit
        # for the cache, all memory stays below the limit: measured, 436 to 445 of 512 MiB.
        reduced = limit // 8 * 5
        if nbytes > reduced and self._nbytes.sum() > limit:
            limit = reduced
        while len(self._decoded) > min_kept and nbytes > limit:
            _, dropped = self._decoded.popitem(last=False)
            nbytes -= dropped.nbytes

    def _read_image_file(self, file: int, name: str) -> bytes:
        """Reads an image that file number `file` gives by its path, relative to the folder of that file."""
        root = self._files.path(file).rpartition("/")[0]
        check_name(name, root, self._files.store.settings, absolute=False)
        self._files.store.named_by_data([name])
        return self._files.store.read_file(WholeFile(plain(join(root, normal(name)))))

    def read(self, i: int) -> list[np.ndarray]:
        """See `Records.read`: the values of row `i`, by column."""
        group = int(np.searchsorted(self._first_row, i, "right")) - 1
        pa = import_pyarrow()
        try:
            values = []
            for name, column in zip(self._columns, self._group(group).columns):
                try:
                    values.append(np.asarray(column.row(i - int(self._first_row[group]))))
                except ValueError as e:
                    raise ValueError(f"column {quoted(name)}: {e}") from e
            return values
        except (pa.ArrowException, ValueError) as e:
            raise ValueError(f"{self.name(i)}: {e}") from e

    @classmethod
    def read_batch(
        cls, ctx: HostContext, parts: Sequence[tuple[_Rows, np.ndarray]], threads: ThreadPoolExecutor
    ) -> tuple[Any, ...]:
        """See `Records.read_batch`. Rows are copied natively from their groups, if all of them can be read so."""
        # The groups, for each sample its group among them, and its row in the group.
        batch_groups, group_of_sample, row = list[_Group](), [], []
        for records, index in parts:
            groups, inverse = np.unique(np.searchsorted(records._first_row, index, "right") - 1, return_inverse=True)
            row.append(index - records._first_row[groups][inverse])
            group_of_sample.append(inverse + len(batch_groups))
            try:
                # Groups that are in the cache come first, since the others may need their place.
                group_by_number = {g: records._group(g) for g in groups.tolist() if g in records._decoded}
                missing = [g for g in groups.tolist() if g not in group_by_number]
                group_by_number |= zip(missing, (map if ctx.num_threads == 1 else threads.map)(records._group, missing))
                batch_groups += [group_by_number[g] for g in groups.tolist()]
            # Samples are then read one by one, so that each reports its own error.
            except (import_pyarrow().ArrowException, ValueError, OSError):
                return super().read_batch(ctx, parts, threads)
        columns = [group.columns for group in batch_groups]
        # Rows that are not in their column as they are; the groups are not decoded again, since they are held here.
        if any(column.valid is not None for group in columns for column in group):
            return super().read_batch(ctx, parts, threads)
        specs = parts[0][0].specs
        return tuple(
            gather_rows(ctx, k, spec, list(groups_of_column), np.concatenate(group_of_sample), np.concatenate(row))
            for k, (spec, groups_of_column) in enumerate(zip(specs, zip(*columns)))
        )

    def counts(self) -> Mapping[str, int]:
        return self._files.store.counts

    def close(self) -> None:
        with self._lock:
            self._decoded.clear()
            self._groups_in_use.clear()
        self._files.store.close()


class ReadParquet(Reader):
    """`readers.parquet`; the fields are its arguments."""

    name: ClassVar[str] = "readers.parquet"

    path: Paths
    columns: str | tuple[str, ...]

    @property
    def num_arrays(self) -> int:
        return len(as_list(self.columns))

    @property
    def gives_list(self) -> bool:
        return not isinstance(self.columns, str)

    def open(self) -> _Rows:
        return _Rows(self)


@operator_function(ReadParquet)
def parquet(
    *,
    path: Paths,
    columns: str | Sequence[str],
    **order: Unpack[ContainerArguments],
) -> DataNode | list[DataNode]:
    """Reads columns of Parquet or Arrow files, including those of Hugging Face's ``datasets``. Not in DALI.

    A row is read with its row group, which is decoded once and kept in a cache of 512 MB for each shard of the process.
    A batch holds all groups that it reads, regardless of their size.

    Lists that fit into the cache are shuffled like those of other readers, and so are bytes, images and numbers in
    Arrow files that are not compressed, whose rows are read without decoding. Others are shuffled by groups: groups
    come in random order into a buffer of 256 MB, from which rows are drawn, so that each group is decoded once in an
    epoch. Each shard reads groups of its own, and may share its first and last one. A group that exceeds the buffer is
    only shuffled in itself, with a warning. A batch comes from the few groups that are in the buffer, so in a file that
    is sorted by class it has few classes: small row groups are mixed best, and records of `jaxdali.pack` are shuffled
    one by one.

    Args:
      path: paths of the files (Parquet, or Arrow's file or stream format), which are read one after another. Patterns
        (``*``, ``?``, ``[``, ``{a,b}``, ``{000..127}``) stand for files, the matches of wildcards in byte order. A path
        that exists is literal.
      columns: the columns to read. They hold numbers, strings, bytes, images (structs of ``bytes`` and ``path``), or
        lists of these. For images the bytes are read; if these are null, the file at the path is read, relative to the
        table's folder.
      random_shuffle: whether to shuffle rows and groups once, before they are split into shards, and the rows of each
        shard anew in each epoch, see `initial_fill`.
      initial_fill: size of the shuffle buffer of `random_shuffle`; with 1 all epochs have the order of the first. In
        lists of shuffled groups, a row moves by at most half of it, while its group is in the buffer of groups.
      shuffle: "global": the order of each epoch is a new one of the whole list, by `seed`, which must be the same for
        all shards. Not in DALI.
      metadata: names, each of which adds an output of Python objects after the others, for `python_function` and for
        the lists of a batch (not in DALI). Names of columns of any type, whose values are those of pyarrow's ``as_py``
        (a `str`, a number, a list, a dict, None). Other names are "filename"; "row": the number of the row in its file;
        "index": the number in the list; "source_info".

    Returns:
      One output per column, in a list if `columns` is a list (even of a single name). Numbers have the column's type
      and shape (); strings, bytes and images are ``uint8[bytes]``; lists of numbers are vectors; lists of the others
      are ``uint8[elements, longest]`` of layout "F*", in which zeros follow shorter ones: `decoders.image` makes
      sequences FHWC of those. Their source_info is the file's path and the number of the row in the file.

    Raises:
      ValueError, TypeError: arguments that contradict each other or are out of range.
      RuntimeError: when the pipeline is built, a file can't be read, lacks a column, or has one of another type. A row
        that can't be read, is null, or is a list with a null fails when its batch runs.

    Example:
      >>> jpegs, labels = fn.readers.parquet(path="hf://datasets/user/name/data/train-*.parquet", columns=["image", "label"])
    """
    ...
