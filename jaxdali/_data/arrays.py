"""Arrays in memory, or mapped from files, as a data set of their rows."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .._core.errors import ArgumentError, ArgumentTypeError
from . import source_worker


class Arrays:
    """A data set whose item i is a dictionary with row i of each array.

    Args:
      columns: ``[rows, ...]`` by key: arrays of NumPy or another library, or lists of values.
      reader: the reader's name, for messages.
    """

    def __init__(self, columns: Mapping[str, Any], reader: str):
        # The shards of a pipeline have the same objects, of which each may make a copy. They are kept, so that their
        # ids stay theirs. A mapping such as that of numpy.load loads an array at each access.
        self._objects = columns = dict(columns)
        # Of lists and of arrays on a device one copy is made here. NumPy's arrays, also mapped ones, are not copied.
        self._columns = {key: _column(x, key, reader) for key, x in columns.items()}
        lengths = {key: len(x) for key, x in self._columns.items()}
        if len({*lengths.values()}) > 1:
            raise ArgumentError(f"{reader}: the arrays must have equally many rows, got {lengths}")
        self._length = next(iter(lengths.values()), 0)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, i: int) -> dict[str, Any]:
        # Metadata are given as they are, and users may change them.
        return {key: row.copy() if isinstance(row := x[i], np.ndarray) else row for key, x in self._columns.items()}

    def __eq__(self, other: object) -> bool:
        """Whether both are made of the same objects."""
        return isinstance(other, Arrays) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def _identity(self) -> tuple[tuple[str, int], ...]:
        return tuple((key, id(x)) for key, x in self._objects.items())

    def have_numbers(self, keys: Any) -> bool:
        """Whether those of the arrays are numbers in the machine's byte order, so that `rows` can read them."""
        arrays = [self._columns[key] for key in keys]
        return all(isinstance(x, np.ndarray) and x.dtype.kind in "biuf" and x.dtype.isnative for x in arrays)

    def row_shape(self, key: str) -> tuple[int, ...] | None:
        """The shape of all rows of an array; None for a list, whose values may differ."""
        x = self._columns[key]
        return x.shape[1:] if isinstance(x, np.ndarray) and x.dtype.kind in "biufV" else None

    def rows(self, keys: Any, index: np.ndarray) -> list[np.ndarray]:
        """Copies of rows of those of the arrays, ``[len(index), ...]`` each."""
        # Rows of a transposed array, as of CIFAR's pickles, are transposed, too.
        return [np.ascontiguousarray(np.asarray(self._columns[key])[index]) for key in keys]


def _column(x: Any, key: str, reader: str) -> np.ndarray | Sequence[Any]:
    """One of the arrays, or a list whose values are no numbers or differ in shape."""
    if isinstance(x, (list, tuple, range)):
        try:
            array = np.asarray(x)
        except (ValueError, TypeError, RuntimeError):  # of different shapes, or tensors that NumPy does not take
            return x
        return array if array.dtype.kind in "biuf" else x
    if not hasattr(x, "__array__") or not np.ndim(x):
        has_items = hasattr(x, "__getitem__") and hasattr(x, "__len__") and not isinstance(x, (str, bytes, np.generic))
        advice = "; list(...) makes a list of it" if has_items else ""
        if has_items and _has_dictionaries(x):
            advice = f": if the dictionary has the splits of a data set, give one of them, dataset[{key!r}]"
        raise ArgumentTypeError(
            f"{reader}: a data set that is a dictionary has an array or a list for each key, with a row for each item; "
            f"key {key!r} has a {type(x).__name__}{advice}"
        )
    if (torch := sys.modules.get("torch")) is not None and isinstance(x, torch.Tensor):
        return source_worker.tensor_array(x, torch, f"key {key!r}")
    return np.asarray(x)


def _has_dictionaries(x: Any) -> bool:
    """Whether the items of a value are dictionaries, as those of a data set are."""
    try:
        return isinstance(x[0], Mapping)
    except Exception:  # of a user's class
        return False
