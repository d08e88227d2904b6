"""Bounding boxes of images that were pasted on a canvas."""

from __future__ import annotations

from typing import Annotated, Literal, Unpack

import numpy as np

from ..._core.arguments import Values
from ..._core.declaration import Range
from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._core.operator_function import Hints, Input, PerSample, operator_function
from ..._core.values import Spec
from .._tensor.points import PointMap, mapped


class BBoxPaste(PointMap):
    """A box is a point of four coordinates."""

    name = "bbox_paste"
    ltrb: bool

    def infer(self, x: Spec, *arguments: Spec) -> tuple[Spec, ...]:
        if x.dtype != np.float32 or x.ndim < 1 or x.extent(x.ndim - 1) not in (4, None):
            raise ArgumentError(f"the input must be float32 boxes [..., 4], got {x.dtype} of shape {x.shape or f'{x.ndim}-D'}")
        return mapped(x, 4, x.dtype)

    def affine(self, a: Values, dims: int) -> tuple[np.ndarray, np.ndarray]:
        if dims != 4:
            raise ValueError(f"boxes have 4 coordinates, got {dims}")
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
    """Moves bounding boxes as `paste` moves what they are around, in coordinates relative to the image and then to the canvas.

    Differs from DALI: boxes of another length than 4 are an error.

    Args:
      input: boxes ``[..., 4]``, float32, in 0 ... 1.
      ratio: extents of the canvas by those of the image. May be per sample.
      paste_x, paste_y: where the image is: from 0, at the left and top, to 1, at the right and bottom. May be per sample.
      ltrb: whether a box is (left, top, right, bottom). Default: (x, y, width, height).

    Returns:
      Boxes of the same shape.

    Raises:
      ArgumentError: the input is no such tensor.

    Example:
      >>> boxes = fn.bbox_paste(boxes, ratio=2.0, paste_x=x, paste_y=y, ltrb=True)
    """
    ...
