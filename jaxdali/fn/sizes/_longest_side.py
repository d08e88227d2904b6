"""Sizes with a limit for the longest side, for Pixtral."""

from __future__ import annotations

from typing import Annotated, Literal, Unpack

import numpy as np

from ..._core.declaration import Range
from ..._core.graph import DataNode
from ..._core.operator_function import Hints, Input, operator_function
from ._rule import SizeRule


class LongestSide(SizeRule):
    """The image's size, scaled down to the longest side if it is larger, and rounded up to patches."""

    name = "sizes.longest_side"
    size: int
    patch_size: int

    def rule(self, height: np.ndarray, width: np.ndarray) -> np.ndarray:
        sides = np.stack([height, width], axis=1)
        ratio = (sides / self.size).max(axis=1)[:, None]
        sides = np.where(ratio > 1, np.floor(sides / ratio), sides)
        return np.ceil(sides / self.patch_size) * self.patch_size  # 0 for a side that is scaled to less than a pixel

    def reason(self, height: int, width: int) -> str:
        return f"its shorter side has less than one pixel if the longer one has size={self.size}"


@operator_function(LongestSide)
def longest_side(
    shapes: Input,
    /,
    *,
    size: Annotated[int, Range(1)],
    patch_size: Annotated[int, Range(1)],
    device: Literal["cpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """The size that Pixtral and Mistral's models resize an image to.

    An image whose longer side has more than `size` pixels is scaled to it; others are not scaled. Then both sides are
    rounded up to multiples of `patch_size`. Sizes are those of ``get_resize_output_image_size`` in Pixtral's image
    processor.

    Args:
      shapes: integers whose last axis begins with height and width, as of `peek_image_shape`: one image, or a sequence
        of images. A host value.
      size: the largest side in pixels, before it is rounded up.
      patch_size: the number of pixels that sides are multiples of: 16 for Pixtral; if the model merges patches, that of
        a merged one, 14 * 2 = 28 for Mistral Small 3.1.

    Returns:
      Height and width, int32 of the shape of the input, with 2 elements in the last axis. A host value. `resize` takes it
      as `size`.

    Raises:
      ArgumentError: the input is not integers.
      SampleError: an image is empty, or so long that its shorter side would have less than one pixel.

    Example:
      >>> size = fn.sizes.longest_side(fn.peek_image_shape(jpegs), size=1024, patch_size=16)
    """
    ...
