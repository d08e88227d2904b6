"""Frames as planes Y, U and V, which a program on the accelerator converts to RGB.

A video has a matrix (`matrix_coefficients` of ITU-T H.273), which says how R, G and B make luma and chroma, and a range
(`VideoFullRangeFlag`): samples of 8 bits lie in 16 .. 235 (chroma: 16 .. 240) in the limited one, in 0 .. 255 in the
full one.
"""

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
# Kr and Kb: the weights of red and blue in luma, Y = Kr R + (1 - Kr - Kb) G + Kb B (ITU-T H.273, table of
# MatrixCoefficients). BT.601 and others are the names of the documents that first had them.
_WEIGHTS = {
    "bt601": (0.299, 0.114),
    "bt709": (0.2126, 0.0722),
    "bt2020": (0.2627, 0.0593),
    "fcc": (0.3, 0.11),
    "smpte240m": (0.212, 0.087),
}
_MATRICES = list(_WEIGHTS)


@functools.lru_cache
def factors(matrix: str, full: bool, bits: int = 8) -> tuple[int, ...]:
    """The integer multipliers that convert Y, U and V to R, G and B, in units of 2^-13 (and of 2^-(bits - 8)).

    Those of BT.601 for 8 bits are swscale's.

    Returns:
      Six numbers: the multiplier of luma above black; black, as a sample; the multipliers of V for red, of U for blue,
      of U for green and of V for green.
    """
    red, blue = _WEIGHTS[matrix]
    scale = 1 << (bits - 8)
    largest = (256 * scale - 1) / scale
    # In the limited range, luma has 219 steps above black, and chroma 224 from one end to the other.
    luma, chroma = (8192 * 255 / (largest if full else limited) for limited in (219, 224))
    # R - Y = 2 (1 - Kr) V and B - Y = 2 (1 - Kb) U for U and V in -0.5 .. 0.5; green follows from the sum of luma.
    red_v, blue_u = 2 * (1 - red) * chroma, 2 * (1 - blue) * chroma
    green = 1 - red - blue
    numbers = luma, 0 if full else 16 * scale, red_v, blue_u, -blue / green * blue_u, -red / green * red_v
    return tuple(round(x) for x in numbers)


def code_of(matrix: str, full: bool) -> int:
    """The code of a matrix and a range, which is the last byte of a frame's planes."""
    return 2 * _MATRICES.index(matrix) + full


class PixelsOfPlanes(ProgramOperator):
    """Makes pixels ``uint8[F, height, width, 3]`` from planes ``uint8[F, nbytes(height, width)]``.

    The result is equal, bit for bit, to that of `yuv_to_rgb` on the CPU.
    """

    name = "pixels of planes"
    height: int
    width: int

    def infer(self, x: Spec) -> tuple[Spec, ...]:
        assert x.shape is not None and x.shape[1] == nbytes(self.height, self.width)
        return (Spec(x.dtype, 4, (x.shape[0], self.height, self.width, 3), "FHWC"),)

    def lower(self, ctx: LowerContext, *arrays: Any) -> Any:
        # A frame is its planes Y, U and V, and then the byte of `code_of`, by which its six factors are looked up.
        planes, code = arrays[0][..., :-1].astype(jnp.int32), arrays[0][..., -1].astype(jnp.int32)
        table = np.array([factors(matrix, full) for matrix in _MATRICES for full in (False, True)], np.int32)
        luma, black, red_v, blue_u, green_u, green_v = jnp.moveaxis(jnp.take(table, code, axis=0, mode="clip"), -1, 0)[
            ..., None, None
        ]
        half = (self.height // 2, self.width // 2)
        y, u, v = jnp.split(planes, np.cumsum([self.height * self.width, math.prod(half)]).tolist(), axis=-1)
        y = y.reshape(*y.shape[:-1], self.height, self.width)
        # Chroma without colour is 128; `_upsample` multiplies by 4 along each axis, so it is 16 * 128 = 2048 here. Sums
        # are in units of 2^-17: 2^-13 of the multipliers, and 2^-4 of both axes. 1 << 16 rounds to the nearest.
        u, v = (_upsample(_upsample(c.reshape(*c.shape[:-1], *half), -2), -1) - 2048 for c in (u, v))
        gray = 16 * (y - black) * luma + (1 << 16)
        pixels = jnp.stack([gray + red_v * v, gray + green_u * u + green_v * v, gray + blue_u * u], -1)
        return (jnp.clip(pixels >> 17, 0, 255).astype(jnp.uint8),)


def _upsample(c: jax.Array, axis: int) -> jax.Array:
    """Interpolates to twice as many samples along an axis, multiplied by 4.

    Each result is 3 times the nearer sample plus the farther one; samples at the edges are repeated.

    Args:
      axis: a negative number, counted from the last axis.
    """
    n = c.shape[axis]
    previous = jnp.concatenate(
        [jax.lax.slice_in_dim(c, 0, 1, axis=axis), jax.lax.slice_in_dim(c, 0, n - 1, axis=axis)], axis
    )
    following = jnp.concatenate(
        [jax.lax.slice_in_dim(c, 1, n, axis=axis), jax.lax.slice_in_dim(c, n - 1, n, axis=axis)], axis
    )
    pairs = jnp.stack([3 * c + previous, 3 * c + following], c.ndim + axis + 1)
    return pairs.reshape(*(2 * m if d == c.ndim + axis else m for d, m in enumerate(c.shape)))


def nbytes(height: int, width: int) -> int:
    """The number of bytes of a 4:2:0 frame: its planes, and a byte for its matrix and range, see `code_of`."""
    return height * width * 3 // 2 + 1


def black(height: int, width: int) -> np.ndarray:
    """The planes of a black frame."""
    planes = np.zeros(nbytes(height, width), np.uint8)
    planes[height * width : -1] = 128
    planes[-1] = code_of("bt601", True)
    return planes
