"""Conversion between colour spaces: one matrix for all samples."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Literal, Unpack

import numpy as np

from ... import types
from ..._core.arguments import Values
from ..._core.context import HostContext
from ..._core.declaration import OneOf
from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._core.operator import Setup
from ..._core.operator_function import Hints, Input, operator_function
from ..._core.values import Spec, Value
from .._families import ColorMatrix, spec_of

# Affine maps with the offset in the last column. YCbCr is that of ITU-R BT.601 in studio range: Y from 16 to 235, Cb
# and Cr from 16 to 240.
_GRAY_OF_RGB = np.array([[0.299, 0.587, 0.114, 0]])
_RGB_OF_GRAY = np.array([[1.0, 0], [1, 0], [1, 0]])
_YCC_OF_RGB = np.array(
    [
        [65.481 / 255, 128.553 / 255, 24.966 / 255, 16],
        [-37.797 / 255, -74.203 / 255, 112 / 255, 128],
        [112 / 255, -93.786 / 255, -18.214 / 255, 128],
    ]
)
_RGB_OF_YCC = np.array([[1.164383, 0, 1.596027], [1.164383, -0.391762, -0.812968], [1.164383, 2.017232, 0]])
_RGB_OF_YCC = np.column_stack([_RGB_OF_YCC, -_RGB_OF_YCC @ [16, 128, 128]])
_GRAY_OF_YCC = np.array([[255 / 219, 0, 0, -16 * 255 / 219]])
_YCC_OF_GRAY = np.array([[219 / 255, 16], [0, 128], [0, 128]])
_RGB, _BGR, _GRAY, _YCC = types.RGB, types.BGR, types.GRAY, types.YCbCr
_MAPS = {(_RGB, _GRAY): _GRAY_OF_RGB, (_GRAY, _RGB): _RGB_OF_GRAY, (_RGB, _YCC): _YCC_OF_RGB, (_YCC, _RGB): _RGB_OF_YCC}
_MAPS |= {(_YCC, _GRAY): _GRAY_OF_YCC, (_GRAY, _YCC): _YCC_OF_GRAY, (_RGB, _RGB): np.eye(3, 4)}


def _matrix(source: types.DALIImageType, result: types.DALIImageType) -> np.ndarray:
    """The map between two colour spaces, ``f64[channels of the result, channels of the source + 1]``."""
    m = _MAPS[(_RGB if source == _BGR else source, _RGB if result == _BGR else result)]
    # BGR is RGB with the columns or rows in another order.
    if source == _BGR:
        m = m[:, [2, 1, 0, 3]]
    return m[::-1] if result == _BGR else m


class ColorSpaceConversion(ColorMatrix):
    """A map of uint8 pixels to pixels with another number of channels, or the same."""

    name = "color_space_conversion"
    dtype: np.dtype | None = None
    image_type: types.DALIImageType
    output_type: types.DALIImageType

    @property
    def colors(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return 1 if self.image_type == _GRAY else 3

    def __post_init__(self):
        if self.image_type == self.output_type:
            raise ArgumentError(
                f"image_type and output_type are both {self.image_type.name}: there is nothing to convert"
            )

    def infer(self, image: Spec, *arguments: Spec) -> tuple[Spec, ...]:
        """Images of uint8 with the channels of `output_type`."""
        if image.dtype != np.uint8:
            raise TypeError(f"the input must be uint8, got {image.dtype}")
        # Raises ValueError for another number of channels than that of `image_type`.
        (out,) = self.pixels(image, image.dtype)
        channels = len(_matrix(self.image_type, self.output_type))
        return (spec_of(out.dtype, [*(out.extent(d) for d in range(out.ndim - 1)), channels], out.layout),)

    def matrix(self, ctx: HostContext, image: Spec, a: Values) -> np.ndarray:
        return np.tile(_matrix(self.image_type, self.output_type), (ctx.N, 1, 1))

    def setup(self, ctx: HostContext, *values: Value) -> Setup:
        """As for `ColorMatrix`, with another number of channels in the shapes of the outputs."""
        setup = super().setup(ctx, *values)
        if setup.shapes[0] is None:
            return setup
        shapes = setup.shapes[0].copy()
        shapes[:, -1] = len(_matrix(self.image_type, self.output_type))
        return dataclasses.replace(setup, shapes=(shapes,))


_TYPES = Annotated[types.DALIImageType, OneOf(types.RGB, types.BGR, types.GRAY, types.YCbCr)]


@operator_function(ColorSpaceConversion)
def color_space_conversion(
    input: Input,
    /,
    *,
    image_type: _TYPES,
    output_type: _TYPES,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """Converts images from one colour space to another.

    Args:
      input: uint8 images, HWC, FHWC, DHWC or FDHWC, with the channels of `image_type`.
      image_type: colour space of the input: RGB, BGR, GRAY (one channel) or YCbCr (ITU-R BT.601, studio range).
      output_type: colour space of the result.

    Returns:
      uint8 images of the input's layout, with the channels of `output_type`.

    Raises:
      ValueError: wrong layout or number of channels, or both colour spaces are the same.
      TypeError: the input is not uint8.

    Example:
      >>> gray = fn.color_space_conversion(images, image_type=types.RGB, output_type=types.GRAY)
    """
    ...
