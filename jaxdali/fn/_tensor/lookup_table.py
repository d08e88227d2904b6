"""lookup_table: replaces integers by numbers from a table."""

from __future__ import annotations

import dataclasses
import functools
from typing import Annotated, Any, Literal, Unpack

import numpy as np

from ... import types
from ..._core.declaration import DType, Range
from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._core.operator_function import DTypeHints, Input, OneOrMore, operator_function
from ..._core.values import Spec
from .._families.conversion import convert
from .._families.elementwise import Elementwise

_MAX_KEY = 0xFFFF  # as in DALI


class LookupTable(Elementwise):
    """Replaces each element, which is a key, by its value."""

    name = "lookup_table"
    keys: tuple[int, ...] | int
    values: tuple[float, ...] | float
    default_value: float  # of elements that are not a key
    dtype: np.dtype

    def __post_init__(self):
        if np.size(self.keys) != np.size(self.values):
            raise ArgumentError(
                f"there must be a value for each key, got {np.size(self.keys)} keys and {np.size(self.values)} values"
            )

    def infer(self, x: Spec) -> tuple[Spec, ...]:
        if x.dtype.kind not in "iu":
            raise TypeError(f"the input must be integers, got {x.dtype}")
        return (dataclasses.replace(x, dtype=self.dtype),)

    def compute(self, N: int, *specs: Spec) -> None:
        """None: `run` looks up slab by slab, whose indices stay in the caches."""

    @functools.cached_property
    def _tables(self) -> dict[np.dtype, np.ndarray]:
        """The results of `_table`, by type."""
        return {}

    def _table(self, dtype: np.dtype) -> np.ndarray:
        """The values of the keys 0, 1, ..., as far as an input of this type can have them, and then the default value. All
        256 for a type of 8 bits.
        """
        if (table := self._tables.get(dtype)) is None:
            values = np.full(_MAX_KEY + 1, self.default_value, np.float32)
            # If a key is given twice, the last one counts.
            for key, value in zip(np.atleast_1d(self.keys).tolist(), np.atleast_1d(self.values), strict=True):
                values[key] = value
            values[np.iinfo(dtype).max + 1 :] = self.default_value
            size = 256 if dtype.itemsize == 1 else int(np.max(self.keys, initial=-1)) + 2
            values = np.append(values, np.float32(self.default_value))[:size]
            table = self._tables[dtype] = convert(np, values, self.dtype)
        return table

    def element(self, xp: Any, *inputs: Any) -> Any:
        """Looks up the elements. As unsigned numbers, the negative ones are greater than all keys."""
        (x,) = inputs
        table = self._table(x.dtype)
        unsigned = x.view(np.dtype(f"u{x.dtype.itemsize}"))
        if len(table) <= np.iinfo(unsigned.dtype).max:  # otherwise the table has all numbers of the type
            unsigned = xp.minimum(unsigned, unsigned.dtype.type(len(table) - 1))
        # NumPy converts other indices to int64, too, and takes longer.
        index = unsigned.astype(np.int64 if xp is np else np.int32)
        return xp.take(xp.asarray(table), index, mode="clip")


@operator_function(LookupTable)
def lookup_table(
    input: Input,
    /,
    *,
    default_value: Annotated[float, Range(infinite=True)] = 0.0,
    dtype: DType = types.FLOAT,
    keys: Annotated[OneOrMore[int], Range(0, _MAX_KEY)] = (),
    values: Annotated[OneOrMore[float], Range(infinite=True)] = (),
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[DTypeHints],
) -> DataNode:
    """Maps each element to the value of its key.

    Args:
      input: any tensor of integers.
      default_value: the value of elements that are not a key.
      dtype: element type of the result. Values are held in float32, rounded and saturated.
      keys: integers from 0 to 65535; if a key is given twice, the last one counts.
      values: one for each key.

    Returns:
      The input's shape and layout.

    Raises:
      ArgumentError: a key is out of range, or there are not as many values as keys.
      TypeError: the input's type is not an integer.

    Example:
      >>> classes = fn.lookup_table(labels, keys=[3, 7], values=[0, 1], default_value=-1, dtype=types.INT32)
    """
    ...
