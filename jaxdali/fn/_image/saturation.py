"""saturation: multiplies the saturation."""

from __future__ import annotations

from typing import Literal, Unpack

from ..._core.declaration import DType
from ..._core.graph import DataNode
from ..._core.operator_function import ColorHints, Input, PerFrame, operator_function
from .color_twist import ColorTwist


class Saturation(ColorTwist):
    """Saturation alone."""

    name = "saturation"


@operator_function(Saturation)
def saturation(
    input: Input,
    /,
    *,
    saturation: PerFrame[float] = 1.0,
    dtype: DType | None = None,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[ColorHints],
) -> DataNode:
    """Changes the saturation of RGB images.

    The saturation is the distance from grey, as in DALI and torchvision, not that of HSV.

    Args:
      input: RGB images, HWC, FHWC, DHWC or FDHWC, of at most 32 bits an element.
      saturation: a factor for the saturation. May be per sample or frame.
      dtype: element type of the result. Values are rounded and saturated. Default: the input's.
      image_type: has no effect, as in DALI: the channels are always RGB.

    Returns:
      The input's shape and layout.

    Raises:
      ValueError: wrong layout, or not 3 channels. Of other numbers, DALI reads and writes beyond the image.
    """
    ...
