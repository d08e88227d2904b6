"""The family of affine maps of points: ``M x + T`` along the last axis."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from ..._core.arguments import Values
from ..._core.context import HostContext, LowerContext
from ..._core.operator import HostOperator, ProgramOperator, Setup
from ..._core.ragged import ALIGNMENT, Ragged
from ..._core.values import Spec, Value
from .._families.conversion import convert


class PointMap(HostOperator, ProgramOperator):
    """Maps points ``[..., D]`` of each sample to points ``[..., R]``. Subclasses define the matrix."""

    def affine(self, a: Values, dims: int) -> tuple[np.ndarray, np.ndarray]:
        """``M [N, R, D]`` and ``T [N, R]``, float64, for points of `dims` coordinates."""
        raise NotImplementedError(self.name)

    def setup_reads(self, i: int) -> bool:
        return i > 0

    def run(self, ctx: HostContext, x: Value, *arguments: Value) -> tuple[Any, ...]:
        """Maps the points of each sample, in float32."""
        m, t, rows = self._matrices(ctx, x, arguments)
        stacked = x.stacked()
        # Together, because a call takes longer than to map the points of a sample.
        if stacked is not None and stacked.ndim > 2 and stacked.size and ctx.present.all():
            ones = (1,) * (stacked.ndim - 3)
            mapped = stacked.astype(np.float32) @ m.transpose(0, 2, 1).reshape(ctx.N, *ones, *m.shape[:0:-1])
            mapped += t.reshape(ctx.N, *ones, 1, rows)
            return (ctx.stored(convert(np, mapped, ctx.spec.dtype)),)
        points = []
        for i, k in enumerate(x.indices(ctx.present)):
            p = x.sample(k)
            # A sample without points may have another number of coordinates than the matrix.
            mapped = p.astype(np.float32) @ m[i].T + t[i] if p.size else np.zeros((*p.shape[:-1], rows), np.float32)
            points.append(convert(np, mapped, ctx.spec.dtype))
        return (np.stack(points) if ctx.spec.shape is not None else points,)

    def setup(self, ctx: HostContext, x: Value, *arguments: Value) -> Setup:
        m, t, rows = self._matrices(ctx, x, arguments)
        shapes = np.concatenate([x.shapes[:, :-1], np.full((ctx.N, 1), rows)], axis=1)
        return Setup((shapes if ctx.spec.shape is None else None,), {"m": m, "t": t})

    def lower(self, ctx: LowerContext, x: Any, *arguments: Any) -> tuple[Any, ...]:
        """Maps the points of a dense batch at once, or each element of a ragged result on its own."""
        m, t = ctx.params["m"], ctx.params["t"]
        if not isinstance(x, Ragged):
            flat = x.reshape(ctx.B, -1, x.shape[-1]).astype(np.float32)
            y = (flat[:, :, None, :] * m[:, None]).sum(axis=3, dtype=np.float32) + t[:, None]
            return (convert(jnp, y, ctx.spec.dtype).reshape(ctx.B, *x.shape[1:-1], m.shape[1]),)
        out = ctx.out[0]
        assert out is not None
        rows, dims = m.shape[1:]
        # For each element of the result: its sample, its point in the sample, and its coordinate.
        element = jnp.arange(out.capacity, dtype=jnp.int32)
        sample = jnp.searchsorted(out.offsets, element // ALIGNMENT, side="right") - 1
        local = element - out.offsets[sample] * ALIGNMENT
        first = x.offsets[sample] * ALIGNMENT + local // rows * dims
        y = t[sample, local % rows]
        for d in range(dims):
            y = y + m[sample, local % rows, d] * jnp.take(x.data, first + d, mode="clip").astype(np.float32)
        return (Ragged(convert(jnp, y, ctx.spec.dtype), out.offsets, out.shapes),)

    def _matrices(self, ctx: HostContext, x: Value, arguments: tuple[Value, ...]) -> tuple[np.ndarray, np.ndarray, int]:
        """The matrices ``f32[N, R, D]``, the offsets ``f32[N, R]``, and R. As in DALI, R is 0 if it is not known
        because no sample has points.
        """
        dims = x.spec.extent(x.spec.ndim - 1)
        if dims is None:
            distinct_dims = np.unique(x.shapes[ctx.present & x.shapes.all(axis=1), -1])
            if not len(distinct_dims):  # there are no samples, or none has points
                rows = ctx.spec.extent(x.spec.ndim - 1) or 0
                # The matrices have at least one row, because `lower` divides by their number.
                return np.zeros((ctx.N, max(rows, 1), 1), np.float32), np.zeros((ctx.N, max(rows, 1)), np.float32), rows
            if len(distinct_dims) != 1:
                raise ValueError(
                    f"the points must have one number of coordinates in a batch, got {distinct_dims.tolist()}"
                )
            dims = int(distinct_dims[0])
        m, t = self.affine(self.arguments(ctx, arguments), dims)
        return m.astype(np.float32), t.astype(np.float32), m.shape[1]


def mapped(x: Spec, rows: int | None, dtype: np.dtype) -> tuple[Spec, ...]:
    """The spec of points mapped from `x`. `rows`: the number of coordinates of a result; None: it is not known yet."""
    dims = (*(x.extent(d) for d in range(x.ndim - 1)), rows)
    shape = tuple(d for d in dims if d is not None)
    return (Spec(dtype, x.ndim, shape if len(shape) == x.ndim and x.shape is not None else None, x.layout, dims),)
