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
from ..._core.graph import DataNode
from ..._core.operator_function import operator_function
from ..._data.files import Files, Paths, as_list
from ..._data.listed import ContainerArguments, Reader, Records
from ..._data.named_in_data import check_name, normal
from ..._data.shuffle import Groups
from ..._data.storage import ByteRange, Storage, StoreFile, is_url, join, plain
from ._arrow_messages import compressed_batches
from ._columns import (
    Column,
    column_of,
    expanded_size,
    import_pyarrow,
    needs_no_validation,
    gather_rows,
    size_without_dictionary,
    spec_of,
)

_KEPT_BYTES = 512 << 20  # of decoded row groups, for each shard


class _Table:
    """One file: its schema, its groups of rows, and how a group is read. Only one thread at a time may use it."""

    def __init__(self, files: Files, i: int):
        pa = import_pyarrow()
        assert files.sizes is not None
        path, size = files.path(i), files.sizes[i]
        self.lock = threading.Lock()  # guards the file of the package
        self._path = None if is_url(path) else path
        self._stamp = self._stamped()
        self._file: Any = None
        if files.store.read(path, 0, min(4, size)) == b"PAR1":
            self._span = StoreFile(files.store, path, size) if is_url(path) else None
            self._file = pa.parquet.ParquetFile(
                self._span or path, memory_map=self._span is None, page_checksum_verification=True
            )
            self.schema = self._file.schema_arrow
            self._numbers: dict[str, list[int]] = {}  # of the parts of a column
            self.rows = [self._file.metadata.row_group(g).num_rows for g in range(self._file.num_row_groups)]
        else:
            source = pa.py_buffer(files.store.read(path)) if is_url(path) else pa.memory_map(path).read_buffer()
            self._compressed = compressed_batches(source)
            if self._compressed is not None:
                self.schema, self.rows = self._compressed.schema, self._compressed.rows
                return
            try:
                opened = pa.ipc.open_file(source)
                self._batches = [opened.get_batch(g) for g in range(opened.num_record_batches)]
            except pa.ArrowInvalid:  # a stream, the form of Hugging Face's datasets
                opened = pa.ipc.open_stream(source)
                self._batches = list(opened)
            self.schema = opened.schema
            self.rows = [b.num_rows for b in self._batches]

    def _stamped(self) -> Any:
        status = None if self._path is None else os.stat(self._path)
        return status and (status.st_size, status.st_mtime_ns)

    def check(self):
        """Raises OSError if a local file has changed since it was opened: a mapped file that has become shorter would
        end the process.
        """
        if self._stamped() != self._stamp:
            raise OSError(0, "the file has changed since the pipeline was built", self._path)

    def ranges(self, group: int, columns: Sequence[str]) -> list[tuple[int, int]]:
        """(offset, bytes) of what is fetched of a group; empty if that is not known, or if the file is local."""
        if self._file is None or self._span is None:
            return []
        ranges = []
        for part in self._parts(group, columns):
            begin = part.data_page_offset
            if part.dictionary_page_offset is not None and part.dictionary_page_offset > 0:
                begin = min(begin, part.dictionary_page_offset)
            ranges.append((begin, part.total_compressed_size))
        return ranges

    def read(self, group: int, columns: Sequence[str], fetched: dict[int, bytes], settings: Storage) -> Any:
        """The columns of a group. Raises pyarrow.ArrowException if they can't be read, and ValueError if they are
        larger than `settings` allow.
        """
        if self._file is None:
            if self._compressed is not None:
                batch = self._compressed.read(group, columns, settings)
            else:
                batch = self._batches[group].select(list(columns))
            # Offsets and indices come unchecked from the file, and pyarrow would follow them anywhere.
            batch.validate(full=True)
            return batch
        with self.lock:
            if self._span is not None:
                self._span.fetched = fetched
            try:
                return self._read_group(group, list(columns), settings)
            finally:
                if self._span is not None:
                    self._span.fetched = {}

    def nbytes(self, group: int, columns: Sequence[str], widths: Mapping[str, float]) -> int:
        """About the size of the columns of a group in memory. `widths`: as `widths` returns them."""
        if self._file is not None:
            rows = self.rows[group]
            return sum(
                max(_decoded_size([c]), int(rows * widths.get(c.path_in_schema, 0)))
                for c in self._parts(group, columns)
            )
        if self._compressed is not None:
            return self._compressed.nbytes(group, columns)
        return sum(expanded_size(self._batches[group].column(c)) for c in columns)

    def decoded(self, columns: Sequence[str]) -> list[str]:
        """The columns that take time in proportion to their bytes when a group is read; others of a mapped file are
        taken as they are.
        """
        is_mapped = self._file is None and self._compressed is None
        return [c for c in columns if not (is_mapped and needs_no_validation(self.schema.field(c).type))]

    def widths(self, columns: Sequence[str]) -> dict[str, float]:
        """Bytes of a row in memory, by the first rows or group, in columns whose values the file may store once for
        many rows.
        """
        group = next((g for g, rows in enumerate(self.rows) if rows), None)
        widths = dict[str, float]()
        if self._file is None or group is None:
            return widths
        for part in self._parts(group, columns):
            if part.physical_type != "BYTE_ARRAY" or not part.has_dictionary_page:
                continue
            name, nbytes = part.path_in_schema, part.total_uncompressed_size
            # The group itself reports it when it is read.
            with contextlib.suppress(import_pyarrow().ArrowException, OSError):
                if nbytes < 1024 * self.rows[group]:
                    rows = next(self._file.iter_batches(100, row_groups=[group], columns=[name], use_threads=False))
                    widths[name] = expanded_size(rows.column(0)) / rows.num_rows
                elif nbytes <= _KEPT_BYTES // 2 and _is_mostly_dictionary(
                    part
                ):  # such as an image with several questions
                    size = self._size_without_dictionary(group, name)
                    if size > 1.25 * nbytes:
                        widths[name] = size / self.rows[group]
        return widths

    def _size_without_dictionary(self, group: int, name: str) -> int:
        """The size of a part of a group in memory, without expanding it."""
        source, metadata = self._span or self._path, self._file.metadata
        parquet = import_pyarrow().parquet.ParquetFile(
            source, metadata=metadata, read_dictionary=[name], memory_map=self._span is None
        )
        chunks = parquet.read_row_group(group, columns=[name], use_threads=False).column(0).chunks
        return sum(map(size_without_dictionary, chunks))

    def _parts(self, group: int, columns: Sequence[str]) -> list[Any]:
        """The metadata of the columns of a group; a struct has several."""
        metadata, schema = self._file.metadata.row_group(group), self._file.schema
        for column in columns:
            if column not in self._numbers:
                paths = [f"{schema.column(k).path}." for k in range(len(schema))]
                self._numbers[column] = [k for k, path in enumerate(paths) if path.startswith(f"{column}.")]
        return [metadata.column(k) for column in dict.fromkeys(columns) for k in self._numbers[column]]

    def _read_group(self, group: int, columns: list[str], settings: Storage) -> Any:
        metadata, parts = self._file.metadata.row_group(group), self._parts(group, columns)
        if why := settings.too_large(_decoded_size(parts)):
            raise ValueError(f"its group of rows is too large: {why}")
        # A dictionary value may stand for all rows, so that few bytes become many. A row has no more bytes than the
        # pages.
        repeated = [
            c.total_uncompressed_size
            for c in parts
            if "RLE_DICTIONARY" in c.encodings or "PLAIN_DICTIONARY" in c.encodings
        ]
        # A value may begin as the one before.
        deltas = [c.total_uncompressed_size for c in parts if "DELTA_BYTE_ARRAY" in c.encodings]
        at_once = settings.max_record_bytes // max(*repeated, *deltas, 1, 1)
        if at_once >= metadata.num_rows:
            return self._file.read_row_group(group, columns=columns, use_threads=False)
        batches, found = [], 0
        for batch in self._file.iter_batches(max(at_once, 1), row_groups=[group], columns=columns, use_threads=False):
            batches.append(batch)
            found += batch.nbytes
            if why := settings.too_large(found):
                raise ValueError(f"its group of rows is too large: {why}")
        return import_pyarrow().Table.from_batches(
            batches, self._file.schema_arrow.empty_table().select(columns).schema
        )


