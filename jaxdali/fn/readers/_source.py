"""readers.source: the items of a user's data set."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, ClassVar, Unpack

import numpy as np

from ..._core.building import add
from ..._core.context import HostContext
from ..._core.declaration import Range
from ..._core.errors import ArgumentError, ArgumentTypeError
from ..._core.graph import DataNode
from ..._core.operator_function import operator_function
from ..._core.settings import UserSettings
from ..._core.values import Spec
from ..._cpu import Status
from ..._data import source_worker
from ..._data.files import as_list
from ..._data.listed import MixedArguments, Reader, Records
from ..._data.processes import Item, Processes, Row

NAME = "readers.source"


class DataSet:
    """A user's data set, or several that are mixed; one and the same object for all shards that were given the same.

    Attributes:
      bounds: the first record of each data set, and the one behind the last.
      lengths: of the items, where they are grouped by these.
      keys: of its items, as `source_worker.leaves` tells them; specs: of their values.
    """

    lengths: np.ndarray | None = None

    def __init__(self, parts: Sequence[Any], layouts: Any, shapes: Any):
        self.parts = tuple(parts)
        sizes = [0]
        for part in self.parts:
            if not (hasattr(part, "__len__") and hasattr(part, "__getitem__")):
                raise ArgumentTypeError(f"{NAME}: a data set needs __len__ and __getitem__, which a {type(part).__name__} does not have")
            sizes.append(len(part))
            if not sizes[-1]:
                raise ArgumentError(f"{NAME}: {_described(part)} is empty")
        self.bounds = np.cumsum(sizes)
        self.what = ", ".join(map(_described, self.parts))
        found = source_worker.read(self.parts, (0, 0))
        if isinstance(found, str):
            raise RuntimeError(f"{NAME}: item 0 of {self.what} can't be read: {found}")
        self.keys, arrays = found
        if not arrays:
            raise ArgumentError(f"{NAME}: item 0 of {self.what} is empty")
        layouts, shapes = self._for_each("layout", layouts, str), self._for_each("shape", shapes, tuple)
        self.specs = tuple(_spec(self.called(k), a, t, s) for k, (a, t, s) in enumerate(zip(arrays, layouts, shapes)))

    def called(self, k: int) -> str:
        """Output k, in messages."""
        return f"key {self.keys[k]!r}" if isinstance(self.keys, tuple) else "the value" if self.keys is None else f"value {k}"

    def _for_each(self, name: str, given: Any, single: type) -> list[Any]:
        count = len(self.keys) if isinstance(self.keys, tuple) else self.keys or 1
        if given is None:
            return [None] * count
        if isinstance(given, Mapping):
            if not isinstance(self.keys, tuple) or not {*given} <= {*self.keys}:
                raise ArgumentError(f"{NAME}: {name} has the keys {[*given]}; the items have {self.keys}")
            return [given.get(k) for k in self.keys]
        one = isinstance(given, str) if single is str else all(x is None or isinstance(x, int) for x in given)
        if one:
            if count > 1:
                raise ArgumentError(f"{NAME}: the items have {count} values: {name} must be a list of {count}, None where it is not known")
            return [given]
        if len(given) != count:
            raise ArgumentError(f"{NAME}: {name} has {len(given)} entries, the items have {count} values")
        return [*given]

    def checked(self, keys: Any, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The values of an item, in the order of the first one's. ValueError where they are not alike."""
        if isinstance(self.keys, tuple) and isinstance(keys, tuple) and {*keys} == {*self.keys}:
            by_key = dict(zip(keys, arrays))
            arrays = [by_key[k] for k in self.keys]
        elif keys != self.keys:
            raise ValueError(f"it has {_form(keys)}, the first item has {_form(self.keys)}")
        for k, (a, spec) in enumerate(zip(arrays, self.specs)):
            if (a.dtype, a.ndim) != (spec.dtype, spec.ndim):
                raise ValueError(
                    f"{self.called(k)} is {a.ndim}-D {a.dtype}, that of the first item is {spec.ndim}-D {spec.dtype}: all must be alike"
                )
            known = [spec.extent(axis) for axis in range(spec.ndim)]
            if any(n is not None and n != m for n, m in zip(known, a.shape)):
                raise ValueError(f"{self.called(k)} must have the shape {tuple(known)} (None: any extent), got {a.shape}")
        return list(arrays)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DataSet) or [*map(id, self.parts)] != [*map(id, other.parts)] or self.specs != other.specs:
            return False
        if self.lengths is None or other.lengths is None:
            return self.lengths is other.lengths
        return np.array_equal(self.lengths, other.lengths)

    def __hash__(self) -> int:
        return hash(tuple(map(id, self.parts)))

    def __len__(self) -> int:
        return int(self.bounds[-1])

    def item(self, i: int) -> Item:
        """Which data set record i is of, and its index there."""
        which = int(np.searchsorted(self.bounds, i, "right")) - 1
        return which, i - int(self.bounds[which])

    def name(self, i: int) -> str:
        """Record i, for source_info and messages."""
        which, index = self.item(i)
        return f"{type(self.parts[which]).__name__}[{index}]"


