"""bb_flip: mirrored bounding boxes."""

from __future__ import annotations

from typing import Literal, Unpack

import numpy as np

from ..._core.arguments import Values
from ..._core.graph import DataNode
from ..._core.operator_function import Hints, Input, PerSample, operator_function
from .box_map import BoxMap


class BbFlip(BoxMap):
    """Mirrors boxes horizontally, vertically or both."""

    name = "bb_flip"

    def box_affine(self, a: Values) -> tuple[np.ndarray, np.ndarray]:
        """The maps of the boxes, see `BoxMap.box_affine`: ``1 - x`` along each mirrored axis. A result is
        ``m @ box + t``.
        """
        m, t = np.tile(np.eye(4), (a.samples, 1, 1)), np.zeros((a.samples, 4))
        # Columns 0 and 2 are those of x, and columns 1 and 3 those of y.
        for flip, first in ((a.horizontal, 0), (a.vertical, 1)):
            # The new left is 1 - right with corners, and 1 - left - width with extents.
            rows = np.zeros((2, 4))
            rows[0, first], rows[0, first + 2] = (0, -1) if self.ltrb else (-1, -1)
            rows[1, first], rows[1, first + 2] = (-1, 0) if self.ltrb else (0, 1)
            is_flipped = flip != 0
            m[is_flipped, first], m[is_flipped, first + 2] = rows
            t[is_flipped, first], t[is_flipped, first + 2] = 1, float(self.ltrb)
        return m, t


@operator_function(BbFlip)
def bb_flip(
    input: Input,
    /,
    *,
    horizontal: PerSample[int] = 1,
    vertical: PerSample[int] = 0,
    ltrb: bool = False,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """Mirrors bounding boxes, in coordinates relative to the image.

    Differs from DALI: boxes whose length is not 4 are an error.

    Args:
      input: boxes ``[..., 4]``, float32, in 0 ... 1.
      horizontal, vertical: whether to mirror: 0 or 1. May be per sample.
      ltrb: whether a box is (left, top, right, bottom). Default: (x, y, width, height).

    Returns:
      Boxes with the same shape.

    Raises:
      ArgumentError: the input has another type or shape.

    Example:
      >>> boxes = fn.bb_flip(boxes, ltrb=True, horizontal=mirror)
    """
    ...
