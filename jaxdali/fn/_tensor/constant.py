"""Constants: numbers and arrays that are the same for every sample, and lists of scalars as one vector."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, Unpack

import jax.numpy as jnp
import numpy as np

from ... import types
from ..._core.building import add
from ..._core.calls import records
from ..._core.context import LowerContext
from ..._core.declaration import DType, Range
from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._core.operator import HostOperator, ProgramOperator
from ..._core.operator_function import Hints, OneOrMore, operator_function
from ..._core.values import Spec
from .._families.conversion import convert


class Constant(HostOperator, ProgramOperator):
    """One array for every sample: on the host by default, and inside the program if the user asks for the accelerator."""

    name = "constant"
    data: bytes
    dtype: np.dtype
    shape: tuple[int, ...]
    layout: str = ""

    @property
    def literal(self) -> np.ndarray:
        return np.frombuffer(self.data, self.dtype).reshape(self.shape)

    def infer(self) -> tuple[Spec, ...]:
        return (Spec(self.dtype, len(self.shape), self.shape, self.layout),)

    def compute(self, N: int, *specs: Spec) -> Callable[[], np.ndarray]:
        array = np.broadcast_to(self.literal, (N, *self.shape))
        return lambda: array

    def lower(self, ctx: LowerContext) -> tuple[Any]:
        return (jnp.broadcast_to(jnp.asarray(self.literal, self.dtype), (ctx.B, *self.shape)),)


class StackScalars(HostOperator):
    """Scalars, some per sample and some constant, as one vector per sample."""

    name = "stack_scalars"
    constants: tuple[Any, ...]  # None if the element is an input

    def infer(self, *specs: Spec) -> tuple[Spec, ...]:
        """A vector of float64 if an element is; otherwise of float32 if any element is a float; otherwise of int64."""
        dtypes = [s.dtype for s in specs]
        for s in specs:
            if s.shape not in ((), (1,)):
                raise ValueError(
                    f"the elements of a list must be numbers or scalar DataNodes, got samples of shape {s.shape or f'{s.ndim}-D'}"
                )
        for x in self.constants:
            if x is not None:
                dtypes.append(narrowed(x).dtype)
        default = np.float32 if any(map(types.is_float, dtypes)) else np.int64
        dtype = np.float64 if np.dtype(np.float64) in dtypes else default
        return (Spec(np.dtype(dtype), 1, (len(self.constants),)),)

    def compute(self, N: int, *specs: Spec) -> Callable[..., np.ndarray]:
        """A function that fills the vectors column by column."""
        (spec,) = self.infer(*specs)

        def stack(*scalars: np.ndarray) -> np.ndarray:
            out = np.empty((N, len(self.constants)), spec.dtype)
            inputs = iter(scalars)
            for i, x in enumerate(self.constants):
                out[:, i] = next(inputs).reshape(N) if x is None else x
            return out

        return stack


def narrowed(x: Any) -> np.ndarray:
    """Converts a number, list or array by the rules of DALI's constants.

    Python's int counts as int32 and float as float32; NumPy and JAX arrays keep their type, except that 64-bit arrays
    become 32-bit ones as in DALI. A 64-bit NumPy integer or a `types.Constant` keeps its own type.

    Raises:
      ValueError: an integer does not fit into 32 bits.
      TypeError: the value is not numeric.
    """
    if isinstance(x, types.ScalarConstant):
        return np.asarray(x)
    if isinstance(x, np.integer):
        return np.asarray(x)
    array = np.asarray(x)
    if not (array.dtype == np.bool_ or types.is_number(array.dtype)):
        elements = sorted({type(e).__name__ for e in x}) if isinstance(x, (list, tuple)) else []
        shown = f"{type(x).__name__}{' of ' * bool(elements)}{' and '.join(elements)}"
        raise TypeError(f"expected a number, a list of numbers or an array, got {shown}")
    if array.dtype == np.float64:
        return array.astype(np.float32)
    if array.dtype in (np.int64, np.uint64):
        # Numbers and lists of Python have no dtype. They are int32, also where NumPy makes uint64 of them.
        target = np.dtype(np.int32 if array.dtype == np.int64 or not hasattr(x, "dtype") else np.uint32)
        limits = np.iinfo(target)
        if array.size and (array.max() > limits.max or array.min() < limits.min):
            number = array.max() if array.max() > limits.max else array.min()
            raise ValueError(
                f"the constant {number} does not fit into {target.name}; use types.Constant(..., types.INT64) for a 64-bit one"
            )
        return array.astype(target)
    return array


def constant_node(x: Any) -> DataNode:
    """A number (int: int32, float: float32, bool: bool), `types.Constant`, list of numbers or array as a DataNode."""
    return array_node(narrowed(x))


@records("array")
def array_node(array: np.ndarray, *, layout: str = "", device: str | None = None, name: str | None = None) -> DataNode:
    """Makes a DataNode of an array: the same tensor for every sample.

    Args:
      array: the value.
      layout: its layout, a letter for each axis; "" if it has none.
      device, name: the user's arguments of the operator.
    """
    if layout and len(layout) != array.ndim:
        raise ValueError(f"the layout {layout!r} does not fit a constant of shape {array.shape}")
    op = Constant(data=array.tobytes(), dtype=array.dtype, shape=array.shape, layout=layout)
    return add(op, device=device, name=name)


def stack_nodes(elements: Sequence[Any]) -> DataNode:
    """Joins numbers and scalar DataNodes into one 1-D host value per sample."""
    constants = tuple(None if isinstance(x, DataNode) else narrowed(x).item() for x in elements)
    return add(StackScalars(constants=constants), *(x for x in elements if isinstance(x, DataNode)))


@operator_function("constant")
def constant(
    *,
    fdata: Annotated[OneOrMore[float] | None, Range(infinite=True)] = None,
    idata: OneOrMore[int] | None = None,
    shape: Annotated[OneOrMore[int] | None, Range(0)] = None,
    dtype: DType | None = None,
    layout: str | None = None,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """Makes the same tensor for every sample; `types.Constant` makes one from an array.

    Args:
      fdata: the elements, float32. Either this or `idata`.
      idata: the elements, int32.
      shape: the extents; a single element fills any shape. Default: a vector.
      dtype: element type; elements are rounded and saturated. Default: FLOAT with `fdata`, INT32 with `idata`.
      layout: layout of the result.

    Raises:
      ArgumentError: none or both of `fdata` and `idata` are given, or the elements or the layout don't fit the shape.

    Example:
      >>> mean = fn.constant(fdata=[123.7, 116.3, 103.5])
    """
    if (fdata is None) == (idata is None):
        raise ArgumentError(f"give either fdata or idata, got {'both' if fdata is not None else 'neither'}")
    data = np.atleast_1d(np.asarray(fdata, np.float32) if fdata is not None else np.asarray(idata, np.int64))
    extents = data.shape if shape is None else tuple(np.atleast_1d(np.asarray(shape, np.int64)).tolist())
    if data.size not in (1, math.prod(extents)):
        raise ArgumentError(f"{data.size} elements don't fill the shape {extents}")
    result_dtype: Any = dtype if dtype is not None else np.dtype(np.float32 if fdata is not None else np.int32)
    array = convert(np, data, result_dtype)
    # One number fills the whole shape.
    array = np.full(extents, array[0]) if data.size == 1 else array.reshape(extents)
    return array_node(array, layout=layout or "", device=device, name=name)