def _is_mostly_dictionary(part: Any) -> bool:
    """Whether most bytes of a part, of which pyarrow's metadata are given, are those of its dictionary, where each
    value is once.
    """
    begin, end = part.dictionary_page_offset, part.data_page_offset
    return begin is not None and 0 < 2 * (part.total_compressed_size - (end - begin)) < part.total_compressed_size


def _decoded_size(parts: Sequence[Any]) -> int:
    """The least bytes of columns of a group, of which pyarrow's metadata are given, in memory."""
    width = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4}  # least bytes of a value, even if it is null
    return sum(max(c.total_uncompressed_size, c.num_values * width.get(c.physical_type, 8)) for c in parts)


@dataclasses.dataclass(frozen=True, eq=False)
class _Group:
    """A decoded group of rows.

    Attributes:
      nbytes: about its size in memory.
      columns: those that are outputs; others: those that are metadata, as pyarrow has them.
    """

    nbytes: int
    columns: list[Column]
    others: list[Any]


class _Rows(Records):
    """Rows of files. A row is read with its whole group, which is kept for a while: rows that are near each other in
    the order cause one read.
    """

    def __init__(self, op: ReadParquet):
        pa = import_pyarrow()
        self._files = files = Files.of(op.path, op.storage)
        self._columns = as_list(op.columns)
        self._others: tuple[str, ...] = ()  # columns that are metadata
        asked = op.metadata_names
        self._tables, where, sizes, per_file = [], [], [], []
        for i in range(len(files)):
            try:
                table = _Table(files, i)
                names = table.schema.names
            except (pa.ArrowException, OSError, UnicodeDecodeError) as e:  # the last part of a damaged name
                raise RuntimeError(f"{files.path(i)}: {e}") from e
            if not i:
                self._others = tuple(n for n in asked if n in names)
            missing = [c for c in (*self._columns, *self._others) if c not in names]
            if missing:
                raise RuntimeError(f"{files.path(i)}: there is no column {missing[0]!r}; it has {', '.join(names)}")
            specs = tuple(spec_of(f"{files.path(i)}: column {c!r}", table.schema.field(c).type) for c in self._columns)
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
        self._widths: dict[str, float] = {}
        if op.shuffles(containers=op.weights is None):
            self._widths = self._tables[0].widths(self._read)
            self.doubts = self._large_groups()
        self._shards = 1
        self._decoded: collections.OrderedDict[int, _Group] = collections.OrderedDict()
        # Also those that only batches hold.
        self._held: weakref.WeakValueDictionary[int, _Group] = weakref.WeakValueDictionary()
        self._coming: dict[int, int] = {}  # the sizes of the groups that are being decoded
        self._lock = threading.Lock()  # guards `_decoded`, `_held`, `_coming` and `_reading`
        self._reading: dict[int, threading.Lock] = collections.defaultdict(threading.Lock)

    def __len__(self) -> int:
        return int(self.bounds[-1])

    def groups(self) -> Groups | None:
        nbytes = self._nbytes
        if nbytes.sum() <= _KEPT_BYTES or self._sizes(lambda table: table.decoded(self._read)).sum() <= _KEPT_BYTES:
            return None
        return Groups(np.diff(self._first), nbytes, _KEPT_BYTES // 2)

    @functools.cached_property
    def _nbytes(self) -> np.ndarray:
        """About the size of each group in memory."""
        return self._sizes(lambda table: self._read)

    def _sizes(self, columns: Callable[[_Table], Sequence[str]]) -> np.ndarray:
        """About the size of some columns of each group in memory."""
        names = [columns(table) for table in self._tables]
        return np.array([self._tables[file].nbytes(g, names[file], self._widths) for file, g in self._groups], np.int64)

    def _large_groups(self) -> list[str]:
        """The warning of groups that exceed the buffer of a random order."""
        groups = self.groups()
        if groups is None or not (large := int((groups.nbytes > groups.buffer).sum())):
            return []
        file, g = self._groups[int(groups.nbytes.argmax())]
        return [
            f"{large} of {len(self._groups)} row groups take more than the {groups.buffer >> 20} MB of the buffer that shuffles rows, "
            f"up to {int(groups.nbytes.max()) >> 20} MB (group {g} of {self._files.path(file)}): their rows are mixed only with rows of "
            "the same group, and a whole group is in memory; python -m jaxdali.pack writes them as records that are read one by one, and "
            "pyarrow.parquet.write_table(row_group_size=) makes smaller groups"
        ]

    def read_by(self, shards: int) -> None:
        self._shards = shards

    def name(self, i: int) -> str:
        file = int(np.searchsorted(self.bounds, i, "right")) - 1
        return f"{self._files.path(file)}, row {i - int(self.bounds[file])}"

    def facts(self) -> dict[str, Callable[[int], Any]]:
        def file(i: int) -> int:
            return int(np.searchsorted(self.bounds, i, "right")) - 1

        own = {"filename": lambda i: self._files.path(file(i)), "row": lambda i: i - int(self.bounds[file(i)])}
        return super().facts() | own

    def metadata(self, name: str) -> Callable[[int], Any] | None:
        if name not in self._others:
            return super().metadata(name)
        k = self._others.index(name)

        def value(i: int) -> Any:
            group = int(np.searchsorted(self._first, i, "right")) - 1
            try:
                return self._group(group).others[k][i - int(self._first[group])].as_py()
            except (import_pyarrow().ArrowException, ValueError) as e:
                raise ValueError(f"{self.name(i)}: column {name!r}: {e}") from e

        return value

    @property
    def read_ahead(self) -> int:
        return self._files.read_ahead

    def ahead(self, index: np.ndarray, now: int) -> None:
        groups = np.searchsorted(self._first, index, "right") - 1
        needed = [g for g in dict.fromkeys(groups.tolist()) if g not in self._decoded]
        at_once = {*groups[:now].tolist()}
        ranges = [r for g in needed for r in self._ranges(g)]
        self._files.store.ahead(ranges, sum(len(self._ranges(g)) for g in needed if g in at_once))

    def _ranges(self, group: int) -> list[ByteRange]:
        file, g = self._groups[group]
        return [
            ByteRange(self._files.path(file), begin, size) for begin, size in self._tables[file].ranges(g, self._read)
        ]

    @property
    def _read(self) -> tuple[str, ...]:
        """The columns that are read."""
        return tuple(dict.fromkeys((*self._columns, *self._others)))

    def _group(self, group: int) -> _Group:
        """A group of rows, which is decoded if neither the cache nor a batch has it."""
        self._tables[self._groups[group][0]].check()
        with self._lock:
            lock = self._reading[group]
        with lock:  # one thread reads it, the others wait
            with self._lock:
                if group in self._decoded:
                    self._decoded.move_to_end(group)
                if (found := self._held.get(group)) is not None:
                    return found
            file, g = self._groups[group]
            fetched = {r.start: self._files.store.read(*r) for r in self._ranges(group)}
            settings = self._files.store.settings
            with self._lock:
                self._coming[group] = self._tables[file].nbytes(g, self._read, self._widths)
                self._make_room(0)
            try:
                table = self._tables[file].read(g, self._read, fetched, settings)
                columns = [
                    column_of(table.column(c), lambda name: self._beside(file, name), settings.too_large)
                    for c in self._columns
                ]
                others = [table.column(c) for c in self._others]
            finally:
                with self._lock:
                    del self._coming[group]
            with self._lock:
                found = _Group(sum(c.nbytes for c in (*columns, *others)), columns, others)
                self._decoded[group] = self._held[group] = found
                self._make_room(1)
            return found

    def _make_room(self, least: int) -> None:
        """Drops the groups that were not read for the longest time, but for `least`, until all are within the limit."""
        nbytes = sum(self._coming.values()) + sum(x.nbytes for x in self._decoded.values())
        limit = self._shards * _KEPT_BYTES
        reduced = limit // 8 * 5  # if not all groups can be kept, since decoding takes memory, too
        if nbytes > reduced and self._nbytes.sum() > limit:
            limit = reduced
        while len(self._decoded) > least and nbytes > limit:
            nbytes -= self._decoded.popitem(last=False)[1].nbytes

    def _beside(self, file: int, name: str) -> bytes:
        root = self._files.path(file).rpartition("/")[0]
        check_name(name, root, self._files.store.settings, absolute=False)
        self._files.store.named_by_data([name])
        return self._files.store.read(plain(join(root, normal(name))))

    def read(self, i: int) -> list[np.ndarray]:
        group = int(np.searchsorted(self._first, i, "right")) - 1
        pa = import_pyarrow()
        try:
            found = []
            for name, column in zip(self._columns, self._group(group).columns):
                try:
                    found.append(np.asarray(column.row(i - int(self._first[group]))))
                except ValueError as e:
                    raise ValueError(f"column {name!r}: {e}") from e
            return found
        except (pa.ArrowException, ValueError) as e:
            raise ValueError(f"{self.name(i)}: {e}") from e

    @classmethod
    def read_batch(
        cls, ctx: HostContext, parts: Sequence[tuple[_Rows, np.ndarray]], threads: ThreadPoolExecutor
    ) -> tuple[Any, ...]:
        held, which, row = list[_Group](), [], []  # the groups, and for each sample its group and its row there
        for records, index in parts:
            groups, inverse = np.unique(np.searchsorted(records._first, index, "right") - 1, return_inverse=True)
            row.append(index - records._first[groups][inverse])
            which.append(inverse + len(held))
            try:
                # Groups that are in the cache come first, since the others may need their place.
                of_group = {g: records._group(g) for g in groups.tolist() if g in records._decoded}
                missing = [g for g in groups.tolist() if g not in of_group]
                of_group |= zip(missing, (map if ctx.num_threads == 1 else threads.map)(records._group, missing))
                held += [of_group[g] for g in groups.tolist()]
            except (
                import_pyarrow().ArrowException,
                ValueError,
                OSError,
            ):  # read one by one, so that each reports its own error
                return super().read_batch(ctx, parts, threads)
        columns = [group.columns for group in held]
        if any(column.valid is not None for group in columns for column in group):
            return super().read_batch(ctx, parts, threads)  # it finds the groups, since they are held here
        specs = parts[0][0].specs
        return tuple(
            gather_rows(ctx, k, spec, list(of), np.concatenate(which), np.concatenate(row))
            for k, (spec, of) in enumerate(zip(specs, zip(*columns)))
        )

    def counts(self) -> Mapping[str, int]:
        return self._files.store.counts

    def close(self) -> None:
        with self._lock:
            self._decoded.clear()
            self._held.clear()
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
