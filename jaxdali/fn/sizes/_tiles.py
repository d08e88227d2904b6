"""Sizes of whole tiles, for InternVL."""

from __future__ import annotations

from typing import Annotated, Literal, Unpack

import numpy as np

from ..._core.declaration import Range
from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._core.operator_function import Hints, Input, operator_function
from ._rule import SizeRule


class Tiles(SizeRule):
    """The grid of tiles whose aspect ratio is the closest to that of the image."""

    name = "sizes.tiles"
    tile_size: int
    min_tiles: int
    max_tiles: int

    def __post_init__(self):
        if self.min_tiles > self.max_tiles:
            raise ArgumentError(f"min_tiles={self.min_tiles} is more than max_tiles={self.max_tiles}")

    def rule(self, height: np.ndarray, width: np.ndarray) -> np.ndarray:
        # Grids by their number of tiles, those of one number by their columns.
        grids = [(n // columns, columns) for n in range(self.min_tiles, self.max_tiles + 1) for columns in divisors(n)]
        ratio, area = width / height, width * height
        nearest, best = np.full(len(height), np.inf), np.ones((len(height), 2))
        for rows, columns in grids:
            distance = np.abs(ratio - columns / rows)
            # Of equally near grids, such as 1x1 and 2x2, a larger one is better if the image has enough pixels for it.
            is_better = (distance < nearest) | (
                (distance == nearest) & (area > 0.5 * self.tile_size * self.tile_size * rows * columns)
            )
            best[is_better] = rows, columns
            nearest = np.minimum(nearest, distance)
        return best * self.tile_size


def divisors(n: int) -> list[int]:
    return [k for k in range(1, n + 1) if n % k == 0]


@operator_function(Tiles)
def tiles(
    shapes: Input,
    /,
    *,
    tile_size: Annotated[int, Range(1)],
    max_tiles: Annotated[int, Range(1, 4096)],
    min_tiles: Annotated[int, Range(1)] = 1,
    device: Literal["cpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """The size that InternVL resizes an image to, a grid of whole tiles.

    Of all grids of `min_tiles` to `max_tiles` square tiles, it takes the one whose aspect ratio is the closest to that
    of the image. Of equally close ones it takes a larger one only if the image has more than half of its pixels. Sizes
    are those of ``get_optimal_tiled_canvas`` in InternVL's image processor (that of GOT-OCR2 in transformers). The
    models also get the whole image as one more tile, if there are several.

    Args:
      shapes: integers whose last axis begins with height and width, as of `peek_image_shape`: one image, or a sequence
        of images. A host value.
      tile_size: the side of a tile in pixels.
      max_tiles: the largest number of tiles.
      min_tiles: the least number of tiles.

    Returns:
      Height and width, int32 of the shape of the input, with 2 elements in the last axis: multiples of `tile_size`. A host
      value. `resize` takes it as `size`.

    Raises:
      ArgumentError: the input is not integers, or `min_tiles` is more than `max_tiles`.
      SampleError: an image is empty.

    Example:
      >>> size = fn.sizes.tiles(fn.peek_image_shape(jpegs), tile_size=448, max_tiles=12)
    """
    ...
