"""Black squares in a grid."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Literal, Unpack

import numpy as np

from ..._core.context import HostContext
from ..._core.declaration import Range
from ..._core.graph import DataNode
from ..._core.operator import Setup
from ..._core.operator_function import Hints, Input, PerSample, operator_function
from ..._core.values import Spec, Value
from ..._cpu import Points
from .._families import PointGather


class GridMask(PointGather):
    """Blackens the pixels in the squares of a grid."""

    name = "grid_mask"
    points = Points.GRID
    types = (*PointGather.types, "int32")

    def infer(self, image: Spec, *arguments: Spec) -> tuple[Spec, ...]:
        (spec,) = super().infer(image, *arguments)
        return (dataclasses.replace(spec, layout=image.layout),)  # without a layout, too, as in DALI

    def setup(self, ctx: HostContext, *values: Value) -> Setup:
        """The kernel's numbers: cosine and sine of the angle in units of tiles, the ratio, and the shifts in tiles."""
        a = self.arguments(ctx, values)
        angle, tile = a.angle.astype(np.float32).astype(np.float64), a.tile.astype(np.float64)
        # The kernel's coordinates are in tiles: rotated, then shifted.
        turn = [np.cos(angle) / tile, np.sin(angle) / tile]
        return self.setup_of(ctx, values[0], np.column_stack([*turn, a.ratio, -a.shift_x / tile, -a.shift_y / tile]))


@operator_function(GridMask)
def grid_mask(
    input: Input,
    /,
    *,
    angle: PerSample[float] = 0.0,
    ratio: PerSample[float] = 0.5,
    shift_x: PerSample[float] = 0.0,
    shift_y: PerSample[float] = 0.0,
    tile: Annotated[PerSample[int], Range(1)] = 100,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """Makes squares of images black, in a grid (https://arxiv.org/abs/2001.04086).

    Args:
      input: HWC or (not in DALI) FHWC; uint8, int16, int32, float32 or (not in DALI) uint16, float16, bfloat16; any
        number of channels.
      angle: rotation of the grid about the image's corner, in radians. May be per sample.
      ratio: side of a black square divided by the distance between two squares. May be per sample.
      shift_x, shift_y: translation of the grid after the rotation, in pixels. May be per sample.
      tile: distance between two squares, in pixels. May be per sample.

    Returns:
      The input's shape, type and layout.

    Raises:
      ValueError: wrong layout or element type. DALI takes every layout as HWC.

    Example:
      >>> fn.grid_mask(images, tile=64, ratio=0.4, angle=fn.random.uniform(range=(0.0, 0.8)))
    """
    ...
