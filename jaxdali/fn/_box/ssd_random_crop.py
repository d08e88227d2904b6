"""The crops with which SSD is trained, in one operator."""

from __future__ import annotations

from typing import Annotated, Literal, Unpack

from ..._core.declaration import Range
from ..._core.graph import DataNode
from ..._core.operator_function import Input, SeededHints, operator_function
from .._image.slice import slice
from .random_bbox_crop import random_bbox_crop

_THRESHOLDS = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9)  # of the intersection by the union; or nothing is cropped


@operator_function("ssd_random_crop")
def ssd_random_crop(
    images: Input,
    boxes: Input,
    labels: Input,
    /,
    *,
    num_attempts: Annotated[int, Range(1)] = 1,
    seed: int = -1,
    device: Literal["cpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[SeededHints],
) -> list[DataNode]:
    """Crops images with their boxes as SSD (Liu et al., 2016) is trained; `random_bbox_crop` and `slice` in one, which DALI prefers.

    A window has 0.3 to 1 of the image's width and height, and an aspect ratio of 0.5 to 2. For each image one of the thresholds 0, 0.1,
    0.3, 0.5, 0.7 and 0.9 is drawn, which the intersection of each box with the window by their union must reach; or nothing is cropped.

    Differs from DALI: a seed gives other numbers; images may be on the accelerator, and of any type.

    Args:
      images: HWC.
      boxes: ``[n, 4]``, float32: left, top, right, bottom, in 0 ... 1. Host values.
      labels: ``[n]`` or ``[n, 1]``, int32. Host values.
      num_attempts: how many windows are drawn for a threshold; then another is drawn.
      seed: fixes the random numbers regardless of the pipeline's seed and of the operator's place in the pipeline; a negative seed counts
        as not given.
      device: "cpu" or None.

    Returns:
      (images, boxes, labels): the windows, and the boxes whose centres lie in them, cut to them and relative to them.

    Raises:
      ArgumentError: boxes or labels of other types.
      OperatorError: boxes outside of 0 ... 1, or not as many labels.
    """
    start, shape, boxes, labels = random_bbox_crop(
        boxes,
        labels,
        aspect_ratio=(0.5, 2.0),
        scaling=(0.3, 1.0),
        thresholds=_THRESHOLDS,
        allow_no_crop=True,
        num_attempts=num_attempts,
        bbox_layout="xyXY",
        seed=seed,
        name=name,
    )
    return [slice(images, start, shape), boxes, labels]
