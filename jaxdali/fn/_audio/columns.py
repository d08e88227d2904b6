"""What is computed along one axis of a tensor: its columns as the rows of a matrix, of dense and of ragged batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from ..._core.context import BuildContext, HostContext, LowerContext, Out
from ..._core.operator import HostOperator, Operator, ProgramOperator, Setup
from ..._core.ragged import ALIGNMENT, Ragged
from ..._core.values import Spec, Value
from .._families.layouts import spec_of
from .._families.ragged import samples_of_blocks


def first_of(counts: Any, room: int) -> tuple[Any, Any, Any]:
    """Rows of a matrix that belong to samples, one sample's after the other's.

    Args:
      counts: ``i32[B]``, rows of each sample.
      room: rows of the matrix, at least their sum.

    Returns:
      The first row of each sample, ``i32[B]``; for each row its sample, and its number there, ``i32[room]``.
    """
    counts = counts.astype(jnp.int32)
    first = jnp.cumsum(counts, dtype=jnp.int32) - counts
    sample = jnp.repeat(jnp.arange(len(counts), dtype=jnp.int32), counts, total_repeat_length=room)
    return first, sample, jnp.arange(room, dtype=jnp.int32) - first[sample]


def elements_of(out: Out) -> tuple[Any, Any]:
    """For each block of a ragged buffer its sample, ``i32[blocks]``; for each element its number there, ``i32[blocks,
    ALIGNMENT]``.
    """
    sample = samples_of_blocks(out.offsets, out.capacity)
    block = jnp.arange(len(sample), dtype=jnp.int32) - out.offsets[sample]
    return sample, block[:, None] * ALIGNMENT + jnp.arange(ALIGNMENT, dtype=jnp.int32)


def from_columns(rows: Any, first: Any, inner: Any, out: Out) -> Ragged:
    """A ragged batch of the columns ``[rows, m]`` of its samples ``[outer, m, inner]``.

    Args:
      first: the row of each sample's first column, ``i32[B]``.
      inner: extent behind the axis, ``i32[B]``.
    """
    sample, local = elements_of(out)
    inner = jnp.maximum(inner, 1)[sample][:, None]
    block = local // inner
    row = first[sample][:, None] + block // rows.shape[1] * inner + (local - block * inner)
    at = row * rows.shape[1] + block % rows.shape[1]
    return Ragged(rows.reshape(-1).at[at.reshape(-1)].get(mode="clip"), out.offsets, out.shapes)


def along(f: Callable[[Any], Any], x: Any, axis: int, ctx: LowerContext) -> Any:
    """A function of vectors of known length, along one axis of the samples of a batch.

    Args:
      f: of ``[rows, n]``, gives ``[rows, m]``; of a dense batch of any number of axes before the last.
      axis: of the samples.
    """
    if not isinstance(x, Ragged):
        if axis == x.ndim - 2:
            return f(x)
        return jnp.moveaxis(f(jnp.moveaxis(x, axis + 1, -1)), -1, axis + 1)
    out, n, m = ctx.out[0], ctx.inputs[0].extent(axis), ctx.spec.extent(axis)
    assert out is not None and n is not None and m is not None
    inner = jnp.prod(x.shapes[:, axis + 1 :], axis=1, dtype=jnp.int32)
    outer = jnp.prod(x.shapes[:, :axis], axis=1, dtype=jnp.int32)
    first, sample, number = first_of(outer * inner, max(out.capacity // m, 1))
    step = jnp.maximum(inner, 1)[sample]
    at = x.offsets[sample] * ALIGNMENT + number // step * (n * step) + number % step
    rows = x.data.at[at[:, None] + step[:, None] * jnp.arange(n, dtype=jnp.int32)].get(mode="clip")
    return from_columns(f(rows), first, inner, out)


class AlongAxis(ProgramOperator):
    """A function of the vectors along one axis, whose lengths are known when the pipeline is built.

    Where they are not, as in ragged tensors from anywhere, each sample is computed by itself, on the host:
    `_EachSample`.
    """

    def axis_of(self, x: Spec) -> int:
        """The axis of the samples."""
        raise NotImplementedError(self.name)

    def length(self, n: int) -> int:
        """How long a vector of `n` elements becomes."""
        raise NotImplementedError(self.name)

    def vectors(self, xp: Any, x: Any) -> Any:
        """The function of ``float32[..., n]``, with NumPy (`xp` = numpy) or in a program (jax.numpy)."""
        raise NotImplementedError(self.name)

    def check(self, x: Spec) -> None:
        """Raises an error for an input that is not taken."""

    def infer(self, x: Spec) -> tuple[Spec, ...]:
        self.check(x)
        axis = self.axis_of(x)
        extents = [x.extent(d) for d in range(x.ndim)]
        n = extents[axis]
        extents[axis] = None if n is None else self.length(n)
        return (spec_of(np.dtype(np.float32), extents, x.layout),)

    def bind(self, ctx: BuildContext, x: Spec) -> Operator:
        self.check(x)
        return self if x.extent(self.axis_of(x)) is not None else _EachSample(of=self)

    def setup(self, ctx: HostContext, x: Value) -> Setup:
        return Setup((None if ctx.spec.shape is not None else self._shapes(x),))

    def _shapes(self, x: Value) -> np.ndarray:
        shapes, axis = x.shapes.copy(), self.axis_of(x.spec)
        shapes[:, axis] = [self.length(n) for n in shapes[:, axis].tolist()]
        return shapes

    def lower(self, ctx: LowerContext, x: Any) -> Any:
        return (along(lambda rows: self.vectors(jnp, rows), x, self.axis_of(ctx.inputs[0]), ctx),)


class _EachSample(HostOperator):
    """The same on the host, of samples with vectors of different lengths."""

    of: AlongAxis

    @property
    def name(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.of.name

    def infer(self, x: Spec) -> tuple[Spec, ...]:
        return self.of.infer(x)

    def run(self, ctx: HostContext, x: Value) -> tuple[Any, ...]:
        axis = self.of.axis_of(x.spec)

        def sample(i: int) -> np.ndarray:
            return np.moveaxis(self.of.vectors(np, np.moveaxis(x.sample(i), axis, -1)), -1, axis).astype(np.float32)

        nothing = np.zeros((0,) * ctx.spec.ndim, np.float32)
        return ([sample(i) if ctx.present[i] else nothing for i in range(ctx.N)],)


def check_floats(x: Spec) -> None:
    """TypeError unless the input is float32."""
    if x.dtype != np.float32:
        raise TypeError(f"the input must be float32, got {x.dtype}")
