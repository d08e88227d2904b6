"""brightness: `brightness_contrast` without the contrast."""

from __future__ import annotations

from typing import Literal, Unpack

from ..._core.declaration import DType
from ..._core.graph import DataNode
from ..._core.operator_function import Hints, Input, PerFrame, operator_function
from .brightness_contrast import BrightnessContrast


class Brightness(BrightnessContrast):
    """Changes the brightness alone."""

    name = "brightness"


@operator_function(Brightness)
def brightness(
    input: Input,
    /,
    *,
    brightness: PerFrame[float] = 1.0,
    brightness_shift: PerFrame[float] = 0.0,
    dtype: DType | None = None,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """Changes the brightness: ``brightness_shift * range + brightness * x``; see `brightness_contrast`.

    Args:
      input: any tensor of at most 32 bits an element.
      brightness: a factor. May be per sample or frame.
      brightness_shift: an offset, in units of the largest value of the output's type (1 for floats). May be per sample
        or frame.
      dtype: element type of the result. Values are rounded and saturated. Default: the input's.

    Returns:
      The input's shape and layout. Input without a layout gets one by its rank: HWC, FHWC or FDHWC.
    """
    ...
