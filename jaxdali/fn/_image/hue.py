"""hue: rotates the hue."""

from __future__ import annotations

from typing import Literal, Unpack

from ..._core.declaration import DType
from ..._core.graph import DataNode
from ..._core.operator_function import ColorHints, Input, PerFrame, operator_function
from .color_twist import ColorTwist


class Hue(ColorTwist):
    """Hue alone."""

    name = "hue"


@operator_function(Hue)
def hue(
    input: Input,
    /,
    *,
    hue: PerFrame[float] = 0.0,
    dtype: DType | None = None,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[ColorHints],
) -> DataNode:
    """Rotates the hue of RGB images.

    The hue is an angle in YIQ, as in DALI, not in HSV: red turned by 120 degrees is (0, 187, 0).

    Args:
      input: RGB images, HWC, FHWC, DHWC or FDHWC, of at most 32 bits an element.
      hue: the angle by which the hue is rotated, in degrees. May be per sample or frame.
      dtype: element type of the result. Values are rounded and saturated. Default: the input's.
      image_type: has no effect, as in DALI: the channels are always RGB.

    Returns:
      The input's shape and layout.

    Raises:
      ValueError: wrong layout, or not 3 channels. Of other numbers, DALI reads and writes beyond the image.
    """
    ...
