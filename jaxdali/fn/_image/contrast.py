"""contrast: `brightness_contrast` without the brightness."""

from __future__ import annotations

from typing import Literal, Unpack

from ..._core.declaration import DType
from ..._core.graph import DataNode
from ..._core.operator_function import Hints, Input, PerFrame, operator_function
from .brightness_contrast import BrightnessContrast


class Contrast(BrightnessContrast):
    """Changes the contrast alone."""

    name = "contrast"


@operator_function(Contrast)
def contrast(
    input: Input,
    /,
    *,
    contrast: PerFrame[float] = 1.0,
    contrast_center: PerFrame[float] | None = None,
    dtype: DType | None = None,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """Changes the contrast: ``contrast_center + contrast * (x - contrast_center)``; see `brightness_contrast`.

    The centre is a fixed value, as in DALI, and not the mean of the image.

    Args:
      input: any tensor of at most 32 bits an element.
      contrast: a factor. May be per sample or frame.
      contrast_center: the value that does not change. Default: 128 for uint8, 0.5 for floats. May be per sample or
        frame.
      dtype: element type of the result. Values are rounded and saturated. Default: the input's.

    Returns:
      The input's shape and layout. Input without a layout gets one by its rank: HWC, FHWC or FDHWC.
    """
    ...
