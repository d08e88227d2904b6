"""Functions along one axis of the samples. The vectors along the axis, columns, become rows of a matrix."""

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


def rows_of_samples(counts: Any, capacity: int) -> tuple[Any, Any, Any]:
    """Places of samples in a matrix that has the rows of one sample after those of another.

    Args:
      counts: ``i32[B]``, the number of rows of each sample.
      capacity: the number of rows of the matrix, at least the sum of `counts`.

    Returns:
      The first row of each sample, ``i32[B]``; and for each row its sample, and its number in the sample,
      ``i32[capacity]``.
    """
    counts = counts.astype(jnp.int32)
    first = jnp.cumsum(counts, dtype=jnp.int32) - counts
    sample = jnp.repeat(jnp.arange(len(counts), dtype=jnp.int32), counts, total_repeat_length=capacity)
    return first, sample, jnp.arange(capacity, dtype=jnp.int32) - first[sample]


def elements_of(out: Out) -> tuple[Any, Any]:
    """The sample of each block of a ragged buffer, ``i32[blocks]``, and the number of each element in its sample,
    ``i32[blocks, ALIGNMENT]``.
    """
    sample = samples_of_blocks(out.offsets, out.capacity)
    block = jnp.arange(len(sample), dtype=jnp.int32) - out.offsets[sample]
    return sample, block[:, None] * ALIGNMENT + jnp.arange(ALIGNMENT, dtype=jnp.int32)


def from_columns(rows: Any, first: Any, inner: Any, out: Out) -> Ragged:
    """The ragged batch whose columns are the rows of a matrix ``[rows, m]``. Its samples are ``[outer, m, inner]``,
    with the axis in the middle.

    Args:
      rows: the matrix.
      first: the row of each sample's first column, ``i32[B]``.
      inner: the product of the extents behind the axis, ``i32[B]``.
    """
    sample, local = elements_of(out)
    inner = jnp.maximum(inner, 1)[sample][:, None]
    # local = (i_outer * m + i) * inner + i_inner, and the row is first + i_outer * inner + i_inner.
    block = local // inner
    row = first[sample][:, None] + block // rows.shape[1] * inner + (local - block * inner)
    index = row * rows.shape[1] + block % rows.shape[1]
    return Ragged(rows.reshape(-1).at[index.reshape(-1)].get(mode="clip"), out.offsets, out.shapes)


def along(f: Callable[[Any], Any], x: Any, axis: int, ctx: LowerContext) -> Any:
    """Applies a function of vectors of known length along one axis of the samples of a batch.

    Args:
      f: a function from ``[rows, n]`` to ``[rows, m]``. For a dense batch there may be several axes before the last.
      axis: the axis of the samples.
    """
    if not isinstance(x, Ragged):
        # The samples' axis is the last one already: `x` also has the axis of the batch.
        if axis == x.ndim - 2:
            return f(x)
        return jnp.moveaxis(f(jnp.moveaxis(x, axis + 1, -1)), -1, axis + 1)
    out, n, m = ctx.out[0], ctx.inputs[0].extent(axis), ctx.spec.extent(axis)
    assert out is not None and n is not None and m is not None
    inner = jnp.prod(x.shapes[:, axis + 1 :], axis=1, dtype=jnp.int32)
    outer = jnp.prod(x.shapes[:, :axis], axis=1, dtype=jnp.int32)
    first, sample, number = rows_of_samples(outer * inner, max(out.capacity // m, 1))
    # A row reads its n elements with a stride of `inner`, from `start` on: the sample is ``[outer, n, inner]``.
    step = jnp.maximum(inner, 1)[sample]
    start = x.offsets[sample] * ALIGNMENT + number // step * (n * step) + number % step
    rows = x.data.at[start[:, None] + step[:, None] * jnp.arange(n, dtype=jnp.int32)].get(mode="clip")
    return from_columns(f(rows), first, inner, out)


class AlongAxis(ProgramOperator):
    """A function of the vectors along one axis, of a length that is known when the pipeline is built.

    If the length is not known, each sample is computed on its own on the host, by `_PerSample`.
    """

    def axis_of(self, x: Spec) -> int:
        """The axis of the samples that the vectors lie along."""
        raise NotImplementedError(self.name)

    def length(self, n: int) -> int:
        """The length of the result for a vector of `n` elements."""
        raise NotImplementedError(self.name)

    def vectors(self, xp: Any, x: Any) -> Any:
        """The function of ``float32[..., n]``, with NumPy (`xp` = numpy) or in a program (jax.numpy)."""
        raise NotImplementedError(self.name)

    def check(self, x: Spec) -> None:
        """Raises an error for an unsupported input."""

    def infer(self, x: Spec) -> tuple[Spec, ...]:
        """The input's extents, with the length of the result along the axis; None: it varies."""
        self.check(x)
        axis = self.axis_of(x)
        extents = [x.extent(d) for d in range(x.ndim)]
        n = extents[axis]
        extents[axis] = None if n is None else self.length(n)
        return (spec_of(np.dtype(np.float32), extents, x.layout),)

    def bind(self, ctx: BuildContext, x: Spec) -> Operator:
        self.check(x)
        return self if x.extent(self.axis_of(x)) is not None else _PerSample(operator=self)

    def setup(self, ctx: HostContext, x: Value) -> Setup:
        return Setup((None if ctx.spec.shape is not None else self._shapes(x),))

    def _shapes(self, x: Value) -> np.ndarray:
        """The shapes of the results, ``i64[N, ndim]``."""
        shapes, axis = x.shapes.copy(), self.axis_of(x.spec)
        shapes[:, axis] = [self.length(n) for n in shapes[:, axis].tolist()]
        return shapes

    def lower(self, ctx: LowerContext, x: Any) -> Any:
        return (along(lambda rows: self.vectors(jnp, rows), x, self.axis_of(ctx.inputs[0]), ctx),)


class _PerSample(HostOperator):
    """An operator `AlongAxis` on the host, sample by sample, for vectors of different lengths."""

    operator: AlongAxis

    @property
    def name(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.operator.name

    def infer(self, x: Spec) -> tuple[Spec, ...]:
        return self.operator.infer(x)

    def run(self, ctx: HostContext, x: Value) -> tuple[Any, ...]:
        """Computes sample by sample. Samples that are not present become empty."""
        axis = self.operator.axis_of(x.spec)

        def sample(i: int) -> np.ndarray:
            # The function works along the last axis.
            return np.moveaxis(self.operator.vectors(np, np.moveaxis(x.sample(i), axis, -1)), -1, axis).astype(
                np.float32
            )

        empty = np.zeros((0,) * ctx.spec.ndim, np.float32)
        return ([sample(i) if ctx.present[i] else empty for i in range(ctx.N)],)


def check_floats(x: Spec) -> None:
    """Raises TypeError unless the input is float32."""
    if x.dtype != np.float32:
        raise TypeError(f"the input must be float32, got {x.dtype}")
