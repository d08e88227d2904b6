"""What programs do with values of different shapes: fitting buffers, and giving each element what its sample has."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from ..._core.context import Out
from ..._core.ragged import ALIGNMENT, Ragged
from ..._core.values import Value


def fit(x: Ragged, out: Out | None) -> Ragged:
    """A ragged value of the shapes of `out`, in a buffer of its capacity.

    Samples of equal shapes lie at equal offsets, so this only cuts off or adds unused elements at the end.
    """
    assert out is not None
    have = x.data.shape[0]
    data = x.data
    if have > out.capacity:
        data = data[: out.capacity]
    elif have < out.capacity:
        data = jnp.pad(data, (0, out.capacity - have))
    return Ragged(data, out.offsets, out.shapes)


def shapes_of(x: Value) -> np.ndarray | None:
    """What `setup` of an operator that keeps the shape returns."""
    return x.shapes if x.spec.shape is None else None


def samples_of_blocks(offsets: Any, capacity: int) -> Any:
    """For each `ALIGNMENT` elements of a ragged buffer the number of the sample they belong to, ``i32[capacity //
    ALIGNMENT]``.

    Numbers of samples reach their elements so without native code: ``data.reshape(-1, ALIGNMENT)`` against
    ``x[samples][:, None]``.
    """
    first = jnp.zeros((capacity // ALIGNMENT,), jnp.int32).at[offsets].add(jnp.ones((), jnp.int32), mode="drop")
    return jnp.cumsum(first, dtype=jnp.int32) - jnp.ones((), jnp.int32)


def aligned(x: Any, ndim: int) -> Any:
    """A dense batch with axes of extent 1 inserted behind the batch axis, so that samples are aligned at their last of
    `ndim` axes.
    """
    return x.reshape(x.shape[0], *(1,) * (ndim - (x.ndim - 1)), *x.shape[1:])
