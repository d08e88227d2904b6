"""Sizes within limits of pixels, for Qwen's models."""

from __future__ import annotations

from typing import Annotated, Literal, Unpack

import numpy as np

from ..._core.declaration import Range
from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._core.operator_function import Hints, Input, operator_function
from ._rule import SizeRule

MAX_RATIO = 200  # of the longer to the shorter side


class SmartResize(SizeRule):
    """Multiples of `factor`, between two numbers of pixels, with about the image's aspect ratio."""

    name = "sizes.smart_resize"
    factor: int
    min_pixels: int
    max_pixels: int
    min_side: int

    def __post_init__(self):
        if self.min_pixels > self.max_pixels:
            raise ArgumentError(f"min_pixels={self.min_pixels} is more than max_pixels={self.max_pixels}")

    def rule(self, height: np.ndarray, width: np.ndarray) -> np.ndarray:
        sides = np.stack([height, width], axis=1)
        shorter = sides.min(axis=1)
        if self.min_side:
            scale = (self.min_side / sides).max(axis=1)
            sides = np.where((shorter < self.min_side)[:, None], np.trunc(sides * scale[:, None]), sides)
            shorter = sides.min(axis=1)
        # np.rint rounds halves to even numbers, as Python's round does.
        nearest = np.rint(sides / self.factor) * self.factor
        pixels, nearest_pixels = sides.prod(axis=1), nearest.prod(axis=1)
        divisor = np.sqrt(pixels / self.max_pixels)[:, None]
        smaller = np.maximum(self.factor, np.floor(sides / divisor / self.factor) * self.factor)
        larger = np.ceil(sides * np.sqrt(self.min_pixels / pixels)[:, None] / self.factor) * self.factor
        is_too_large, is_too_small = nearest_pixels > self.max_pixels, nearest_pixels < self.min_pixels
        sizes = np.where(is_too_large[:, None], smaller, np.where(is_too_small[:, None], larger, nearest))
        return np.where((sides.max(axis=1) / shorter > MAX_RATIO)[:, None], 0, sizes)

    def reason(self, height: int, width: int) -> str:
        ratio = max(height, width) / min(height, width)
        return f"one side is {ratio:.1f} times the other, and the rule takes at most {MAX_RATIO}"


@operator_function(SmartResize)
def smart_resize(
    shapes: Input,
    /,
    *,
    factor: Annotated[int, Range(1)],
    min_pixels: Annotated[int, Range(1)],
    max_pixels: Annotated[int, Range(1)],
    min_side: Annotated[int, Range(0)] = 0,
    device: Literal["cpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """The size that Qwen's models resize an image to.

    Both sides are rounded to multiples of `factor`. If the size then has more than `max_pixels` or less than
    `min_pixels`, the image is scaled to that number of pixels, and its sides are rounded down or up. A side is at least
    one `factor`, so a very long image may have more pixels than `max_pixels`.

    Sizes are those of ``smart_resize`` in Qwen2-VL's image processor, which Qwen2.5-VL, Qwen3-VL and others use.

    Args:
      shapes: integers whose last axis begins with height and width, as of `peek_image_shape`: one image, or a sequence
        of images. A host value.
      factor: the number of pixels that sides are multiples of, ``patch_size * merge_size``: 28 for Qwen2-VL.
      min_pixels: the least number of pixels.
      max_pixels: the largest number of pixels.
      min_side: images with a shorter side are first enlarged to it, as in GLM-4V's processor; 0: they are not.

    Returns:
      Height and width, int32 of the shape of the input, with 2 elements in the last axis. A host value. `resize` takes it
      as `size`.

    Raises:
      ArgumentError: the input is not integers, or `min_pixels` is more than `max_pixels`.
      SampleError: an image is empty, or one side is more than 200 times the other.

    Example:
      >>> size = fn.sizes.smart_resize(fn.peek_image_shape(jpegs), factor=28, min_pixels=3136, max_pixels=1003520)
    """
    ...
