"""Frames as planes, from which an accelerator makes pixels."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..._core.context import LowerContext
from ..._core.operator import ProgramOperator
from ..._core.values import Spec

# What swscale multiplies with, in units of 2^-13: luma above black, and for each of R, G and B the differences of chroma, U and V.
_LIMITED = (9539, 16, ((0, 13075), (-3209, -6660), (16525, 0)))
_FULL = (8192, 0, ((0, 11485), (-2819, -5850), (14516, 0)))


class PixelsOfPlanes(ProgramOperator):
    """Makes pixels ``uint8[F, height, width, 3]`` from planes ``uint8[F, nbytes(height, width)]``, to the bit as `yuv_to_rgb` does on the
    CPU."""

    name = "pixels of planes"
    height: int
    width: int

    def infer(self, x: Spec) -> tuple[Spec, ...]:
        assert x.shape is not None and x.shape[1] == nbytes(self.height, self.width)
        return (Spec(x.dtype, 4, (x.shape[0], self.height, self.width, 3), "FHWC"),)

    def lower(self, ctx: LowerContext, *arrays: Any) -> Any:
        planes, full = arrays[0][..., :-1].astype(jnp.int32), arrays[0][..., -1, None, None] > 0
        half = (self.height // 2, self.width // 2)
        y, u, v = jnp.split(planes, np.cumsum([self.height * self.width, math.prod(half)]).tolist(), axis=-1)
        y = y.reshape(*y.shape[:-1], self.height, self.width)
        u, v = (_spread(_spread(c.reshape(*c.shape[:-1], *half), -2), -1) - 2048 for c in (u, v))

        def colors(luma: int, black: int, of_chroma: tuple[tuple[int, int], ...]) -> jax.Array:
            gray = 16 * (y - black) * luma + (1 << 16)
            return jnp.stack([gray + a * u + b * v for a, b in of_chroma], -1)

        pixels = jnp.where(full[..., None], colors(*_FULL), colors(*_LIMITED))
        return (jnp.clip(pixels >> 17, 0, 255).astype(jnp.uint8),)


def _spread(c: jax.Array, axis: int) -> jax.Array:
    """Twice as many along an axis, times 4: three parts of the near one and one of the far one."""
    n = c.shape[axis]
    before = jnp.concatenate([jax.lax.slice_in_dim(c, 0, 1, axis=axis), jax.lax.slice_in_dim(c, 0, n - 1, axis=axis)], axis)
    after = jnp.concatenate([jax.lax.slice_in_dim(c, 1, n, axis=axis), jax.lax.slice_in_dim(c, n - 1, n, axis=axis)], axis)
    pairs = jnp.stack([3 * c + before, 3 * c + after], c.ndim + axis + 1)
    return pairs.reshape(*(2 * m if d == c.ndim + axis else m for d, m in enumerate(c.shape)))


def nbytes(height: int, width: int) -> int:
    """Bytes of a frame whose chroma has half the extents: its planes Y, U and V, and a byte that is 1 where their range is full."""
    return height * width * 3 // 2 + 1


def black(height: int, width: int) -> np.ndarray:
    """The planes of a black frame."""
    planes = np.zeros(nbytes(height, width), np.uint8)
    planes[height * width : -1] = 128
    planes[-1] = 1
    return planes
