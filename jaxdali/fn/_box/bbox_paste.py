"""bbox_paste: bounding boxes of images that were pasted on a canvas."""

from __future__ import annotations

from typing import Annotated, Literal, Unpack

import numpy as np

from ..._core.arguments import Values
from ..._core.declaration import Range
from ..._core.graph import DataNode
from ..._core.operator_function import Hints, Input, PerSample, operator_function
from .box_map import BoxMap


class BBoxPaste(BoxMap):
    """Moves boxes, and shrinks them by the ratio of the canvas to the image."""

    name = "bbox_paste"

    def box_affine(self, a: Values) -> tuple[np.ndarray, np.ndarray]:
        # Coordinates relative to the canvas: the image covers 1 / ratio of it.
        place = np.stack([a.paste_x, a.paste_y], axis=1) * ((a.ratio - 1) / a.ratio)[:, None]
        t = np.concatenate([place, place if self.ltrb else np.zeros_like(place)], axis=1)
        return np.eye(4) / a.ratio[:, None, None], t


@operator_function(BBoxPaste)
def bbox_paste(
    input: Input,
    /,
    *,
    ratio: Annotated[PerSample[float], Range(0, above=True)],
    paste_x: PerSample[float] = 0.5,
    paste_y: PerSample[float] = 0.5,
    ltrb: bool = False,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """Moves bounding boxes from coordinates relative to the image to coordinates relative to the canvas of `paste`.

    Differs from DALI: boxes whose length is not 4 are an error.

    Args:
      input: boxes ``[..., 4]``, float32, in 0 ... 1.
      ratio: extents of the canvas divided by those of the image. May be per sample.
      paste_x, paste_y: position of the image on the canvas, from 0 (left, top) to 1 (right, bottom). May be per sample.
      ltrb: whether a box is (left, top, right, bottom). Default: (x, y, width, height).

    Returns:
      Boxes with the same shape.

    Raises:
      ArgumentError: the input has another type or shape.

    Example:
      >>> boxes = fn.bbox_paste(boxes, ratio=2.0, paste_x=x, paste_y=y, ltrb=True)
    """
    ...
