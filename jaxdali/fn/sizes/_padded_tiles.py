"""Sizes within a canvas of tiles, for Llama 4."""

from __future__ import annotations

from typing import Annotated, Literal, Unpack

import numpy as np

from ..._core.declaration import Range
from ..._core.graph import DataNode
from ..._core.operator_function import Hints, Input, operator_function
from ._rule import SizeRule
from ._tiles import divisors


class PaddedTiles(SizeRule):
    """A canvas of tiles, and the size of the image in it, which keeps its aspect ratio."""

    name = "sizes.padded_tiles"
    tile_size: int
    max_tiles: int
    enlarge: bool

    @property
    def num_outputs(self) -> int:
        return 2

    def rule(self, height: np.ndarray, width: np.ndarray) -> np.ndarray:
        # The model's processor divides numbers of tensors, in single precision, and Python's numbers, in double. Both
        # stay as they are, as sizes would differ by a pixel.
        single = np.float32
        sides = np.stack([height, width], axis=1)
        best, canvas = np.full(len(height), -np.inf), np.zeros_like(sides)
        is_enlarged = np.zeros(len(height), bool)
        for n in range(1, self.max_tiles + 1):
            for columns in divisors(n):
                candidate = np.array([n // columns * self.tile_size, columns * self.tile_size], np.float64)
                scale = (candidate.astype(single) / sides.astype(single)).min(axis=1)
                # A canvas that need not shrink the image is better than one that must. Of the former, the one with the
                # smallest scale is the best unless the image shall be enlarged, and of equal ones the first: the smallest.
                is_nearer = scale > best if self.enlarge else scale < best
                is_better = np.where(scale >= 1, ~is_enlarged | is_nearer, ~is_enlarged & (scale > best))
                best, is_enlarged = np.where(is_better, scale, best), is_enlarged | (scale >= 1)
                canvas = np.where(is_better[:, None], candidate, canvas)
        # The image is enlarged up to the side of one tile only.
        target = canvas if self.enlarge else np.minimum(np.maximum(sides, self.tile_size), canvas)
        is_single = (target == canvas) & (self.enlarge | (canvas < np.maximum(sides, self.tile_size)))
        scale = np.where(is_single, target.astype(single) / sides.astype(single), target / sides)
        in_single = scale.astype(single)
        by_width = np.where(is_single.any(axis=1), in_single[:, 1] < in_single[:, 0], scale[:, 1] < scale[:, 0])

        def scaled(side: int, factor: int) -> np.ndarray:
            """One side of the image, scaled as the other one is."""
            in_double = np.floor(sides[:, side] * scale[:, factor])
            product = np.floor(sides[:, side].astype(single) * in_single[:, factor])
            return np.minimum(np.where(is_single[:, factor], product, in_double), target[:, side])

        size = np.stack(
            [np.where(by_width, scaled(0, 1), target[:, 0]), np.where(by_width, target[:, 1], scaled(1, 0))], axis=1
        )
        return np.concatenate([np.maximum(size, 1), canvas], axis=1)


@operator_function(PaddedTiles)
def padded_tiles(
    shapes: Input,
    /,
    *,
    tile_size: Annotated[int, Range(1)],
    max_tiles: Annotated[int, Range(1, 4096)],
    enlarge: bool = False,
    device: Literal["cpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> list[DataNode]:
    """The size that Llama 4 resizes an image to, and the canvas of whole tiles that it is padded to.

    Of all grids of up to `max_tiles` square tiles, it takes the one to which the image need be enlarged the least, or,
    if all are smaller, be reduced the least; of equal ones the one with the fewest tiles. The image keeps its aspect
    ratio. It is enlarged until a side has the length of a tile, but no further, and the rest of the canvas, at the
    bottom and on the right, is 0.

    Sizes are those of ``get_best_fit`` and ``get_max_res_without_distortion`` in Llama 4's image processor. The model
    also gets the whole image, resized to one tile, if there are several.

    Args:
      shapes: integers whose last axis begins with height and width, as of `peek_image_shape`: one image, or a sequence
        of images. A host value.
      tile_size: the side of a tile in pixels.
      max_tiles: the largest number of tiles.
      enlarge: whether to take the grid to which the image can be enlarged the most, and to enlarge it
        (``resize_to_max_canvas``).

    Returns:
      Two values, int32 of the shape of the input, with 2 elements in the last axis: height and width of the image, and
      those of the canvas, multiples of `tile_size`: host values.

    Raises:
      ArgumentError: the input is not integers.
      SampleError: an image is empty.

    Example:
      >>> size, canvas = fn.sizes.padded_tiles(fn.peek_image_shape(jpegs), tile_size=336, max_tiles=16)
    """
    ...
