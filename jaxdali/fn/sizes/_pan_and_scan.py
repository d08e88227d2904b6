"""Windows of long images, for Gemma 3."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Unpack

import numpy as np

from ..._core.context import HostContext
from ..._core.declaration import Range
from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._core.operator import HostOperator
from ..._core.operator_function import Hints, Input, operator_function
from ..._core.values import Spec, Value
from ..._cpu import Status
from ._rule import check_shapes


class PanAndScan(HostOperator):
    """Cuts a long image into windows along its longer side."""

    name = "sizes.pan_and_scan"
    min_crop_size: int
    max_crops: int
    min_ratio: float

    def infer(self, shapes: Spec) -> tuple[Spec, ...]:
        check_shapes(shapes)
        if shapes.ndim != 1:
            raise ArgumentError(
                f"the input must be the shape of one image, 1-D, as the number of windows varies, got {shapes.ndim}-D"
            )
        return (Spec(np.dtype(np.int32), 2, None, "", (None, 4)),)

    def windows(self, height: int, width: int) -> np.ndarray:
        """Top, left, height and width of each window, ``i32[n, 4]``. Raises ValueError if one would be empty."""
        longer, shorter = max(height, width), min(height, width)
        none = np.zeros((0, 4), np.int32)
        if longer / shorter < self.min_ratio:
            return none
        # Halves are rounded up.
        count = min(int(longer / shorter + 0.5), longer // self.min_crop_size)
        count = min(max(count, 2), self.max_crops)
        extent = -(-longer // count)
        if min(extent, shorter) < self.min_crop_size:
            return none
        start = np.arange(count) * extent
        if start[-1] >= longer:
            raise ValueError(
                f"the image is {height}x{width} (height x width), too small for {count} windows of {extent} pixels: "
                f"give a min_crop_size above {self.min_crop_size}"
            )
        extents = np.minimum(extent, longer - start)  # the last window may be smaller
        zeros, whole = np.zeros_like(start), np.full_like(start, shorter)
        columns = (zeros, start, whole, extents) if width >= height else (start, zeros, extents, whole)
        return np.stack(columns, axis=1).astype(np.int32)

    def run(self, ctx: HostContext, shapes: Value) -> tuple[Any, ...]:
        windows = [np.zeros((0, 4), np.int32)] * ctx.N
        for i in np.flatnonzero(ctx.present).tolist():
            height, width = shapes.sample(i)[:2].tolist()
            if height < 1 or width < 1:
                ctx.fail(i, Status.INPUT, f"the image is empty, {height}x{width} (height x width)")
                continue
            try:
                windows[i] = self.windows(height, width)
            except ValueError as e:
                ctx.fail(i, Status.ARGUMENT, str(e))
        return (windows,)


@operator_function(PanAndScan)
def pan_and_scan(
    shapes: Input,
    /,
    *,
    min_crop_size: Annotated[int, Range(1)] = 256,
    max_crops: Annotated[int, Range(1)] = 4,
    min_ratio: Annotated[float, Range(1)] = 1.2,
    device: Literal["cpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """The windows that Gemma 3 gets of a long image, besides the whole image ("pan and scan").

    An image whose longer side is at least `min_ratio` times the shorter one is cut along it into windows that are about
    square. Windows and defaults are those of Gemma 3's processor.

    Args:
      shapes: integers that begin with height and width of an image, 1-D, as of `peek_image_shape`. A host value.
      min_crop_size: the least side of a window in pixels; an image without such windows gets none.
      max_crops: the largest number of windows.
      min_ratio: the least ratio of the sides with which an image is cut.

    Returns:
      Top, left, height and width of each window in pixels, ``i32[n, 4]``; n may be 0. A host value.

    Raises:
      ArgumentError: the input is not integers, or not 1-D.
      SampleError: an image is empty, or a window would be.

    Example:
      >>> windows = fn.sizes.pan_and_scan(fn.peek_image_shape(jpegs))
    """
    ...
