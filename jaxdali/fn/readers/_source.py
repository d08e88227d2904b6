"""readers.source: the items of a user's data set.

`fn/_source` has external_source; `_data/source.py` is the interface of both to the executor.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, ClassVar, Literal, Unpack

import numpy as np

from ..._core.building import add, warn
from ..._core.context import HostContext
from ..._core.declaration import Range
from ..._core.errors import ArgumentError, ArgumentTypeError
from ..._core.graph import DataNode
from ..._core.jax_settings import UserSettings
from ..._core.operator_function import operator_function
from ..._core.values import Spec
from ..._cpu import Status
from ..._data import source_worker
from ..._data.arrays import Arrays
from ..._data.files import as_list
from ..._data.packing import Sequences, lay_out, pack_whole, packing_order
from ..._data.processes import Item, Processes, Row
from ..._data.records import Records
from ._reader import MixedArguments, Reader, by_name

NAME = "readers.source"


class DataSet:
    """A user's data set, or several that are mixed. All shards with the same data set share one object.

    Args:
      parts: the data sets.
      layouts, shapes: the reader's arguments `layout` and `shape`.
      metadata: see below.
      tokens: keys of values that are packed as tokens, which may have any integer type.

    Attributes:
      bounds: the first record of each data set, and the record after the last.
      lengths: lengths of the items, if they are grouped by length; ``i64[items, limits]``, if they are packed.
      keys: keys of the items, as `source_worker.leaves` returns them: a tuple of the keys of dictionaries, the number
        of values of tuples, or None for an item that is one value.
      specs: specs of the items' values.
      metadata: keys of the items whose values are passed on as Python objects.
      seen_shapes: the shapes of the first item's values.
      description: the classes of the data sets, for messages.
      arrays: the data set, if it is arrays of numbers, whose rows need no conversion.
    """

    lengths: np.ndarray | None = None
    arrays: Arrays | None = None

    def __init__(
        self, parts: Sequence[Any], layouts: Any, shapes: Any, metadata: Sequence[str] = (), tokens: Sequence[str] = ()
    ):
        self.parts, self.metadata, self._tokens = tuple(parts), tuple(metadata), tuple(tokens)
        sizes = [0]
        for part in self.parts:
            if not (hasattr(part, "__len__") and hasattr(part, "__getitem__")):
                raise ArgumentTypeError(
                    f"{NAME}: a data set needs __len__ and __getitem__, which a {type(part).__name__} does not have"
                    f"{'; fn.external_source takes iterables, in pipelines' if hasattr(part, '__iter__') else ''}"
                )
            try:
                sizes.append(len(part))
            except OverflowError as e:
                raise ArgumentError(f"{NAME}: the length of {_describe(part)} is wrong: {e}") from e
            if not sizes[-1]:
                raise ArgumentError(f"{NAME}: {_describe(part)} is empty")
        self.bounds = np.cumsum(sizes)
        self.description = ", ".join(map(_describe, self.parts))
        first_item = source_worker.read(self.parts, (0, 0), self.metadata)
        if isinstance(first_item, str):
            raise RuntimeError(f"{NAME}: item 0 of {self.description} can't be read: {first_item}")
        self.keys, arrays, _ = first_item
        if not arrays:
            raise ArgumentError(
                f"{NAME}: item 0 of {self.description} is empty{', but for its metadata' if metadata else ''}"
            )
        layouts, shapes = self._per_value("layout", layouts, str), self._per_value("shape", shapes, tuple)
        if len(parts) == 1 and isinstance(parts[0], Arrays):
            assert isinstance(self.keys, tuple)
            shapes = [shape or parts[0].row_shape(key) for key, shape in zip(self.keys, shapes, strict=True)]
            self.arrays = parts[0] if parts[0].have_numbers(self.keys) else None
        keys = self.keys if isinstance(self.keys, tuple) else [None] * len(arrays)
        arrays = [
            _typed(a, np.dtype(np.int32) if key in self._tokens else a.dtype, 1, layout)
            for key, a, layout in zip(keys, arrays, layouts, strict=True)
        ]
        self.seen_shapes = tuple(a.shape for a in arrays)
        self.specs = tuple(
            _spec(self.output_name(k), a, t, s) for k, (a, t, s) in enumerate(zip(arrays, layouts, shapes))
        )
        self._forms = [
            (s.dtype, s.ndim, [(axis, n) for axis in range(s.ndim) if (n := s.extent(axis)) is not None])
            for s in self.specs
        ]

    def output_name(self, k: int) -> str:
        """The name of output k, for messages."""
        return (
            f"key {self.keys[k]!r}"
            if isinstance(self.keys, tuple)
            else "the value"
            if self.keys is None
            else f"value {k}"
        )

    def _per_value(self, name: str, argument: Any, single: type) -> list[Any]:
        """The entry of an argument for each value of an item, None where it has none.

        Args:
          single: str for layouts, of which a single one is a str; tuple for shapes.
        """
        count = len(self.keys) if isinstance(self.keys, tuple) else self.keys or 1
        if argument is None:
            return [None] * count
        if isinstance(argument, Mapping):
            if not isinstance(self.keys, tuple) or not {*argument} <= {*self.keys}:
                raise ArgumentError(f"{NAME}: {name} has the keys {[*argument]}; the items have {self.keys}")
            return [argument.get(k) for k in self.keys]
        # A single shape has only numbers and None; a list of shapes has tuples, too.
        is_single = (
            isinstance(argument, str) if single is str else all(x is None or isinstance(x, int) for x in argument)
        )
        if is_single:
            if count > 1:
                raise ArgumentError(
                    f"{NAME}: the items have {count} values: {name} must be a list of {count}, with None for those that are not known"
                )
            return [argument]
        if len(argument) != count:
            raise ArgumentError(f"{NAME}: {name} has {len(argument)} entries, the items have {count} values")
        return [*argument]

    def check_item(self, keys: Any, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The values of an item, in the order of the first item's keys. Raises ValueError if they have another form."""
        if keys == self.keys and all(
            (a.dtype, a.ndim) == (dtype, ndim) and all(a.shape[axis] == n for axis, n in extents)
            for a, (dtype, ndim, extents) in zip(arrays, self._forms)
        ):
            return [*arrays]
        if isinstance(self.keys, tuple) and isinstance(keys, tuple) and {*keys} == {*self.keys}:
            by_key = dict(zip(keys, arrays))
            arrays = [by_key[k] for k in self.keys]
        elif keys != self.keys:
            raise ValueError(f"it has {_form(keys)}, the first item has {_form(self.keys)}")
        arrays = [_typed(a, spec.dtype, spec.ndim, spec.layout) for a, spec in zip(arrays, self.specs, strict=True)]
        for k, (a, spec) in enumerate(zip(arrays, self.specs)):
            is_token = isinstance(self.keys, tuple) and self.keys[k] in self._tokens and a.dtype.kind in "iu"
            if (a.dtype, a.ndim) != (a.dtype if is_token else spec.dtype, spec.ndim):
                is_other_mode = {a.dtype.name, spec.dtype.name} <= {"uint8", "bool"} and {a.ndim, spec.ndim} == {2, 3}
                # Gray (2-D) and coloured (3-D) images of Pillow, or bitmaps.
                advice = '; image.convert("RGB") gives images of Pillow one mode' if is_other_mode else ""
                if (0,) in (a.shape, self.seen_shapes[k]) and np.uint8 in (a.dtype, spec.dtype):
                    layout = f"{{{self.keys[k]!r}: 'F*'}}" if isinstance(self.keys, tuple) else "'F*'"
                    advice = f"; layout={layout} says that it is lists of files, which may be empty"
                forms = f"{a.ndim}-D {a.dtype}, in the first item it is {spec.ndim}-D {spec.dtype}"
                raise ValueError(f"{self.output_name(k)} is {forms}: all items must agree{advice}")
            extents = [spec.extent(axis) for axis in range(spec.ndim)]
            if any(n is not None and n != m for n, m in zip(extents, a.shape)):
                raise ValueError(
                    f"{self.output_name(k)} must have the shape {tuple(extents)} (None: any extent), got {a.shape}"
                )
        return arrays

    def __eq__(self, other: object) -> bool:
        """Whether both have the same objects as data sets, and equal specs, metadata and lengths."""
        if not isinstance(other, DataSet) or self._identity() != other._identity():
            return False
        if (self.metadata, self.specs) != (other.metadata, other.specs):
            return False
        if self.lengths is None or other.lengths is None:
            return self.lengths is other.lengths
        return np.array_equal(self.lengths, other.lengths)

    def __hash__(self) -> int:
        return hash(self._identity())

    def _identity(self) -> tuple[Any, ...]:
        """Equal for equal objects. A user's own comparison of data sets may compare their contents."""
        return tuple(part if isinstance(part, Arrays) else id(part) for part in self.parts)

    def __len__(self) -> int:
        return int(self.bounds[-1])

    def rows(self, index: np.ndarray) -> list[np.ndarray] | None:
        """Copies of rows of arrays of numbers, an array for each key; None: items have to be read and checked."""
        return None if self.arrays is None else self.arrays.rows(self.keys, index)

    def items(self, index: np.ndarray) -> list[Item]:
        """Of each record the number of its data set, and the index in it."""
        parts = np.searchsorted(self.bounds, index, "right") - 1
        return [*zip(parts.tolist(), (index - self.bounds[parts]).tolist())]

    def name(self, i: int) -> str:
        """The name of record i, for source_info and messages."""
        ((part, index),) = self.items(np.array([i]))
        kind = "row" if isinstance(self.parts[part], Arrays) else type(self.parts[part]).__name__
        return f"{kind}[{index}]"


