"""Brightness and contrast: one linear function of all elements of a sample."""

from __future__ import annotations

from typing import Literal, Unpack

import numpy as np

from ..._core.arguments import Values
from ..._core.context import HostContext
from ..._core.declaration import DType
from ..._core.graph import DataNode
from ..._core.operator_function import Hints, Input, PerFrame, operator_function
from ..._core.values import Spec
from .._families import ColorMatrix


class BrightnessContrast(ColorMatrix):
    """``brightness_shift * range + brightness * (center + contrast * (x - center))``. An argument that is not given
    changes nothing.
    """

    name = "brightness_contrast"
    colors = 1

    def matrix(self, ctx: HostContext, image: Spec, a: Values) -> np.ndarray:
        """See `ColorMatrix.matrix`: a factor and an offset for each sample, ``f64[N, 1, 2]``."""
        center = a.get("contrast_center", default_center(image.dtype))
        brightness, contrast = a.get("brightness", 1.0), a.get("contrast", 1.0)
        shift = a.get("brightness_shift", 0.0) * full_range(ctx.spec.dtype)
        # One map for each sample, [factor, offset], the formula of the class multiplied out.
        matrix = np.empty((ctx.N, 1, 2))
        matrix[:, 0, 0], matrix[:, 0, 1] = brightness * contrast, shift + brightness * (center - contrast * center)
        return matrix


def full_range(dtype: np.dtype) -> float:
    """The largest value of an integer type; 1 for floats."""
    return float(np.iinfo(dtype).max) if dtype.kind in "iu" else 1.0


def default_center(dtype: np.dtype) -> float:
    """The default of `contrast_center`: half the range of an element type, 128 for uint8, and 0.5 for floats."""
    return 2.0 ** (8 * dtype.itemsize - (2 if dtype.kind == "i" else 1)) if dtype.kind in "iu" else 0.5


@operator_function(BrightnessContrast)
def brightness_contrast(
    input: Input,
    /,
    *,
    brightness: PerFrame[float] = 1.0,
    brightness_shift: PerFrame[float] = 0.0,
    contrast: PerFrame[float] = 1.0,
    contrast_center: PerFrame[float] | None = None,
    dtype: DType | None = None,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """Changes brightness and contrast: ``brightness_shift * range + brightness * (center + contrast * (x - center))``.

    `range` is the largest value of the output's type, 1 for floats; nothing is rescaled when the types differ.

    Args:
      input: any tensor of at most 32 bits an element.
      brightness: a factor. May be per sample or frame.
      brightness_shift: an offset, in units of `range`. May be per sample or frame.
      contrast: a factor. May be per sample or frame.
      contrast_center: the value that the contrast does not change. Default: 128 for uint8, 0.5 for floats. May be per
        sample or frame.
      dtype: element type of the result. Values are rounded and saturated. Default: the input's.

    Returns:
      The input's shape and layout. Input without a layout gets one by its rank: HWC, FHWC or FDHWC.

    Example:
      >>> fn.brightness_contrast(images, brightness=fn.random.uniform(range=(0.8, 1.2)), contrast=1.1)
    """
    ...
