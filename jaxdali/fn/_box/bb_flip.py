"""bb_flip: mirrored bounding boxes."""

from __future__ import annotations

from typing import Literal, Unpack

import numpy as np

from ..._core.arguments import Values
from ..._core.graph import DataNode
from ..._core.operator_function import Hints, Input, PerSample, operator_function
from .box_map import BoxMap


class BbFlip(BoxMap):
    """Mirrored."""

    name = "bb_flip"

    def moved(self, a: Values) -> tuple[np.ndarray, np.ndarray]:
        m, t = np.tile(np.eye(4), (a.samples, 1, 1)), np.zeros((a.samples, 4))
        for flip, first in ((a.horizontal, 0), (a.vertical, 1)):
            # The new left is 1 - right with corners, and 1 - left - width with extents.
            turned = np.zeros((2, 4))
            turned[0, first], turned[0, first + 2] = (0, -1) if self.ltrb else (-1, -1)
            turned[1, first], turned[1, first + 2] = (-1, 0) if self.ltrb else (0, 1)
            on = flip != 0
            m[on, first], m[on, first + 2] = turned
            t[on, first], t[on, first + 2] = 1, float(self.ltrb)
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
