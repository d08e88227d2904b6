"""ssd_random_crop: the crops with which SSD is trained, in one operator."""

from __future__ import annotations

from typing import Annotated, Literal, Unpack

from ..._core.declaration import Range
from ..._core.graph import DataNode
from ..._core.operator_function import Input, SeededHints, operator_function
from .._image.slice import slice
from .random_bbox_crop import random_bbox_crop

_THRESHOLDS = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9)  # thresholds of intersection over union; None: nothing is cropped


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
    """Crops images and their boxes as for training SSD (Liu et al., 2016).

    It combines `random_bbox_crop` and `slice`, which DALI recommends instead.

    A window has 0.3 to 1 of the image's width and height, and an aspect ratio of 0.5 to 2. For each image, either
    nothing is cropped, or one of the thresholds 0, 0.1, 0.3, 0.5, 0.7 and 0.9 is drawn, which the intersection over
    union of each box and the window must reach.

    Differs from DALI: the same seed gives other numbers; images may be on the accelerator and may have any type.

    Args:
      images: HWC.
      boxes: ``[n, 4]``, float32: left, top, right, bottom, in 0 ... 1. Host values.
      labels: ``[n]`` or ``[n, 1]``, int32. Host values.
      num_attempts: how many windows are drawn for a threshold before another threshold is drawn.
      seed: fixes the random numbers regardless of the pipeline's seed and of the operator's place in the pipeline; a
        negative seed counts as not given.
      device: "cpu" or None.

    Returns:
      (images, boxes, labels): the windows, and the boxes whose centres lie in them, clipped to the window and relative
      to it.

    Raises:
      ArgumentError: boxes or labels have another type.
      OperatorError: boxes outside 0 ... 1, or a different number of labels.
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
