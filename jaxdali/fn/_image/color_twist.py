"""Hue, saturation, brightness and contrast of RGB images: one matrix for each sample."""

from __future__ import annotations

from typing import Literal, Unpack

import numpy as np

from ..._core.arguments import Values
from ..._core.context import HostContext
from ..._core.declaration import DType
from ..._core.graph import DataNode
from ..._core.operator_function import ColorHints, Input, PerFrame, operator_function
from ..._core.values import Spec
from .._families import ColorMatrix

# The YIQ of NTSC (FCC, 1953), rounded to three digits as in DALI; Y has the weights of BT.601.
_YIQ_OF_RGB = np.array([[0.299, 0.587, 0.114], [0.596, -0.274, -0.321], [0.211, -0.523, 0.311]])


_RGB_OF_YIQ = np.linalg.inv(_YIQ_OF_RGB)


class ColorTwist(ColorMatrix):
    """Changes hue and saturation in YIQ, then brightness and contrast. Arguments that an operator lacks have no effect."""

    name = "color_twist"

    def matrix(self, ctx: HostContext, image: Spec, a: Values) -> np.ndarray:
        """See `ColorMatrix.matrix`: from RGB to YIQ, a turn there, and back; then a factor and an offset."""
        angle, saturation = np.radians(a.get("hue", 0.0)), a.get("saturation", 1.0)
        brightness, contrast = a.get("brightness", 1.0) * a.get("value", 1.0), a.get("contrast", 1.0)
        # In YIQ the hue is an angle in the plane of I and Q, and the saturation is the distance from its origin.
        turn = np.zeros((ctx.N, 3, 3))
        turn[:, 0, 0] = 1
        turn[:, 1, 1] = turn[:, 2, 2] = np.cos(angle) * saturation
        turn[:, 1, 2] = np.sin(angle) * saturation
        turn[:, 2, 1] = -turn[:, 1, 2]
        # The contrast is about the middle of the range, which DALI takes to be 128 for all integer types.
        middle = 128.0 if image.dtype.kind in "iu" else 0.5
        matrix = np.empty((ctx.N, 3, 4))
        matrix[:, :, :3] = _RGB_OF_YIQ @ turn @ _YIQ_OF_RGB
        matrix[:, :, :3] *= np.reshape(brightness * contrast, (-1, 1, 1))
        matrix[:, :, 3] = np.reshape(middle * (1 - contrast) * brightness, (-1, 1))
        return matrix


@operator_function(ColorTwist)
def color_twist(
    input: Input,
    /,
    *,
    brightness: PerFrame[float] = 1.0,
    contrast: PerFrame[float] = 1.0,
    hue: PerFrame[float] = 0.0,
    saturation: PerFrame[float] = 1.0,
    dtype: DType | None = None,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[ColorHints],
) -> DataNode:
    """Changes hue, saturation, brightness and contrast of RGB images.

    Hue and saturation are angle and length in YIQ, as in DALI, not in HSV: red turned by 120 degrees is (0, 187, 0).

    Args:
      input: RGB images, HWC, FHWC, DHWC or FDHWC, of at most 32 bits an element.
      brightness: a factor for all channels. May be per sample or frame.
      contrast: a factor for the distance from middle grey, which is 128 for uint8 and 0.5 for floats. May be per sample
        or frame.
      hue: the angle by which the hue is rotated, in degrees. May be per sample or frame.
      saturation: a factor for the saturation. May be per sample or frame.
      dtype: element type of the result. Values are rounded and saturated. Default: the input's.
      image_type: has no effect, as in DALI: the channels are always RGB.

    Returns:
      The input's shape and layout.

    Raises:
      ValueError: wrong layout, or not 3 channels. Of other numbers, DALI reads and writes beyond the image.
    """
    ...
