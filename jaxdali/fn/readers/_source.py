"""readers.source: the items of a user's data set.

`fn/_source` has external_source; `_data/source.py` is the interface of both to the executor.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, ClassVar, Unpack

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
from ..._data.files import as_list
from ..._data.listed import MixedArguments, Reader, Records, by_name
from ..._data.processes import Item, Processes, Row

NAME = "readers.source"


class DataSet:
    """A user's data set, or several that are mixed. All shards with the same data set share one object.

    Args:
      parts: the data sets.
      layouts, shapes: the reader's arguments `layout` and `shape`.
      metadata: see below.

    Attributes:
      bounds: the first record of each data set, and the record after the last.
      lengths: lengths of the items, if they are grouped by length.
      keys: keys of the items, as `source_worker.leaves` returns them: a tuple of the keys of dictionaries, the number
        of values of tuples, or None for an item that is one value.
      specs: specs of the items' values.
      metadata: keys of the items whose values are passed on as Python objects.
      seen_shapes: the shapes of the first item's values.
      description: the classes of the data sets, for messages.
    """

    lengths: np.ndarray | None = None

    def __init__(self, parts: Sequence[Any], layouts: Any, shapes: Any, metadata: Sequence[str] = ()):
        self.parts, self.metadata = tuple(parts), tuple(metadata)
        sizes = [0]
        for part in self.parts:
            if not (hasattr(part, "__len__") and hasattr(part, "__getitem__")):
                raise ArgumentTypeError(
                    f"{NAME}: a data set needs __len__ and __getitem__, which a {type(part).__name__} does not have"
                )
            sizes.append(len(part))
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
        self.seen_shapes = tuple(a.shape for a in arrays)
        layouts, shapes = self._per_value("layout", layouts, str), self._per_value("shape", shapes, tuple)
        self.specs = tuple(
            _spec(self.output_name(k), a, t, s) for k, (a, t, s) in enumerate(zip(arrays, layouts, shapes))
        )

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
        if isinstance(self.keys, tuple) and isinstance(keys, tuple) and {*keys} == {*self.keys}:
            by_key = dict(zip(keys, arrays))
            arrays = [by_key[k] for k in self.keys]
        elif keys != self.keys:
            raise ValueError(f"it has {_form(keys)}, the first item has {_form(self.keys)}")
        for k, (a, spec) in enumerate(zip(arrays, self.specs)):
            if (a.dtype, a.ndim) != (spec.dtype, spec.ndim):
                is_other_mode = {a.dtype.name, spec.dtype.name} <= {"uint8", "bool"} and {a.ndim, spec.ndim} == {2, 3}
                # Gray (2-D) and coloured (3-D) images of Pillow, or bitmaps.
                advice = '; image.convert("RGB") gives images of Pillow one mode' if is_other_mode else ""
                forms = f"{a.ndim}-D {a.dtype}, in the first item it is {spec.ndim}-D {spec.dtype}"
                raise ValueError(f"{self.output_name(k)} is {forms}: all items must agree{advice}")
            extents = [spec.extent(axis) for axis in range(spec.ndim)]
            if any(n is not None and n != m for n, m in zip(extents, a.shape)):
                raise ValueError(
                    f"{self.output_name(k)} must have the shape {tuple(extents)} (None: any extent), got {a.shape}"
                )
        return list(arrays)

    def __eq__(self, other: object) -> bool:
        """Whether both have the same objects as data sets, and equal specs, metadata and lengths."""
        if not isinstance(other, DataSet) or [*map(id, self.parts)] != [*map(id, other.parts)]:
            return False
        if (self.metadata, self.specs) != (other.metadata, other.specs):
            return False
        if self.lengths is None or other.lengths is None:
            return self.lengths is other.lengths
        return np.array_equal(self.lengths, other.lengths)

    def __hash__(self) -> int:
        return hash(tuple(map(id, self.parts)))

    def __len__(self) -> int:
        return int(self.bounds[-1])

    def item(self, i: int) -> Item:
        """The number of record i's data set, and the index in it."""
        part = int(np.searchsorted(self.bounds, i, "right")) - 1
        return part, i - int(self.bounds[part])

    def name(self, i: int) -> str:
        """The name of record i, for source_info and messages."""
        part, index = self.item(i)
        return f"{type(self.parts[part]).__name__}[{index}]"


