"""lookup_table: replaces integers by numbers from a table."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, Literal, Unpack

import jax.numpy as jnp
import numpy as np

from ... import types
from ..._core.context import HostContext, LowerContext
from ..._core.declaration import DType, Range
from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._core.operator import HostOperator, ProgramOperator, Setup
from ..._core.operator_function import DTypeHints, Input, OneOrMore, operator_function
from ..._core.ragged import Ragged
from ..._core.values import Spec, Value
from .._families.conversion import convert
from .._families.ragged import fit, shapes_of

_MAX_KEY = 0xFFFF  # as in DALI


class LookupTable(HostOperator, ProgramOperator):
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

    def _table(self) -> np.ndarray:
        """The values of the keys 0, 1, ..., and at the end the default value."""
        keys, values = (
            np.atleast_1d(np.asarray(self.keys, np.int64)),
            np.atleast_1d(np.asarray(self.values, np.float32)),
        )
        table = np.full(keys.max(initial=-1) + 2, self.default_value, np.float32)
        for key, value in zip(keys.tolist(), values, strict=True):  # if a key is given twice, the last one counts
            table[key] = value
        return convert(np, table, self.dtype)

    def infer(self, x: Spec) -> tuple[Spec, ...]:
        if x.dtype.kind not in "iu":
            raise TypeError(f"the input must be integers, got {x.dtype}")
        return (dataclasses.replace(x, dtype=self.dtype),)

    def run(self, ctx: HostContext, x: Value) -> tuple[Any, ...]:
        table = self._table()
        samples = [self._look_up(np, table, x.sample(i)) for i in range(ctx.N)]
        return (np.stack(samples) if ctx.spec.shape is not None else samples,)

    def setup(self, ctx: HostContext, x: Value) -> Setup:
        return Setup((shapes_of(x),))

    def lower(self, ctx: LowerContext, x: Any) -> tuple[Any, ...]:
        table = jnp.asarray(self._table())
        if not isinstance(x, Ragged):
            return (self._look_up(jnp, table, x),)
        x = fit(x, ctx.out[0])
        return (dataclasses.replace(x, data=self._look_up(jnp, table, x.data)),)

    @staticmethod
    def _look_up(xp: Any, table: Any, x: Any) -> Any:
        # Compared as uint64, because the largest keys of an unsigned type do not fit into a signed one.
        default = len(table) - 1
        is_in_table = (x >= 0) & (x.astype(np.uint64) < default)
        return xp.take(table, xp.where(is_in_table, x.astype(np.int32), default).astype(np.int32), axis=0)


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