def _form(keys: Any) -> str:
    """What `source_worker.leaves` said of an item, in words."""
    if keys is None:
        return "one value"
    return f"the keys {keys}" if isinstance(keys, tuple) else f"{keys} values"


def _described(part: Any) -> str:
    return f"the data set {type(part).__name__}"


def _spec(what: str, a: np.ndarray, layout: str | None, shape: Sequence[int | None] | None) -> Spec:
    layout = layout or ""
    if layout and len(layout) != a.ndim:
        raise ArgumentError(f"{NAME}: layout {layout!r} describes {len(layout)} dimensions, {what} has {a.ndim}")
    if a.ndim == 0:
        return Spec(a.dtype, 0, (), layout)
    if shape is not None:
        if len(shape) != a.ndim or any(n is not None and n != m for n, m in zip(shape, a.shape)):
            raise ArgumentError(f"{NAME}: shape {tuple(shape)} does not fit {what} of the first item, whose shape is {a.shape}")
        known = tuple(n for n in shape if n is not None)
        if len(known) == a.ndim:
            return Spec(a.dtype, a.ndim, known, layout)
        return Spec(a.dtype, a.ndim, None, layout, tuple(shape) if known else None)
    return Spec(a.dtype, a.ndim, None, layout)


class _Items(Records):
    """The items of a data set."""

    def __init__(self, data: DataSet, num_workers: int, mixed: bool):
        self._data = data
        self.specs = data.specs
        if mixed:
            self.bounds = data.bounds
        kinds = [(type(p).__module__, type(p).__qualname__, n) for p, n in zip(data.parts, np.diff(data.bounds).tolist())]
        self.digest = f"{kinds}, {[(s.dtype.name, s.ndim) for s in data.specs]}"
        if data.lengths is not None:
            self.lengths = data.lengths
            self.digest += f", lengths {hashlib.sha256(data.lengths.tobytes()).hexdigest()[:16]}"
        self._settings = UserSettings()
        self._processes = Processes(data.parts, num_workers, data.what) if num_workers else None
        self._num_workers = num_workers
        self.ends_reads = num_workers > 0

    def __len__(self) -> int:
        return len(self._data)

    def name(self, i: int) -> str:
        return self._data.name(i)

    @property
    def read_ahead(self) -> int:
        return 4 * self._num_workers

    def ahead(self, index: np.ndarray, now: int) -> None:
        if self._processes is not None:
            each = max(1, min(16, now // (4 * self._num_workers)))  # so that all processes get some of a batch
            self._processes.ahead(map(self._data.item, index.tolist()), each)

    def _rows(self, index: Sequence[int]) -> list[Row]:
        items = [self._data.item(i) for i in index]
        if self._processes is not None:
            return self._processes.take(items)
        with self._settings.contexts():
            found = [source_worker.read(self._data.parts, item) for item in items]
        return [Row(None, (), x) if isinstance(x, str) else Row(*x) for x in found]

    def _checked(self, i: int, row: Row) -> list[np.ndarray]:
        if row.error:
            raise ValueError(f"{self.name(i)}: {row.error}")
        try:
            return self._data.checked(row.keys, row.arrays)
        except ValueError as e:
            raise ValueError(f"{self.name(i)}: {e}") from None

    def read(self, i: int) -> list[np.ndarray]:
        (row,) = self._rows([i])
        return self._checked(i, row)

    @classmethod
    def read_batch(cls, ctx: HostContext, parts: Sequence[tuple[_Items, np.ndarray]], threads: ThreadPoolExecutor) -> tuple[Any, ...]:
        """One item after another: a data set may keep an open file. Its processes read side by side."""
        specs, rows = parts[0][0].specs, []
        for items, index in parts:
            for i, row in zip(index.tolist(), items._rows(index.tolist())):
                try:
                    rows.append(items._checked(i, row))
                except ValueError as e:
                    ctx.fail(len(rows), Status.RECORD, str(e))
                    rows.append([np.zeros(s.shape or (0,) * s.ndim, s.dtype) for s in specs])
        return tuple(np.stack(column) if s.shape is not None else list(column) for s, column in zip(specs, zip(*rows), strict=True))

    def close(self) -> None:
        if self._processes is not None:
            self._processes.close()


class ReadSource(Reader):
    """`readers.source`; the fields are its arguments."""

    name: ClassVar[str] = NAME

    data: DataSet = dataclasses.field(compare=False)
    num_workers: int

    @property
    def num_outputs(self) -> int:
        return len(self.data.specs)

    def open(self) -> _Items:
        return _Items(self.data, self.num_workers, self.weights is not None)


def _lengths(given: Any, run: int, size: int) -> np.ndarray | None:
    if (given is None) != (run == 0):
        raise ArgumentError("lengths and group_by_length must be given together")
    if given is None:
        return None
    found = np.asarray(given)
    if found.shape != (size,) or found.dtype.kind not in "iuf":
        raise ArgumentError(f"lengths must have a number for each of the {size} items, got shape {found.shape} of {found.dtype}")
    return found


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
    """Reads the items of a data set in Python: any object with ``__len__`` and ``__getitem__``. Beyond DALI.

    Such are `torch.utils.data.Dataset`, Grain's ``RandomAccessDataSource``, Hugging Face's ``datasets``, and lists. The reader shuffles,
    splits into shards, pads, and goes on from checkpoints as every reader does; the data set only gives item i.

    An item is a value, a tuple of values, or a dictionary of them. A value is an array (NumPy, or what NumPy converts: a torch tensor on
    the host, a PIL image, a list of numbers), a number, a text, or bytes; of a dictionary with ``bytes`` and ``path``, which Hugging Face's
    ``datasets`` have for images that are not decoded, it is the bytes. The first item, which is read while the pipeline is defined,
    tells how many values there are, their types and their dimensions; a later item that differs fails by itself.

    With ``num_workers=0`` items are read one after another in a thread of the pipeline, while the training loop goes on. That suits data
    sets that are quick, or that work in libraries which release the interpreter's lock. Work that holds the lock (Python loops, tokenizers)
    needs processes: ``num_workers=4`` starts four with the first batch, by `spawn`, each with its own copy of the data set, which must
    therefore be picklable. Arrays come back through shared memory. Order and checkpoints do not depend on the number of processes.
    `external_source` is for streams and generators, which have no item i: it resumes where they have get_state and set_state.

    Args:
      dataset: the data set. With `weights`, a sequence of data sets with items of one form.
      num_workers: processes that read; 0: none.
      layout: one letter for each axis of a value: a string where items are one value, else a list with one for each, or a dictionary
        by key; None where there is none.
      shape: extents that all items share, None for those that vary, e.g. ``(None, None, 3)``: what follows is compiled with them. For
        several values as `layout`. Default: nothing is known but of numbers.
      lengths: for `group_by_length`, of each item one number, e.g. its tokens; with `weights` those of all data sets one after another.
      group_by_length: the batch size of a shard: so many items one after another get similar lengths, and padding wastes little. Each
        50 batches of the (shuffled) order are sorted by length, cut into batches, and these are shuffled. With `pad_last_batch` batches
        stay so in all epochs. 0: items come as they are shuffled.
      weights: how often the items of each data set come, in proportion: one number for each of the sequence `dataset`. They are mixed
        evenly, and an epoch has each item at least once: those of a data set that is too small for its weight come again.
      shuffle_after_epoch: shuffle the list anew in each epoch, alike for all shards, and read the same part of it; with `weights` the items
        of all data sets.
      on_error: what becomes of an item that can't be read: "raise": its batch fails. "replace": a later one takes its place. "skip": its
        batch goes without it. The last two are reported by `Pipeline.bad_samples`.

    Returns:
      One output, a list of outputs, or a dictionary of them, as the items are. A text or bytes are ``uint8[bytes]``, a number has the shape
      (); their source_info is the class of the data set and the number of the item.

    Raises:
      TypeError: `dataset` has no ``__len__`` or no ``__getitem__``.
      ValueError: arguments that contradict each other or are out of range; an empty data set.
      RuntimeError: the first item can't be read. While running: the data set can't be pickled for `num_workers`, or a process ended.
      SampleError: an item can't be read, with the traceback of what it raised, or differs from the first one.

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
            raise ArgumentError(f"weights is for a sequence of data sets, with one number for each; got a {type(dataset).__name__}")
        parts = dataset
    data = DataSet(parts, layout, shape)
    data.lengths = _lengths(lengths, group_by_length, len(data))
    op = ReadSource(
        data=data,
        num_workers=num_workers,
        group_by_length=group_by_length,
        **ReadSource.shared(order),
    )
    nodes = add(op, device="cpu", name=order.get("name"))
    nodes = list(nodes) if isinstance(nodes, (list, tuple)) else [nodes]
    if isinstance(data.keys, tuple):
        return dict(zip(data.keys, nodes, strict=True))
    return nodes[0] if data.keys is None else nodes
