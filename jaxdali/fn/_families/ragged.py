"""Helpers of programs for batches of different shapes: buffers of a given capacity, and the sample of each element."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..._core.context import Out
from ..._core.ragged import ALIGNMENT, Ragged
from ..._core.values import Value


def fit(x: Ragged, out: Out | None) -> Ragged:
    """`x`, whose samples have the shapes of `out`, in a buffer with the capacity of `out`.

    Samples of equal shapes lie at equal offsets, so only unused elements at the end are cut off or added.
    """
    assert out is not None
    capacity = x.data.shape[0]
    data = x.data
    if capacity > out.capacity:
        data = data[: out.capacity]
    elif capacity < out.capacity:
        data = jnp.pad(data, (0, out.capacity - capacity))
    return Ragged(data, out.offsets, out.shapes)


def shapes_of(x: Value) -> np.ndarray | None:
    """The shapes in the `Setup` of an operator that keeps its input's shape: None if the spec has the shape."""
    return x.shapes if x.spec.shape is None else None


def samples_of_blocks(offsets: Any, capacity: int) -> Any:
    """The sample that each block of a ragged buffer belongs to, ``i32[capacity // ALIGNMENT]``. A block is `ALIGNMENT`
    elements, and a sample begins at a block.

    So an array ``x[B]`` of one number per sample broadcasts against the elements without native code:
    ``data.reshape(-1, ALIGNMENT)`` against ``x[samples][:, None]``.
    """
    # 1 at the first block of each sample, added up. Two samples begin at the same block if the first one is empty. An
    # empty sample at the end may begin behind the buffer, and is dropped.
    first = jnp.zeros((capacity // ALIGNMENT,), jnp.int32).at[offsets].add(jnp.ones((), jnp.int32), mode="drop")
    return jnp.cumsum(first, dtype=jnp.int32) - jnp.ones((), jnp.int32)


def quotient(x: Any, divisor: Any) -> Any:
    """``x // divisor``, i32, for positive divisors and x of at least 0."""

    def in_floats(x: Any, divisor: Any) -> Any:
        # CPUs have no division of vectors of integers. The half is more than any rounding error.
        return ((x.astype(jnp.float64) + 0.5) / divisor.astype(jnp.float64)).astype(jnp.int32)

    return jax.lax.platform_dependent(x, divisor, cpu=in_floats, default=jnp.floor_divide)


def aligned(x: Any, ndim: int) -> Any:
    """A dense batch, reshaped so that samples broadcast against others of `ndim` axes: axes of extent 1 are inserted
    behind the batch axis.
    """
    return x.reshape(x.shape[0], *(1,) * (ndim - (x.ndim - 1)), *x.shape[1:])
