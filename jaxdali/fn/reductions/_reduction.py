"""The base of reductions, which turn the elements over some axes into one number, computed in double precision."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np

from ..._core.context import HostContext, LowerContext
from ..._core.errors import ArgumentError
from ..._core.operator import HostOperator, NativeOperator, Setup
from ..._core.ragged import ALIGNMENT, Ragged
from ..._core.values import Spec, Value
from ..._cpu import Reduction as ReductionKind
from ...types import is_number
from .._families import call_reduce, samples_of_blocks, spec_of
from .._families.conversion import convert
from .._families.cropping import axes_of
from .._families.ragged import fit

_BLOCK = 1 << 15  # elements that stay in the cache


class Reduction(HostOperator, NativeOperator):
    """Reduces the elements over some axes to a total, a number in double precision. `finish` makes the result of it."""

    kernel = "reduce"
    kind: ClassVar[ReductionKind] = ReductionKind.SUM
    axes: tuple[int, ...] | int | None  # the axes that are reduced; None: those of `axis_names`, or all
    axis_names: str | None
    keep_dims: bool  # whether reduced axes stay, with extent 1

    def finish(self, xp: Any, total: Any, count: Any) -> Any:
        """The result from the total and the number of elements."""
        return total

    def origin(self) -> float:
        """The number that is subtracted before squaring, if it is not an input."""
        return 0.0

    def result(self, dtype: np.dtype) -> np.dtype:
        """The element type of the result for an input of this type."""
        return np.dtype(np.float32)

    def _axes(self, x: Spec) -> tuple[int, ...]:
        """The axes that are reduced."""
        if self.axes is not None and self.axis_names is not None:
            raise ArgumentError("give either axes or axis_names")
        if self.axis_names == "" or (self.axes is not None and np.size(self.axes) == 0):
            return ()
        axes = None if self.axes is None else np.atleast_1d(self.axes).tolist()
        return tuple(axes_of(x.layout, x.ndim, self.axis_names, axes))

    def infer(self, x: Spec, *center: Spec) -> tuple[Spec, ...]:
        """The extents that remain. `center`: the mean, of as many elements as the result."""
        if not is_number(x.dtype):
            raise TypeError(f"the input must be numbers, got {x.dtype}")
        axes = self._axes(x)
        extents = [1 if d in axes else x.extent(d) for d in range(x.ndim) if self.keep_dims or d not in axes]
        layout = "".join(c for d, c in enumerate(x.layout) if self.keep_dims or d not in axes)
        out = spec_of(self.result(x.dtype), extents, layout)
        if (
            center
            and out.shape is not None
            and center[0].shape is not None
            and np.prod(center[0].shape) != np.prod(out.shape)
        ):
            raise ArgumentError(f"the mean must have the shape of the result {out.shape}, got {center[0].shape}")
        # A result of varying shape may have several elements; a number is the mean of only one.
        if center and out.ndim and not center[0].ndim and out.shape is None:
            raise ArgumentError(
                f"the mean must have the shape of the {out.ndim}-D result, got a number: reduce all axes, or give a mean for each"
            )
        return (out,)

    def run(self, ctx: HostContext, x: Value, *center: Value) -> tuple[Any, ...]:
        """Reduces sample by sample, with NumPy."""
        axes, shapes = self._axes(x.spec), self._shapes(x)
        out = []
        for i in range(ctx.N):
            if ctx.spec.shape is not None and not ctx.present[i]:
                out.append(np.zeros(ctx.spec.shape, ctx.spec.dtype))
                continue
            sample = x.sample(i)
            kept_shape = [1 if d in axes else n for d, n in enumerate(sample.shape)]
            # The number that is subtracted before squaring.
            origin = center[0].sample(i).astype(np.float64).reshape(kept_shape) if center else self.origin()
            with np.errstate(all="ignore"):
                total = self.finish(
                    np, _reduced(self.kind, sample, origin, axes), float(np.prod([sample.shape[d] for d in axes]))
                )
                out.append(convert(np, total, ctx.spec.dtype).reshape(shapes[i]))
        return (np.stack(out) if ctx.spec.shape is not None else out,)

    def setup_reads(self, i: int) -> bool:
        return False

    def setup(self, ctx: HostContext, *values: Value) -> Setup:
        x = values[0]
        count = x.shapes[:, self._axes(x.spec)].prod(axis=1).astype(np.float64)
        return Setup((None if ctx.spec.shape is not None else self._shapes(x),), {"count": count})

    def _shapes(self, x: Value) -> np.ndarray:
        """The shapes of the results, ``i64[N, ndim]``."""
        axes = self._axes(x.spec)
        shapes = x.shapes.copy()
        shapes[:, axes] = 1
        return shapes if self.keep_dims else np.delete(shapes, axes, axis=1)

    def lower(self, ctx: LowerContext, x: Any, *center: Any) -> Any:
        """Calls the kernel, whose totals are float64, and makes the result of them."""
        out, spec = ctx.out[0], ctx.spec
        double_spec = dataclasses.replace(spec, dtype=np.dtype(np.float64))
        origins = self._center(ctx, *center)
        y, status = call_reduce(ctx, x, double_spec, out, origins, self.kind, self._axes(ctx.inputs[0]))
        count = ctx.params["count"]
        if isinstance(y, Ragged):
            # A block is ALIGNMENT elements of one sample of the ragged buffer.
            data = y.data.reshape(-1, ALIGNMENT)
            total = self.finish(jnp, data, count[samples_of_blocks(y.offsets, y.data.shape[0])][:, None])
            return (dataclasses.replace(y, data=convert(jnp, total, spec.dtype).reshape(-1)),), status
        return (convert(jnp, self.finish(jnp, y, count.reshape(-1, *(1,) * (y.ndim - 1))), spec.dtype),), status

    def _center(self, ctx: LowerContext, center: Any = None) -> Any:
        """The numbers that are subtracted before squaring, laid out as the output; empty for 0."""
        out, size = ctx.out[0], int(np.prod(ctx.spec.shape or ()))
        if center is None:
            return jnp.full(
                (0 if self.origin() == 0 else ctx.B * size if out is None else out.capacity,),
                self.origin(),
                jnp.float64,
            )
        # Ragged means stay so for a ragged result; for a dense one, they are gathered.
        if isinstance(center, Ragged):
            if out is not None:
                return fit(center, out).data.astype(jnp.float64)
            return (
                center.data[center.offsets[:, None] * ALIGNMENT + jnp.arange(size, dtype=jnp.int32)]
                .reshape(-1)
                .astype(jnp.float64)
            )
        if ctx.out[0] is not None:
            raise ArgumentError("the mean's shape must vary as the result's does")
        return center.reshape(-1).astype(jnp.float64)


class Extreme(Reduction):
    """The least or the greatest element."""

    def result(self, dtype: np.dtype) -> np.dtype:
        return dtype


def _reduced(kind: ReductionKind, x: np.ndarray, center: Any, axes: tuple[int, ...]) -> np.ndarray:
    """The total of one sample, with NumPy, as the kernel computes it. Reduced axes stay, with extent 1.

    Args:
      center: subtracted before squaring: a number, or an array that broadcasts against `x`.
      axes: the axes that are reduced.
    """
    if kind == ReductionKind.SUM:
        sum_dtype = np.dtype(np.float64)
        if x.dtype.kind in "iu" and x.dtype.itemsize <= 2:  # Sums of integers are exact, and faster.
            # A sum of so few elements fits into int32.
            sum_dtype = np.dtype(np.int32 if x.size < 1 << 31 - 8 * x.dtype.itemsize else np.int64)
        return _over(np.add, x, axes, sum_dtype).astype(np.float64)
    if kind != ReductionKind.SQUARES:
        # NumPy refuses extremes of no elements.
        if not all(x.shape[d] for d in axes):
            kept_shape = [1 if d in axes else n for d, n in enumerate(x.shape)]
            return np.full(kept_shape, np.inf if kind == ReductionKind.MIN else -np.inf)
        return _over(np.minimum if kind == ReductionKind.MIN else np.maximum, x, axes, x.dtype).astype(np.float64)
    # In blocks of rows that stay in the cache, if the rows are reduced. 0: there is one block.
    block_rows = max(1, _BLOCK * len(x) // max(x.size, 1)) if 0 in axes else 0
    total: Any = 0.0
    for block in (x[i : i + block_rows] for i in range(0, len(x), block_rows)) if block_rows and len(x) else [x]:
        distance = block.astype(np.float64)
        distance -= center
        distance *= distance
        total = total + _over(np.add, distance, axes, distance.dtype)
    return total


def _over(ufunc: np.ufunc, x: np.ndarray, axes: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Reduces one axis after the other, from the first on. NumPy works by rows then, which is many times faster than
    reducing all axes at once.
    """
    if len(axes) == x.ndim and x.flags.c_contiguous:
        return ufunc.reduce(x.reshape(-1), dtype=dtype).reshape((1,) * x.ndim)
    for d in sorted(axes):
        x = ufunc.reduce(x, axis=d, dtype=dtype, keepdims=True)
    return x
