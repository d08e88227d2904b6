"""A user's data set, for `readers.source`: the form of its items."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..._core.errors import ArgumentError, ArgumentTypeError
from ..._core.values import Spec
from ..._data import source_worker
from ..._data.arrays import Arrays
from ..._data.processes import Item

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
            if isinstance(part, (str, bytes)):
                raise ArgumentTypeError(
                    f"{NAME}: a {type(part).__name__} is no data set; fn.readers.file(files=...) and other readers "
                    "take names of files, and dict(pandas.read_csv(name)) has the columns of a table"
                )
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