def _form(keys: Any) -> str:
    """Describes the keys that `source_worker.leaves` returned for an item."""
    if keys is None:
        return "one value"
    return f"the keys {keys}" if isinstance(keys, tuple) else f"{keys} values"


def _typed(a: np.ndarray, dtype: np.dtype, ndim: int, layout: str | None) -> np.ndarray:
    """The value `a`; an empty list, which has no type, as the vector or the files that are expected in its place."""
    if a.shape == (0,) and layout == "F*":
        return np.zeros((0, 0), np.uint8)
    return np.zeros(0, dtype) if a.shape == (0,) and a.dtype == np.float64 and ndim == 1 else a


def _describe(part: Any) -> str:
    return "the arrays" if isinstance(part, Arrays) else f"the data set {type(part).__name__}"


def _spec(name: str, a: np.ndarray, layout: str | None, shape: Sequence[int | None] | None) -> Spec:
    """The spec of a value by the first item's array `a`, with the extents that `shape` fixes."""
    layout = layout or ""
    if layout and len(layout) != a.ndim:
        files = "; F* is for files, lists of bytes" if layout == "F*" and a.ndim > 1 else ""
        raise ArgumentError(f"{NAME}: layout {layout!r} describes {len(layout)} dimensions, {name} has {a.ndim}{files}")
    if a.ndim == 0:
        return Spec(a.dtype, 0, (), layout)
    if shape is not None:
        if len(shape) != a.ndim or any(n is not None and n != m for n, m in zip(shape, a.shape)):
            raise ArgumentError(
                f"{NAME}: shape {tuple(shape)} does not fit {name} of the first item, whose shape is {a.shape}"
            )
        fixed = tuple(n for n in shape if n is not None)
        if len(fixed) == a.ndim:
            return Spec(a.dtype, a.ndim, fixed, layout)
        return Spec(a.dtype, a.ndim, None, layout, tuple(shape) if fixed else None)
    return Spec(a.dtype, a.ndim, None, layout)


