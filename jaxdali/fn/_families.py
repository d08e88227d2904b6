"""Families of operators: each is one native kernel, or one function of arrays, and needs of an operator its parameters alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp

from .._core import ffi as _ffi
from .._core.context import LowerContext


def call_window(
    ctx: LowerContext,
    x: Any,
    start: Any,
    step: Any,
    extent: Any,
    *,
    fill: Any = None,
    scale: Any = None,
    offset: Any = None,
    permutation: Sequence[int] = (),
    channel: int = -1,
) -> tuple[Any, Any]:
    """A strided window of each sample, see ffi/window/window.h.

    Args:
      start, step, extent: ``i32[B, ndim]`` by axis of the input: first index, to the next, how many.
      fill: ``f32[B, channels]``, of indices outside the input; without it these are an error of their sample.
      scale, offset: ``f32[B, channels]``; elements are ``scale * x + offset``.
      permutation: for each axis of the output the input's. Default: as they are.
      channel: the input's axis along which fill, scale and offset vary.

    Returns:
      (output, status).
    """
    none = jnp.zeros((ctx.B, 0), jnp.float32)
    operands = (none if p is None else p for p in (fill, scale, offset))
    axes = tuple(permutation) or tuple(range(start.shape[1]))
    return _ffi.call("window", ctx, x, ctx.spec, ctx.out[0], start, step, extent, *operands, permutation=axes, channel=channel)
