"""What reductions share: the elements over some axes become one number, computed in double precision."""

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
from ..._cpu import Reduction as Kind
from ...types import is_number
from .._families import call_reduce, samples_of_blocks, spec_of
from .._families.conversion import convert
from .._families.cropping import axes_of
from .._families.ragged import fit

_BLOCK = 1 << 15  # elements that stay in the cache


class Reduction(HostOperator, NativeOperator):
    """Computes a number in double precision from the elements over some axes; `finish` turns it into the result."""

    kernel = "reduce"
    what: ClassVar[Kind] = Kind.SUM
    axes: tuple[int, ...] | int | None
    axis_names: str | None
    keep_dims: bool

    def finish(self, xp: Any, total: Any, count: Any) -> Any:
        """The result, from the kernel's total and the number of elements."""
        return total

    def origin(self) -> float:
        """The number that is subtracted before squaring, if no input gives it."""
        return 0.0

    def result(self, dtype: np.dtype) -> np.dtype:
        """The element type of the result for an input of this type."""
        return np.dtype(np.float32)

    def _axes(self, x: Spec) -> tuple[int, ...]:
        if self.axes is not None and self.axis_names is not None:
            raise ArgumentError("give either axes or axis_names")
        if self.axis_names == "" or (self.axes is not None and np.size(self.axes) == 0):
            return ()
        axes = None if self.axes is None else np.atleast_1d(self.axes).tolist()
        return tuple(axes_of(x.layout, x.ndim, self.axis_names, axes))

    def infer(self, x: Spec, *center: Spec) -> tuple[Spec, ...]:
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
        if center and out.ndim and not center[0].ndim and out.shape is None:
            raise ArgumentError(
                f"the mean must have the shape of the {out.ndim}-D result, got a number: reduce all axes, or give a mean for each"
            )
        return (out,)

    def run(self, ctx: HostContext, x: Value, *center: Value) -> tuple[Any, ...]:
        axes, shapes = self._axes(x.spec), self._shapes(x)
        out = []
        for i in range(ctx.N):
            if ctx.spec.shape is not None and not ctx.present[i]:
                out.append(np.zeros(ctx.spec.shape, ctx.spec.dtype))
                continue
            sample = x.sample(i)
            kept = [1 if d in axes else n for d, n in enumerate(sample.shape)]
            middle = center[0].sample(i).astype(np.float64).reshape(kept) if center else self.origin()
            with np.errstate(all="ignore"):
                total = self.finish(
                    np, _reduced(self.what, sample, middle, axes), float(np.prod([sample.shape[d] for d in axes]))
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
        axes = self._axes(x.spec)
        shapes = x.shapes.copy()
        shapes[:, axes] = 1
        return shapes if self.keep_dims else np.delete(shapes, axes, axis=1)

    def lower(self, ctx: LowerContext, x: Any, *center: Any) -> Any:
        out, spec = ctx.out[0], ctx.spec
        double = dataclasses.replace(spec, dtype=np.dtype(np.float64))
        middle = self._center(ctx, *center)
        y, status = call_reduce(ctx, x, double, out, middle, self.what, self._axes(ctx.inputs[0]))
        count = ctx.params["count"]
        if isinstance(y, Ragged):
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


def _reduced(what: Kind, x: np.ndarray, center: Any, axes: tuple[int, ...]) -> np.ndarray:
    """Computes with NumPy what the kernel computes, for one sample; reduced axes stay."""
    if what == Kind.SUM:
        wide = np.dtype(np.float64)
        if x.dtype.kind in "iu" and x.dtype.itemsize <= 2:  # exact, and faster
            wide = np.dtype(np.int32 if x.size < 1 << 31 - 8 * x.dtype.itemsize else np.int64)
        return _over(np.add, x, axes, wide).astype(np.float64)
    if what != Kind.SQUARES:
        if not all(x.shape[d] for d in axes):
            kept = [1 if d in axes else n for d, n in enumerate(x.shape)]
            return np.full(kept, np.inf if what == Kind.MIN else -np.inf)
        return _over(np.minimum if what == Kind.MIN else np.maximum, x, axes, x.dtype).astype(np.float64)
    rows = max(1, _BLOCK * len(x) // max(x.size, 1)) if 0 in axes else 0
    total: Any = 0.0
    for part in (x[i : i + rows] for i in range(0, len(x), rows)) if rows and len(x) else [x]:
        distance = part.astype(np.float64)
        distance -= center
        distance *= distance
        total = total + _over(np.add, distance, axes, distance.dtype)
    return total


def _over(ufunc: np.ufunc, x: np.ndarray, axes: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Reduces one axis after the other, from the first: working by rows is many times faster than reducing all axes
    together.
    """
    if len(axes) == x.ndim and x.flags.c_contiguous:
        return ufunc.reduce(x.reshape(-1), dtype=dtype).reshape((1,) * x.ndim)
    for d in sorted(axes):
        x = ufunc.reduce(x, axis=d, dtype=dtype, keepdims=True)
    return x
