"""water: images under water."""

from __future__ import annotations

from typing import Annotated, Literal, Unpack

import numpy as np

from ... import types
from ..._core.context import HostContext
from ..._core.declaration import OneOf, Range
from ..._core.graph import DataNode
from ..._core.operator_function import Hints, Input, PerSample, operator_function
from ..._cpu import Points
from .._families.displacement import Displacement


class Water(Displacement):
    """Waves along both axes."""

    name = "water"
    points = Points.WATER
    ampl_x: float  # how far pixels move along x, in pixels
    ampl_y: float
    freq_x: float  # in radians per pixel
    freq_y: float
    phase_x: float  # in radians
    phase_y: float

    def numbers(self, ctx: HostContext) -> np.ndarray:
        return np.tile([self.ampl_x, self.freq_x, self.phase_x, self.ampl_y, self.freq_y, self.phase_y], (ctx.N, 1))


@operator_function(Water)
def water(
    input: Input,
    /,
    *,
    ampl_x: float = 10.0,
    ampl_y: float = 10.0,
    fill_value: Annotated[float, Range(infinite=True)] = 0.0,
    freq_x: float = 0.04908738521234052,
    freq_y: float = 0.04908738521234052,
    interp_type: Annotated[types.DALIInterpType, OneOf(types.INTERP_NN, types.INTERP_LINEAR)] = types.INTERP_NN,
    mask: PerSample[int] = 1,
    phase_x: float = 0.0,
    phase_y: float = 0.0,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """Makes images look as if they were under water.

    Pixel (x, y) shows the point ``(x + ampl_x * sin(freq_x * y + phase_x), y + ampl_y * cos(freq_y * x + phase_y))``.
    As in DALI, these are corners of pixels, so that INTERP_LINEAR moves the image by half a pixel.

    Args:
      input: HWC or (not in DALI) FHWC; uint8, float32 or (not in DALI) int16, uint16, float16, bfloat16; any number of
        channels.
      ampl_x, ampl_y: how far the waves move pixels along x and y, in pixels.
      fill_value: the value of points outside the image, rounded and clipped to the element type; DALI cuts it, and
        wraps around.
      freq_x, freq_y: frequencies of the waves, in radians per pixel. Default: pi / 64.
      interp_type: INTERP_NN or INTERP_LINEAR.
      mask: if 0, the image is not changed. May be per sample.
      phase_x, phase_y: phases of the waves at the image's edge, in radians.

    Returns:
      The input's shape, type and layout.

    Raises:
      ValueError: wrong layout or element type.

    Example:
      >>> fn.water(images, ampl_x=4.0, ampl_y=4.0, interp_type=types.INTERP_LINEAR)
    """
    ...
