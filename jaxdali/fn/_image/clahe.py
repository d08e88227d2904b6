"""Contrast limited adaptive histogram equalization."""

from __future__ import annotations

import functools
from typing import Annotated, Literal, Unpack

import numpy as np

from ..._core.context import HostContext
from ..._core.declaration import Range
from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._core.operator import Setup
from ..._core.operator_function import Hints, Input, operator_function
from ..._core.values import Spec, Value
from ..._cpu import LAB_SIZES, Status
from .._families import image_layout
from .equalize import Equalize


@functools.cache
def lab_tables() -> np.ndarray:
    """The tables of ffi/equalize/equalize.h: sRGB to CIE L*a*b* in 8 bits and back, in OpenCV's fixed point.
    ``i32[7936]``.

    The formulas are those of CIE L*a*b* (the cube root, linear below t = (6/29)**3 = 216/24389) and of the transfer
    function of sRGB (IEC 61966-2-1: linear below 0.04045, or 0.0031308 of linear light).
    """
    linears, roots, lightnesses, gammas = LAB_SIZES
    # sRGB values to linear light, in units of 1 / (255 * 8).
    channel = np.arange(linears) / 255
    linear = 255 * 8 * np.where(channel <= 0.04045, channel / 12.92, ((channel + 0.055) / 1.055) ** 2.4)
    # Linear light, relative to white, to its CIE cube root, in units of 2**-15.
    t = np.arange(roots, dtype=np.float32) * np.float32(1 / (255 * 8))
    root = np.float32(1 << 15) * np.where(
        t < np.float32(216 / 24389), t * np.float32(841 / 108) + np.float32(16 / 116), np.cbrt(t)
    )
    # Below t, the root is linear: (29 / 6)**2 / 3 = 841 / 108 is its slope, and 16 / 116 its value at 0. (29 / 3)**3 is
    # CIE's kappa, L* / Y near black.
    # L* (0 to 100 in 8 bits) back to Y and to its cube root, both in units of 2**-14.
    lightness = np.arange(lightnesses) * (100 / 255)
    root_of = np.where(lightness <= 8, 16 / 116 + lightness * (841 / 108) / (29 / 3) ** 3, (lightness + 16) / 116)
    y = np.where(lightness <= 8, lightness / (29 / 3) ** 3, root_of**3)
    # Linear light back to sRGB values.
    light = np.arange(gammas) / gammas
    gamma = 255 * np.where(light <= 0.0031308, light * 12.92, 1.055 * light ** (1 / 2.4) - 0.055)
    return np.concatenate(
        [np.rint(x).astype(np.int32) for x in (linear, root, y * (1 << 14), root_of * (1 << 14), gamma)]
    )


class Clahe(Equalize):
    """Equalization by the histograms of tiles, whose tables are blended between the tiles' centres."""

    name = "clahe"
    tiles_x: int  # the number of tiles along the width
    tiles_y: int  # the number of tiles along the height
    clip_limit: float  # the largest count of one value in a tile, in units of the mean count; 0 or less: no limit
    bins: int  # of the histograms
    luma_only: bool  # whether only the lightness of images with three channels is equalized, not each channel

    def __post_init__(self):
        if self.bins != 256:
            raise ArgumentError(f"bins must be 256: DALI's CPU operator always uses 256, too; got {self.bins}")

    @property
    def tiles(self) -> tuple[int, int]:
        return self.tiles_y, self.tiles_x

    @property
    def stretch(self) -> bool:
        return False

    @property
    def lightness(self) -> np.ndarray:
        return lab_tables() if self.luma_only else super().lightness

    def layout(self, image: Spec) -> str:
        return image_layout(image, ("HWC",))

    def limit(self, ctx: HostContext) -> np.ndarray:
        return np.full(ctx.N, self.clip_limit)

    def infer(self, image: Spec, *arguments: Spec) -> tuple[Spec, ...]:
        out = super().infer(image)
        if image.extent(2) not in (None, 1, 3):
            raise ValueError(f"the input must have 1 or 3 channels, got {image.extent(2)}")
        return out

    def setup(self, ctx: HostContext, *values: Value) -> Setup:
        """As for `Equalize`. A sample with another number of channels fails; the spec may not know it."""
        channels = values[0].shapes[:, 2]
        for i in np.flatnonzero((channels != 1) & (channels != 3) & ctx.present):
            ctx.fail(int(i), Status.INPUT, f"the input must have 1 or 3 channels, got {channels[i]}")
        return super().setup(ctx, *values)


@operator_function(Clahe)
def clahe(
    input: Input,
    /,
    *,
    tiles_x: Annotated[int, Range(1, 4096)],
    tiles_y: Annotated[int, Range(1, 4096)],
    clip_limit: float,
    bins: int = 256,
    luma_only: bool = True,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """Contrast limited adaptive histogram equalization.

    The image is cut into tiles. In the histogram of each tile, no value counts more than `clip_limit` times the mean,
    and the excess is spread over all values. Each pixel is then mapped by the histograms of the tiles around it,
    blended by distance. The results equal those of DALI's CPU operator (OpenCV's ``CLAHE``) on every device.

    Args:
      input: uint8 images, HWC, with one or three channels. Three channels are RGB.
      tiles_x, tiles_y: how many tiles there are along the width and the height.
      clip_limit: how many pixels of a tile one value may count for, in units of the tile's mean. 1 changes the image
        least; 0 or less sets no limit.
      bins: Number of bins of the histograms, always 256. DALI's CPU operator accepts other numbers, which have no
        effect.
      luma_only: if true, only the lightness of RGB images is equalized (L of CIE L*a*b* in 8 bits), otherwise each
        channel.

    Returns:
      The input's shape and layout.

    Raises:
      ArgumentError: `bins` is not 256.
      TypeError: the input is not uint8.
      ValueError: wrong layout or number of channels.

    Example:
      >>> fn.clahe(images, tiles_x=8, tiles_y=8, clip_limit=2.0)
    """
    ...
