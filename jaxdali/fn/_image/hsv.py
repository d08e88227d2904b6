"""hsv: hue, saturation and value."""

from __future__ import annotations

from typing import Literal, Unpack

from ... import types
from ..._core.declaration import DType
from ..._core.graph import DataNode
from ..._core.operator_function import Hints, Input, PerFrame, operator_function
from .color_twist import ColorTwist


class Hsv(ColorTwist):
    """Hue, saturation and value."""

    name = "hsv"


@operator_function(Hsv)
def hsv(
    input: Input,
    /,
    *,
    hue: PerFrame[float] = 0.0,
    saturation: PerFrame[float] = 1.0,
    value: PerFrame[float] = 1.0,
    dtype: DType = types.UINT8,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """Changes hue, saturation and value of RGB images.

    Hue and saturation are angle and length in YIQ, as in DALI, not in HSV: red turned by 120 degrees is (0, 187, 0).

    Args:
      input: RGB images, HWC, FHWC, DHWC or FDHWC, of at most 32 bits an element.
      hue: the angle by which the hue is rotated, in degrees. May be per sample or frame.
      saturation: a factor for the saturation. May be per sample or frame.
      value: a factor for all channels. May be per sample or frame.
      dtype: element type of the result. Values are rounded and saturated. Default: UINT8 for every input type, as in
        DALI, so floats of 0..1 need FLOAT.

    Returns:
      The input's shape and layout.

    Raises:
      ValueError: wrong layout, or not 3 channels. Of other numbers, DALI reads and writes beyond the image.
    """
    ...