def _form(keys: Any) -> str:
    """Describes the keys that `source_worker.leaves` returned for an item."""
    if keys is None:
        return "one value"
    return f"the keys {keys}" if isinstance(keys, tuple) else f"{keys} values"


def _describe(part: Any) -> str:
    return f"the data set {type(part).__name__}"


def _spec(name: str, a: np.ndarray, layout: str | None, shape: Sequence[int | None] | None) -> Spec:
    """The spec of a value by the first item's array `a`, with the extents that `shape` fixes."""
    layout = layout or ""
    if layout and len(layout) != a.ndim:
        raise ArgumentError(f"{NAME}: layout {layout!r} describes {len(layout)} dimensions, {name} has {a.ndim}")
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


class _Items(Records):
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
        k = self._data.metadata.index(name)
        return lambda i: self._objects[i][k]

    @property
    def read_ahead(self) -> int:
        return 4 * self._num_workers

    def ahead(self, index: np.ndarray, now: int) -> None:
        if self._processes is not None:
            # Small enough that all processes get a part of a batch.
            items_at_once = max(1, min(16, now // (4 * self._num_workers)))
            self._processes.ahead(map(self._data.item, index.tolist()), items_at_once)

    def _rows(self, index: Sequence[int]) -> list[Row]:
        """Reads items, in worker processes if there are any. A row has the values of an item, or an error."""
        items = [self._data.item(i) for i in index]
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

    @classmethod
    def read_batch(
        cls, ctx: HostContext, parts: Sequence[tuple[_Items, np.ndarray]], threads: ThreadPoolExecutor
    ) -> tuple[Any, ...]:
        """Reads one item after another, as a data set may keep an open file. Worker processes read in parallel."""
        specs, rows = parts[0][0].specs, []
        for items, _ in parts:
            items._objects.clear()
        for items, index in parts:
            for i, row in zip(index.tolist(), items._rows(index.tolist())):
                try:
                    rows.append(items._check_row(i, row))
                except ValueError as e:
                    ctx.fail(len(rows), Status.RECORD, str(e))
                    rows.append([np.zeros(s.shape or (0,) * s.ndim, s.dtype) for s in specs])
        return tuple(
            np.stack(column) if s.shape is not None else list(column)
            for s, column in zip(specs, zip(*rows), strict=True)
        )

    def close(self) -> None:
        if self._processes is not None:
            self._processes.close()


class ReadSource(Reader):
    """`readers.source`; the fields are its arguments."""

    name: ClassVar[str] = NAME

    data: DataSet = dataclasses.field(compare=False)
    num_workers: int

    @property
    def num_arrays(self) -> int:
        return len(self.data.specs)

    def open(self) -> _Items:
        return _Items(self.data, self.num_workers, self.weights is not None)


def _check_lengths(lengths: Any, group_by_length: int, num_items: int) -> np.ndarray | None:
    """The argument `lengths` as an array, None if it is not given. Raises ArgumentError if it does not fit."""
    if (lengths is None) != (group_by_length == 0):
        raise ArgumentError("lengths and group_by_length must be given together")
    if lengths is None:
        return None
    array = np.asarray(lengths)
    if array.shape != (num_items,) or array.dtype.kind not in "iuf":
        raise ArgumentError(
            f"lengths must have a number for each of the {num_items} items, got shape {array.shape} of {array.dtype}"
        )
    return array


@operator_function(NAME)
def source(
    dataset: Any,
    *,
    num_workers: Annotated[int, Range(0, 256)] = 0,
    layout: str | Sequence[str | None] | Mapping[str, str] | None = None,
    shape: Any = None,
    lengths: Sequence[float] | np.ndarray | None = None,
    group_by_length: Annotated[int, Range(0)] = 0,
    **order: Unpack[MixedArguments],
) -> DataNode | list[DataNode] | dict[str, DataNode]:
    """Reads the items of a Python data set, any object with ``__len__`` and ``__getitem__``. Not in DALI.

    Examples are `torch.utils.data.Dataset`, Grain's ``RandomAccessDataSource``, Hugging Face's ``datasets``, and lists.
    The reader shuffles, splits into shards, pads, and resumes from checkpoints like every reader; the data set only
    provides item i.

    An item is a value, a tuple of values, or a dictionary of values. A value is an array (NumPy, or something that
    NumPy converts: a torch tensor, without its gradient; a PIL image; a list of numbers), a number, a string, or bytes.
    Hugging Face's ``datasets`` represent images that are not decoded by a dictionary with ``bytes`` and ``path``; its
    value is the bytes. The first item is read while the pipeline is defined. It determines how many values there are,
    their types and their dimensions; a later item that differs fails.

    With ``num_workers=0``, items are read one after another in a thread of the pipeline, beside the training loop. This
    suits data sets that are fast, or whose work is done in libraries that release the interpreter's lock. Work that
    holds the lock (Python loops, tokenizers) needs processes: ``num_workers=4`` starts four processes with the first
    batch, by `spawn`. Each gets a copy of the data set, which must therefore be picklable, and returns arrays through
    shared memory. Classes that are typed into a notebook or defined in a function need the package cloudpickle for
    that. Order and checkpoints do not depend on the number of processes. For streams and generators, which have no item
    i, use `external_source`, which resumes if they have get_state and set_state.

    Args:
      dataset: the data set. With `weights`, a sequence of data sets whose items have the same form.
      num_workers: the number of processes that read; 0: none.
      layout: one letter for each axis of a value. A string if items are one value; else a list with one string per
        value, or a dictionary by key; None for a value without a layout.
      shape: the extents that all items share, None for those that vary, e.g. ``(None, None, 3)``; later operators are
        compiled with them. For several values, a list or dictionary as for `layout`. Default: only the shape of numbers
        is known.
      lengths: for `group_by_length`, a number for each item, e.g. its number of tokens; with `weights`, those of all
        data sets one after another.
      group_by_length: the batch size of a shard. Each group of this many consecutive items gets similar lengths, so
        that padding wastes little: every 50 batches of the (shuffled) order are sorted by length and cut into batches,
        which are then shuffled. With `pad_last_batch`, the batches remain aligned in all epochs. 0: items come in the
        shuffled order.
      weights: in what proportion the items of the data sets come: one number for each data set in `dataset`. The data
        sets are mixed evenly, and an epoch has each item at least once: items of a data set that is too small for its
        weight are repeated.
      shuffle_after_epoch: whether to shuffle the list anew in each epoch, in the same way for all shards, each of which
        keeps reading its part of the list; with `weights`, the items of all data sets are shuffled.
      metadata: what to give of each item besides the arrays, as Python objects for `python_function` and for the lists
        of a batch: "index", the number of the item in the list; "source_info"; or keys of items that are dictionaries,
        whose values are then given as they are, whatever they are, and are no arrays.
      on_error: what happens when an item can't be read. "raise": its batch fails; "replace": a later item replaces it;
        "skip": its batch is made without it. `Pipeline.bad_samples` reports the items of the last two.

    Returns:
      One output, a list of outputs, or a dictionary of outputs, in the form of the items. Strings and bytes are
      ``uint8[bytes]``, numbers have the shape (). Their source_info is the class of the data set and the number of the
      item.

    Raises:
      TypeError: `dataset` has no ``__len__`` or no ``__getitem__``.
      ValueError: arguments contradict each other or are out of range, or a data set is empty.
      RuntimeError: the first item can't be read; or, while the pipeline runs, the data set can't be pickled for
        `num_workers`, or a process ended.
      SampleError: an item can't be read (with the traceback of the exception), or differs in form from the first one.

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
        if (
            isinstance(part, (list, tuple))
            and part
            and isinstance(name := part[0], (str, os.PathLike))
            and os.path.isfile(name)
        ):
            warn(
                f"{NAME}: the items are names of files, which are read as text: fn.readers.file(files=...) reads the files"
            )
    names = as_list(order.get("metadata") or ())
    data = DataSet(parts, layout, shape, [n for n in names if n not in ("index", "source_info")])
    data.lengths = _check_lengths(lengths, group_by_length, len(data))
    op = ReadSource(
        data=data,
        num_workers=num_workers,
        group_by_length=group_by_length,
        **ReadSource.shared(order),
    )
    nodes = add(op, device="cpu", name=order.get("name"))
    if isinstance(data.keys, tuple):
        return by_name(op, data.keys, nodes)
    return [nodes] if isinstance(nodes, DataNode) and data.keys is not None else nodes