class DataSetItems(Records):
    """The items of a data set.

    Args:
      num_workers: the number of processes that read; 0: items are read in the calling thread.
      mixed: whether the data sets are mixed by weights, so that each is a container.

    `_objects` are the metadata of the items of the last batch, by item.
    """

    def __init__(self, data: DataSet, num_workers: int, mixed: bool):
        """Attributes of `Records` are set here: `specs` of the outputs, `seen_shapes`, the shapes of the first item's
        values, `bounds` if the data sets are mixed, `lengths` if items are grouped by length, and `digest`, by which
        checkpoints recognize the list.
        """
        self._data = data
        self.specs, self.seen_shapes = data.specs, data.seen_shapes
        if mixed:
            self.bounds = data.bounds
        # (module, class, number of items) of each data set: the digest can't depend on the items, which are only known
        # when they are read.
        kinds = [
            (type(p).__module__, type(p).__qualname__, n) for p, n in zip(data.parts, np.diff(data.bounds).tolist())
        ]
        self.digest = f"{kinds}, {[(s.dtype.name, s.ndim) for s in data.specs]}"
        if data.lengths is not None:
            self.lengths = data.lengths
            self.digest += f", lengths {hashlib.sha256(data.lengths.tobytes()).hexdigest()[:16]}"
        self._settings = UserSettings()
        self._processes = Processes(data.parts, num_workers, data.description, data.metadata) if num_workers else None
        self._objects: dict[int, Sequence[Any]] = {}
        self._num_workers = num_workers
        self.ends_reads = num_workers > 0  # `close` ends the processes

    def __len__(self) -> int:
        return len(self._data)

    def name(self, i: int) -> str:
        return self._data.name(i)

    def metadata(self, name: str) -> Callable[[int], Any] | None:
        """See `Records.metadata`. An item's own metadata are there after it was read, until the next batch."""
        if name not in self._data.metadata:
            return super().metadata(name)
        if (arrays := self._data.arrays) is not None:
            return lambda i: arrays[i][name]  # a copy
        k = self._data.metadata.index(name)
        return lambda i: self._objects[i][k]

    @property
    def read_ahead(self) -> int:
        return 4 * self._num_workers

    def ahead(self, index: np.ndarray, now: int) -> None:
        if self._processes is not None:
            # Small enough that all processes get a part of a batch.
            items_at_once = max(1, min(16, now // (4 * self._num_workers)))
            self._processes.ahead(self._data.items(index), items_at_once)

    def _rows(self, index: Sequence[int]) -> list[Row]:
        """Reads items, in worker processes if there are any. A row has the values of an item, or an error."""
        items = self._data.items(np.asarray(index))
        if self._processes is not None:
            return self._processes.take(items)
        with self._settings.contexts(self._settings.mesh):
            results = [source_worker.read(self._data.parts, item, self._data.metadata) for item in items]
        # A str is an error: its row has no keys, values and metadata.
        return [Row(None, (), (), error=x) if isinstance(x, str) else Row(*x) for x in results]

    def _check_row(self, i: int, row: Row) -> list[np.ndarray]:
        """The arrays of item `i`, whose metadata are kept for `metadata`. Raises ValueError."""
        if row.error:
            raise ValueError(f"{self.name(i)}: {row.error}")
        self._objects[i] = row.objects
        try:
            return self._data.check_item(row.keys, row.arrays)
        except ValueError as e:
            raise ValueError(f"{self.name(i)}: {e}") from None

    def read(self, i: int) -> list[np.ndarray]:
        (row,) = self._rows([i])
        return self._check_row(i, row)

    def forget(self) -> None:
        """Drops the metadata of the items that were read."""
        self._objects.clear()

    def values(self, index: Sequence[int]) -> list[list[np.ndarray] | str]:
        """The values of items, or as text the reason why an item can't be read.

        Without processes, one item is read after another, as a data set may keep an open file.
        """
        values: list[list[np.ndarray] | str] = []
        for i, row in zip(index, self._rows(index), strict=True):
            try:
                values.append(self._check_row(i, row))
            except ValueError as e:
                values.append(str(e))
        return values

    @classmethod
    def read_batch(
        cls, ctx: HostContext, parts: Sequence[tuple[DataSetItems, np.ndarray]], threads: ThreadPoolExecutor
    ) -> tuple[Any, ...]:
        """See `Records.read_batch`. Rows of arrays are copied together, without a look at each."""
        rows = [x for items, index in parts if (x := items._data.rows(index)) is not None]
        if len(rows) == len(parts):
            columns = [x[0] if len(x) == 1 else np.concatenate(x) for x in zip(*rows, strict=True)]
            specs = parts[0][0].specs
            return tuple(list(x) if s.shape is None else x for s, x in zip(specs, columns, strict=True))
        for items, _ in parts:
            items.forget()
        return batch_of_rows(
            ctx, parts[0][0].specs, [x for items, index in parts for x in items.values(index.tolist())]
        )

    def close(self) -> None:
        if self._processes is not None:
            self._processes.close()


def batch_of_rows(ctx: HostContext, specs: Sequence[Spec], rows: list[list[np.ndarray] | str]) -> tuple[Any, ...]:
    """The outputs of a batch, as `Records.read_batch` returns them. A row has the outputs of a sample, or as text the
    reason why it fails.
    """
    columns = []
    for k, row in enumerate(rows):
        if isinstance(row, str):
            ctx.fail(k, Status.RECORD, row)
            row = [np.zeros(s.shape or (0,) * s.ndim, s.dtype) for s in specs]
        columns.append(row)
    return tuple(
        np.stack(column) if s.shape is not None else list(column)
        for s, column in zip(specs, zip(*columns), strict=True)
    )


class PackedItems(Sequences):
    """Sequences of whole items.

    Args:
      data: the data set, with the lengths of its items.
      num_workers, packing, length, tokens, pad_id, packing_seed: the reader's arguments, sequences as tuples.
    """

    _records: DataSetItems

    def __init__(
        self,
        data: DataSet,
        num_workers: int,
        packing: Literal["first_fit", "sequential"],
        length: Sequence[int],
        tokens: Sequence[str],
        pad_id: int,
        packing_seed: int | None,
    ):
        """Distributes the items among sequences, by their lengths.

        Attributes of `Records` are set here: `specs` of the outputs, `ends_reads`, `doubts`, about items that are left
        out, and `digest`, by which checkpoints recognize the list.
        """
        records, lengths = DataSetItems(data, num_workers, mixed=False), data.lengths
        assert lengths is not None
        self._data, self._lengths, self._length = data, lengths, length[0]
        self._tokens, self._pad = tokens, pad_id
        order, long = packing_order(len(data), packing_seed), long_items(lengths, length)
        if len(long):
            self.doubts = [
                f"{len(long)} of {len(data)} items are left out, as they are too long: "
                f"{excess(data, lengths, int(long[0]), length)}; a larger length packs them"
            ]
            order = order[~np.isin(order, long)]
        super().__init__(records, pack_whole(lengths, order, length, packing))
        self.specs = tuple(packed_specs(data, tokens, length).values())
        self.ends_reads = records.ends_reads
        self.digest = (
            f"{records.digest}, {packing} to {length}, tokens {tokens}, pad_id {pad_id}, packing_seed {packing_seed}"
        )

    @property
    def read_ahead(self) -> int:
        """See `Records.read_ahead`: as many sequences as have the items that are to be read ahead."""
        return -(-self._records.read_ahead * len(self) // len(self._pieces.record))

    def metadata(self, name: str) -> Callable[[int], Any] | None:
        """See `Records.metadata`. Keys of items give a list for each sequence."""
        if name not in self._data.metadata:
            return super().metadata(name)
        function = self._records.metadata(name)
        assert function is not None  # as for every key
        return lambda i: [function(item) for item in self._pieces.record[self._pieces_of(i)].tolist()]

    @classmethod
    def read_batch(
        cls, ctx: HostContext, parts: Sequence[tuple[PackedItems, np.ndarray]], threads: ThreadPoolExecutor
    ) -> tuple[Any, ...]:
        """See `Records.read_batch`."""
        for sequences, _ in parts:
            sequences._records.forget()
        rows = [x for sequences, index in parts for x in sequences._outputs(index)]
        return batch_of_rows(ctx, parts[0][0].specs, rows)

    def _outputs(self, index: np.ndarray) -> list[list[np.ndarray] | str]:
        """The outputs of sequences, or as text the reason why one fails."""
        items, sequence_of_item = self._records_of(index)
        values = self._records.values(items.tolist())
        bounds = np.searchsorted(sequence_of_item, np.arange(len(index) + 1)).tolist()
        outputs: list[list[np.ndarray] | str] = []
        for begin, end in itertools.pairwise(bounds):
            read = [x for x in values[begin:end] if not isinstance(x, str)]
            if len(read) < end - begin:
                outputs.append(next(x for x in values[begin:end] if isinstance(x, str)))
                continue
            try:
                outputs.append(self._sequence(items[begin:end].tolist(), read))
            except ValueError as e:
                outputs.append(str(e))
        return outputs

    def _sequence(self, items: Sequence[int], values: Sequence[list[np.ndarray]]) -> list[np.ndarray]:
        """The outputs of one sequence. Raises ValueError if its items don't fit together.

        Args:
          items: the numbers of its items.
          values: the values of each.
        """
        outputs = []
        keys: Any = self._data.keys  # a tuple, as items are dictionaries
        for key, spec, column in zip(keys, self._data.specs, zip(*values), strict=True):
            if key in self._tokens:
                outputs += self._concatenated(key, items, column)
            elif _is_file(spec):
                outputs.append(_rows(column))
            elif _is_files(spec):
                outputs.append(_rows(column))
                outputs.append(np.repeat(np.arange(1, len(column) + 1, dtype=np.int32), [len(x) for x in column]))
            else:
                for i, x in zip(items, column, strict=True):
                    if x.shape != column[0].shape:
                        files = f'layout={{{key!r}: "F*"}} if its rows are files, '
                        images = "of images the bytes of their files (datasets.Image(decode=False)), "
                        raise ValueError(
                            f"{self._data.name(i)}: key {key!r} has the shape {x.shape}, in {self._data.name(items[0])} "
                            f"of the same sequence it is {column[0].shape}: values of the items of a sequence are "
                            f"stacked; give all one shape, {files * (spec.dtype == np.uint8 and spec.ndim == 2)}"
                            f"{images * (spec.dtype == np.uint8 and spec.ndim == 3)}or take them out of the arrays by "
                            f"metadata=[{key!r}]"
                        )
                outputs.append(np.stack(column))
        return outputs

    def _concatenated(self, key: Any, items: Sequence[int], pieces: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
        """The tokens of a sequence's items, their segments and positions. Raises ValueError if they have no room, or no
        place in int32.
        """
        limits = np.iinfo(np.int32)
        for i, piece in zip(items, pieces, strict=True):
            if len(piece) and (int(piece.min()) < limits.min or int(piece.max()) > limits.max):
                raise ValueError(f"{self._data.name(i)}: key {key!r} has tokens that do not fit into int32")
        length = self._length
        if sum(map(len, pieces)) > length:
            for i, piece in zip(items, pieces, strict=True):
                if len(piece) > self._lengths[i, 0]:
                    raise ValueError(
                        f"{self._data.name(i)}: key {key!r} has {len(piece)} tokens and lengths says "
                        f"{self._lengths[i, 0]}: its sequence exceeds {length} tokens"
                    )
        tokens = np.full(length, self._pad, np.int32)
        segments, positions = np.zeros((2, length), np.int32)
        lay_out(pieces, tokens, segments, positions)
        return tokens, segments, positions


def _is_file(spec: Spec) -> bool:
    """Whether a value is the bytes of one file."""
    return spec.dtype == np.uint8 and spec.ndim == 1


def _is_files(spec: Spec) -> bool:
    """Whether a value is the bytes of several files, one for each row."""
    return spec.dtype == np.uint8 and spec.layout == "F*"


def _rows(values: Sequence[np.ndarray]) -> np.ndarray:
    """``u8[F, longest]``: the bytes of files, with zeros after shorter ones.

    Args:
      values: the files of each item, ``u8[bytes]`` or ``u8[files, longest]``.
    """
    return source_worker.file_rows([row for x in values for row in (x[None] if x.ndim == 1 else x)])


def packed_specs(data: DataSet, tokens: Sequence[str], length: Sequence[int]) -> dict[Any, Spec]:
    """The outputs of packed items by name. Raises ArgumentError if a value can't be packed, or two have one name.

    Args:
      tokens, length: the reader's arguments, as tuples.
    """
    if not isinstance(data.keys, tuple):
        raise ArgumentError(f"packing is for items that are dictionaries; an item of {data.description} is none")
    if missing := [key for key in tokens if key not in data.keys]:
        raise ArgumentError(
            f"tokens has {missing[0]!r}; the items have the keys {data.keys} (tokens=[] packs items without tokens)"
        )
    outputs: list[tuple[Any, Spec]] = []
    for key, spec in zip(data.keys, data.specs, strict=True):
        if key in tokens:
            if spec.ndim != 1 or spec.dtype.kind not in "iu":
                raise ArgumentError(f"tokens has {key!r}, which must be 1-D integers, got {spec.ndim}-D {spec.dtype}")
            for name in (key, f"{key}_segment_ids", f"{key}_positions"):
                outputs.append((name, Spec(np.dtype(np.int32), 1, (length[0],))))
        elif _is_file(spec):
            outputs.append((key, Spec(spec.dtype, 2, None, "F*")))
        elif _is_files(spec):
            outputs.append((key, spec))
            outputs.append((f"{key}_segment_ids", Spec(np.dtype(np.int32), 1, None, "F")))
        else:
            # Of axes that are frames already no letter is left for the items.
            layout = f"F{spec.layout}" if "F" not in spec.layout and len(spec.layout) == spec.ndim else ""
            extents = (None, *(spec.extent(axis) for axis in range(spec.ndim)))
            outputs.append((key, Spec(spec.dtype, spec.ndim + 1, None, layout, extents)))
    names = [name for name, _ in outputs]
    if repeated := [name for name in names if names.count(name) > 1]:
        raise ArgumentError(f"the items have the key {repeated[0]!r}, which packing gives to an output of its own")
    return dict(outputs)


def long_items(lengths: np.ndarray, length: Sequence[int]) -> np.ndarray:
    """``i64[..]``: the items that are longer than a sequence."""
    return np.flatnonzero((lengths > np.array(length)).any(axis=1))


def excess(data: DataSet, lengths: np.ndarray, i: int, length: Sequence[int]) -> str:
    """Describes by how much item `i` is longer than a sequence."""
    limit = int((lengths[i] > np.array(length)).argmax())
    place = f" in column {limit} of lengths" if len(length) > 1 else ""
    return f"{data.name(i)} has {lengths[i, limit]}, more than {length[limit]}{place}"


class ReadSource(Reader):
    """`readers.source`; the fields are its arguments."""

    name: ClassVar[str] = NAME

    data: DataSet = dataclasses.field(compare=False)
    num_workers: int
    packing: Literal["none", "first_fit", "sequential"]
    packing_seed: int | None
    length: tuple[int, ...]
    pad_id: int
    tokens: tuple[str, ...]

    def __post_init__(self):
        super().__post_init__()
        if not -(2**31) <= self.pad_id < 2**31:
            raise ArgumentError(f"pad_id must be an int32, got {self.pad_id}")
        if self.packing == "none":
            defaults = {"packing_seed": None, "pad_id": 0, "tokens": ("tokens",)}
            if names := [name for name, default in defaults.items() if getattr(self, name) != default]:
                raise ArgumentError(f'{names[0]} is for packing="first_fit" or "sequential"')
            return
        if self.weights is not None:
            raise ArgumentError(
                'weights mixes single items, and is for packing="none": the items of a packed sequence belong together'
            )
        assert self.data.lengths is not None
        long = long_items(self.data.lengths, self.length)
        if len(long) and (self.on_error == "raise" or len(long) == len(self.data)):
            advice = ', and on_error="skip" leaves it out' if len(long) < len(self.data) else ""
            raise ArgumentError(
                f"{excess(self.data, self.data.lengths, int(long[0]), self.length)}: items stay whole; a larger length "
                f"packs it{advice}"
            )

    @property
    def outputs(self) -> dict[Any, Spec]:
        """The outputs by name; of items that are no dictionaries, their numbers are the names."""
        if self.packing != "none":
            return packed_specs(self.data, self.tokens, self.length)
        keys = self.data.keys if isinstance(self.data.keys, tuple) else range(len(self.data.specs))
        return dict(zip(keys, self.data.specs, strict=True))

    @property
    def num_arrays(self) -> int:
        return len(self.outputs)

    def open(self) -> DataSetItems | PackedItems:
        if self.packing == "none":
            return DataSetItems(self.data, self.num_workers, self.weights is not None)
        return PackedItems(
            self.data, self.num_workers, self.packing, self.length, self.tokens, self.pad_id, self.packing_seed
        )


def _check_lengths(
    lengths: Any, group_by_length: int, packing: str, length: Sequence[int], num_items: int
) -> np.ndarray | None:
    """The argument `lengths` as an array, of packed items ``i64[items, limits]``; None if it is not given. Raises
    ArgumentError if it does not fit.
    """
    if packing == "none":
        if length:
            raise ArgumentError('length is for packing="first_fit" or "sequential"')
        if (lengths is None) != (group_by_length == 0):
            raise ArgumentError("lengths and group_by_length must be given together, or lengths, length and packing")
        if lengths is None:
            return None
    else:
        if group_by_length:
            raise ArgumentError(
                f'group_by_length is for packing="none": of packing="{packing}" all sequences have one length'
            )
        if lengths is None or not length:
            raise ArgumentError(f'packing="{packing}" needs length, and lengths with a number for each item')
    try:
        array = np.asarray(lengths)
    except ValueError:  # lists of different lengths
        raise ArgumentError(f"lengths must have equally many numbers for each of the {num_items} items") from None
    if packing == "none":
        if array.shape != (num_items,) or array.dtype.kind not in "iuf":
            raise ArgumentError(
                f"lengths must have a number for each of the {num_items} items, got shape {array.shape} of {array.dtype}"
            )
        return array
    if array.ndim == 2 and array.shape[1] != len(length):
        raise ArgumentError(
            f"lengths has {array.shape[1]} columns, and length {len(length)} limit{'s' * (len(length) > 1)}: there "
            "must be equally many"
        )
    shapes = [(num_items, len(length))] + [(num_items,)] * (len(length) == 1)
    if array.shape not in shapes or array.dtype.kind not in "iu":
        raise ArgumentError(
            f"lengths must be integers of shape {' or '.join(map(str, shapes))}, for each item a number for each "
            f"limit in length, got shape {array.shape} of {array.dtype}"
        )
    if array.size and array.min() < 0:
        raise ArgumentError(f"lengths must not be negative, got {array.min()}")
    if array.size and array.max() > np.iinfo(np.int64).max:
        raise ArgumentError(f"lengths must fit into int64, got {array.max()}")
    return np.ascontiguousarray(array.reshape(shapes[0]), np.int64)


def _has_names(part: Any) -> bool:
    """Whether a data set is a dictionary of arrays; one with numbers as keys has an item for each."""
    return isinstance(part, Mapping) and all(isinstance(key, str) for key in part)


def _rows_of_arrays(part: Any) -> int | None:
    """The number of rows of a tuple or list of arrays that can't be items, as they have different forms."""
    if not isinstance(part, (tuple, list)) or not 2 <= len(part) <= 8:
        return None
    if not all(hasattr(x, "__array__") and np.ndim(x) for x in part):
        return None
    return len(part[0]) if len({len(x) for x in part}) == 1 and len({(x.dtype, x.ndim) for x in part}) > 1 else None


@operator_function(NAME)
def source(
    dataset: Any,
    *,
    num_workers: Annotated[int, Range(0, 256)] = 0,
    layout: str | Sequence[str | None] | Mapping[str, str] | None = None,
    shape: Any = None,
    lengths: Any = None,
    group_by_length: Annotated[int, Range(0)] = 0,
    packing: Literal["none", "first_fit", "sequential"] = "none",
    length: Annotated[int | Sequence[int] | None, Range(1)] = None,
    tokens: str | Sequence[str] = "tokens",
    pad_id: int = 0,
    packing_seed: Annotated[int, Range(0)] | None = None,
    **order: Unpack[MixedArguments],
) -> DataNode | list[DataNode] | dict[str, DataNode]:
    """Reads the items of a Python data set, or the rows of arrays. Not in DALI.

    A data set is any object with ``__len__`` and ``__getitem__``, such as `torch.utils.data.Dataset`, Grain's
    ``RandomAccessDataSource``, Hugging Face's ``datasets``, and lists. The reader shuffles, splits into shards, pads,
    and resumes from checkpoints like every reader; the data set only provides item i.

    A dictionary of arrays with equally many rows is a data set, too: item i is a dictionary with row i of each. Arrays
    are read much faster than items, and not copied, so those of ``np.load(file, mmap_mode="r")`` need no memory. Lists
    may be among them, also of bytes. Make the dictionary outside of a pipeline's definition, so that shards share it:
    ``dict(np.load("arrays.npz"))``.

    An item is a value, a tuple of values, or a dictionary of values. A value is an array (NumPy, or something that
    NumPy converts: a torch tensor, without its gradient; a PIL image; a list of numbers), a number, a string, or bytes.
    A list of bytes, or of uint8 vectors, is ``uint8[files, longest]``, in which zeros follow shorter ones;
    ``layout={key: "F*"}`` says that they are files, and allows an empty list. Hugging Face's ``datasets`` represent
    images that are not decoded by a dictionary with ``bytes`` and ``path``; its value is the bytes. The first item is
    read while the pipeline is defined. It determines how many values there are, their types and their dimensions; a
    later item that differs fails.

    With ``num_workers=0``, items are read one after another in a thread of the pipeline, beside the training loop. This
    suits data sets that are fast, or whose work is done in libraries that release the interpreter's lock. Work that
    holds the lock (Python loops, tokenizers) needs processes: ``num_workers=4`` starts four processes with the first
    batch, by `spawn`. Each gets a copy of the data set, which must therefore be picklable, and returns arrays through
    shared memory. Classes that are typed into a notebook or defined in a function need the package cloudpickle for
    that. Order and checkpoints do not depend on the number of processes. For streams and generators, which have no item
    i, use `external_source`, which resumes if they have get_state and set_state.

    With `packing`, a sample is a sequence of items, for models of text and images. Items, which must be dictionaries,
    stay whole. Which items make a sequence follows from `lengths` alone, when the pipeline is built, and is the same in
    all epochs; sequences are then shuffled, split into shards, resumed and redistributed like any samples. The values
    of a sequence's F items become:

    * those in `tokens`, 1-D integers: one after another, ``int32[length]``, padded by `pad_id`. Beside each come
      ``<key>_segment_ids``, the number of the item that a token belongs to, from 1, 0 in the padding; and
      ``<key>_positions``, the place of the token in its item, from 0; both ``int32[length]``.
    * bytes, one file per item: ``uint8[F, longest]`` of layout "F*", where zeros follow shorter files. A long file makes
      all rows of its sequence long, so files of similar sizes take the least memory.
    * several files per item, or none, with ``layout={key: "F*"}``: the files of all items, and
      ``<key>_segment_ids``, ``int32[files]``, the number of the item that a file belongs to, from 1, which
      ``fn.decoders.image_patches(..., segments=...)`` takes.
    * numbers ``[F]``, and arrays of equal shape ``[F, ...]``, with "F" before their layout.

    Args:
      dataset: the data set, or a dictionary of arrays. With `weights`, a sequence of data sets whose items have the same form.
      num_workers: the number of processes that read; 0: none.
      layout: one letter for each axis of a value. A string if items are one value; else a list with one string per
        value, or a dictionary by key; None for a value without a layout.
      shape: the extents that all items share, None for those that vary, e.g. ``(None, None, 3)``; later operators are
        compiled with them. For several values, a list or dictionary as for `layout`. Default: only the shape of numbers
        is known.
      lengths: for `group_by_length`, a number for each item, e.g. its number of tokens; with `weights`, those of all
        data sets one after another. For `packing`, integers ``[items]``, or ``[items, limits]`` where `length` has
        several limits.
      group_by_length: the batch size of a shard. Each group of this many consecutive items gets similar lengths, so
        that padding wastes little: every 50 batches of the (shuffled) order are sorted by length and cut into batches,
        which are then shuffled. With `pad_last_batch`, the batches remain aligned in all epochs. 0: items come in the
        shuffled order.
      packing: "none": a sample is an item. "first_fit": an item goes to the first of 64 open sequences that has room
        for it in every limit; if none has, the one with the least room left, in whichever limit is tightest, is closed.
        "sequential": items stay in order, and one that does not fit begins the next sequence.
      length: the length of a packed sequence, in the unit of `lengths`; or a list of limits, e.g. of tokens and of
        patches, ``(2048, 4096)``, of which the first is the number of tokens.
      tokens: the key or keys of the values that are concatenated; an empty list: none.
      pad_id: the token that fills the end of a sequence.
      packing_seed: a seed to shuffle items before they are packed; None: they are taken in order.
      weights: in what proportion the items of the data sets come: one number for each data set in `dataset`. The data
        sets are mixed evenly, and an epoch has each item at least once: items of a data set that is too small for its
        weight are repeated. Not with `packing`.
      shuffle_after_epoch: whether to shuffle the list anew in each epoch, in the same way for all shards, each of which
        keeps reading its part of the list; with `weights`, the items of all data sets are shuffled.
      metadata: what to give of each item besides the arrays, as Python objects for `python_function` and for the lists
        of a batch: "index", the number of the item in the list; "source_info"; or keys of items that are dictionaries,
        whose values are then given as they are, whatever they are, and are no arrays. With `packing`, "index" is the
        number of the sequence, and keys give a list with the values of its items.
      on_error: what happens when an item can't be read. "raise": its batch fails; "replace": a later item replaces it;
        "skip": its batch is made without it. `Pipeline.bad_samples` reports the items of the last two. With `packing`,
        the same happens to the item's sequence; and an item that is longer than `length` is an error with "raise", and
        is left out with the others, with a warning.

    Returns:
      One output, a list of outputs, or a dictionary of outputs, in the form of the items, with `packing` also segments
      and positions. Strings and bytes are ``uint8[bytes]``, numbers have the shape (). Their source_info is the class of
      the data set and the number of the item, of packed ones that of the sequence's first and how many more there are.

    Raises:
      TypeError: `dataset` has no ``__len__`` or no ``__getitem__``.
      ValueError: arguments contradict each other or are out of range, or a data set is empty.
      RuntimeError: the first item can't be read; or, while the pipeline runs, the data set can't be pickled for
        `num_workers`, or a process ended.
      SampleError: an item can't be read (with the traceback of the exception), or differs in form from the first one; or, with
        `packing`, has so many more tokens than `lengths` says that its sequence is too long, or a value of another shape
        than that of the sequence's first item.

    Example:
      >>> class Squares(torch.utils.data.Dataset):
      ...     def __len__(self):
      ...         return 1000
      ...     def __getitem__(self, i):
      ...         return {"image": np.full((8, 8, 3), i % 256, np.uint8), "label": i * i}
      >>> @data_iterator(output_map=["image", "label"], reader_name="squares")
      ... def iterator_fn(num_shards=1, shard_id=0):
      ...     item = fn.readers.source(Squares(), name="squares", shuffle="global", num_shards=num_shards, shard_id=shard_id)
      ...     return fn.flip(item["image"]), item["label"]
      >>> model = jaxdali.vlm.processors["qwen2-vl"]
      >>> photos = [{"photo": open(path, "rb").read(), "tokens": tokenizer.encode(caption)} for path, caption in captions]
      >>> num_patches = model.num_patches(jd.peek_image_shape([x["photo"] for x in photos]))
      >>> lengths = [(len(x["tokens"]), n) for x, n in zip(photos, num_patches)]
      >>> packed = fn.readers.source(photos, lengths=lengths, length=(2048, 16384), packing="first_fit", shuffle="global")
      >>> tokens, segments = packed["tokens"], packed["tokens_segment_ids"]
      >>> size = model.size(fn.peek_image_shape(packed["photo"]))
      >>> patches, patch_segments, *_ = fn.decoders.image_patches(
      ...     packed["photo"], size=size, length=16384, **model.resize, **model.patches)
    """
    weights = order.get("weights")
    if weights is None:
        parts: Sequence[Any] = [dataset]
    else:
        if not isinstance(dataset, (list, tuple)) or len(dataset) != len(as_list(weights)):
            raise ArgumentError(
                f"weights is for a sequence of data sets, with one number for each; got a {type(dataset).__name__}"
            )
        parts = dataset
    for part in parts:
        for values in part.values() if _has_names(part) else [part]:
            if (
                isinstance(values, (list, tuple))
                and values
                and isinstance(name := values[0], (str, os.PathLike))
                and os.path.isfile(name)
            ):
                warn(
                    f"{NAME}: the items are names of files, which are read as text: fn.readers.file(files=...) reads the files"
                )
        if (rows := _rows_of_arrays(part)) is not None:
            raise ArgumentError(
                f"{NAME}: the data set is a {type(part).__name__} of arrays with {rows} rows each, which would be its items: "
                'give a dictionary, such as {"image": images, "label": labels}'
            )
        if hasattr(part, "iloc") and hasattr(part, "columns"):
            raise ArgumentError(
                f"{NAME}: a {type(part).__name__} has columns, not items, by its keys: dict(frame) gives them"
            )
    if num_workers and any(map(_has_names, parts)):
        raise ArgumentError(f"{NAME}: num_workers is for data sets whose items take work in Python, and not for arrays")
    parts = [Arrays(part, NAME) if _has_names(part) else part for part in parts]
    names = as_list(order.get("metadata") or ())
    keys = [n for n in names if n not in ("index", "source_info")]
    data = DataSet(parts, layout, shape, keys, as_list(tokens) if packing != "none" else ())
    limits = () if length is None else tuple(as_list(length))
    data.lengths = _check_lengths(lengths, group_by_length, packing, limits, len(data))
    op = ReadSource(
        data=data,
        num_workers=num_workers,
        group_by_length=group_by_length,
        packing=packing,
        packing_seed=packing_seed,
        length=limits,
        pad_id=pad_id,
        tokens=tuple(as_list(tokens)),
        **ReadSource.shared(order),
    )
    nodes = add(op, device="cpu", name=order.get("name"))
    if isinstance(data.keys, tuple):
        return by_name(op, [*op.outputs], nodes)
    return [nodes] if isinstance(nodes, DataNode) and data.keys is not None else nodes
