"""Median blur."""

from __future__ import annotations

from typing import Annotated, Literal, Unpack

import numpy as np

from ..._core.context import HostContext
from ..._core.declaration import Len, Range
from ..._core.graph import DataNode
from ..._core.operator_function import Hints, Input, ListOf, PerSample, operator_function
from ..._core.values import Spec, Value
from ..._cpu import Border, Status, StencilReduction
from .._families import Neighbourhoods, Stencil, image_layout

_LAYOUTS = ("HW", "HWC", "FHWC", "CHW", "FCHW")
_MAX_EXTENT = 1023


def plane(image: Spec) -> tuple[int, int]:
    """The axis H of an image or a sequence, and the number of spatial axes, which is 2."""
    layout = "HW" if image.ndim == 2 and not image.layout else image_layout(image, _LAYOUTS)
    return layout.index("H"), 2


class MedianBlur(Stencil):
    """The median of a rectangle."""

    name = "experimental.median_blur"
    reduction = StencilReduction.MEDIAN

    @property
    def border_type(self) -> Border:
        return Border.REPLICATE

    def axes(self, image: Spec) -> tuple[int, int]:
        return plane(image)

    def neighbourhoods(self, ctx: HostContext, *values: Value) -> Neighbourhoods:
        # The argument is (width, height).
        window = self.arguments(ctx, values).window_size[:, ::-1]
        for i in np.flatnonzero((window % 2 == 0).any(axis=1) & ctx.present):
            ctx.fail(int(i), Status.ARGUMENT, f"window_size must be odd, got {window[i, ::-1].tolist()}")
        return Neighbourhoods(window, window // 2)


@operator_function(MedianBlur)
def median_blur(
    input: Input,
    /,
    *,
    window_size: Annotated[PerSample[ListOf[int]], Len(2), Range(1, _MAX_EXTENT)] = (3, 3),
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """Replaces each element by the median of the rectangle around it, each channel on its own.

    Beyond the border, the outermost elements are repeated. DALI has this operator only on GPUs; here it also runs on
    the CPU.

    Args:
      input: images or sequences of 8- or 16-bit integers or floats of at most 32 bits, HW, HWC, CHW, FHWC or FCHW.
      window_size: (width, height) of the rectangle, odd. May be per sample.

    Returns:
      The input's shape, type and layout.

    Raises:
      TypeError, ValueError: the element type or layout is not supported. A sample with an even window size fails when
        its batch is made.

    Example:
      >>> fn.experimental.median_blur(images, window_size=[5, 5])
    """
    ...
