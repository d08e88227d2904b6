"""Frames as planes, from which an accelerator makes pixels."""

from __future__ import annotations

import functools
import math
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from ..._core.context import LowerContext
from ..._core.operator import ProgramOperator
from ..._core.values import Spec

ColorMatrix = Literal["bt601", "stream"]
_WEIGHTS = {  # of red and blue in luma
    "bt601": (0.299, 0.114),
    "bt709": (0.2126, 0.0722),
    "bt2020": (0.2627, 0.0593),
    "fcc": (0.3, 0.11),
    "smpte240m": (0.212, 0.087),
}
_MATRICES = list(_WEIGHTS)


@functools.lru_cache
def factors(matrix: str, full: bool, bits: int = 8) -> tuple[int, ...]:
    """The multipliers of a matrix in units of 2^-13, those of BT.601 for 8 bits as in swscale.

    Returns:
      Of luma above black; black itself, a sample; of V for red; of U for blue; of U and V for green.
    """
    red, blue = _WEIGHTS[matrix]
    scale = 1 << (bits - 8)
    largest = (256 * scale - 1) / scale
    luma, chroma = (8192 * 255 / (largest if full else limited) for limited in (219, 224))
    red_v, blue_u = 2 * (1 - red) * chroma, 2 * (1 - blue) * chroma
    green = 1 - red - blue
    numbers = luma, 0 if full else 16 * scale, red_v, blue_u, -blue / green * blue_u, -red / green * red_v
    return tuple(round(x) for x in numbers)


def code_of(matrix: str, full: bool) -> int:
    """The number of a matrix and a range, in the last byte of planes."""
    return 2 * _MATRICES.index(matrix) + full


class PixelsOfPlanes(ProgramOperator):
    """Makes pixels ``uint8[F, height, width, 3]`` from planes ``uint8[F, nbytes(height, width)]``, to the bit as
    `yuv_to_rgb` does on the CPU.
    """

    name = "pixels of planes"
    height: int
    width: int

    def infer(self, x: Spec) -> tuple[Spec, ...]:
        assert x.shape is not None and x.shape[1] == nbytes(self.height, self.width)
        return (Spec(x.dtype, 4, (x.shape[0], self.height, self.width, 3), "FHWC"),)

    def lower(self, ctx: LowerContext, *arrays: Any) -> Any:
        planes, code = arrays[0][..., :-1].astype(jnp.int32), arrays[0][..., -1].astype(jnp.int32)
        table = np.array([factors(matrix, full) for matrix in _MATRICES for full in (False, True)], np.int32)
        luma, black, red_v, blue_u, green_u, green_v = jnp.moveaxis(jnp.take(table, code, axis=0, mode="clip"), -1, 0)[
            ..., None, None
        ]
        half = (self.height // 2, self.width // 2)
        y, u, v = jnp.split(planes, np.cumsum([self.height * self.width, math.prod(half)]).tolist(), axis=-1)
        y = y.reshape(*y.shape[:-1], self.height, self.width)
        u, v = (_spread(_spread(c.reshape(*c.shape[:-1], *half), -2), -1) - 2048 for c in (u, v))
        gray = 16 * (y - black) * luma + (1 << 16)
        pixels = jnp.stack([gray + red_v * v, gray + green_u * u + green_v * v, gray + blue_u * u], -1)
        return (jnp.clip(pixels >> 17, 0, 255).astype(jnp.uint8),)


def _spread(c: jax.Array, axis: int) -> jax.Array:
    """Twice as many along an axis, times 4: three parts of the near one and one of the far one."""
    n = c.shape[axis]
    before = jnp.concatenate(
        [jax.lax.slice_in_dim(c, 0, 1, axis=axis), jax.lax.slice_in_dim(c, 0, n - 1, axis=axis)], axis
    )
    after = jnp.concatenate(
        [jax.lax.slice_in_dim(c, 1, n, axis=axis), jax.lax.slice_in_dim(c, n - 1, n, axis=axis)], axis
    )
    pairs = jnp.stack([3 * c + before, 3 * c + after], c.ndim + axis + 1)
    return pairs.reshape(*(2 * m if d == c.ndim + axis else m for d, m in enumerate(c.shape)))


def nbytes(height: int, width: int) -> int:
    """Bytes of a frame whose chroma has half the extents: its planes Y, U and V, and a byte for their matrix and range,
    see `code_of`.
    """
    return height * width * 3 // 2 + 1


def black(height: int, width: int) -> np.ndarray:
    """The planes of a black frame."""
    planes = np.zeros(nbytes(height, width), np.uint8)
    planes[height * width : -1] = 128
    planes[-1] = code_of("bt601", True)
    return planes
