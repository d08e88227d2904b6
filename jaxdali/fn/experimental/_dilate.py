"""experimental.dilate: each element becomes the largest one in its neighbourhood."""

from __future__ import annotations

from typing import Annotated, Literal, Unpack

import numpy as np

from ..._core.context import HostContext
from ..._core.declaration import Len, Range
from ..._core.graph import DataNode
from ..._core.operator_function import Hints, Input, ListOf, PerFrame, operator_function
from ..._core.values import Spec, Value
from ..._cpu import Border, Status, StencilReduction
from .._families import BORDERS, Neighbourhoods, Stencil
from ._median_blur import plane

BorderMode = Literal["constant", "replicate", "reflect", "reflect_101", "wrap"]


MAX_MASK_EXTENT = 1023


class Dilate(Stencil):
    """The largest element of a rectangle."""

    name = "experimental.dilate"
    reduction = StencilReduction.MAX
    border_mode: BorderMode
    iterations: int  # how often the operation is repeated

    @property
    def border_type(self) -> Border:
        return BORDERS[self.border_mode]

    def axes(self, image: Spec) -> tuple[int, int]:
        return plane(image)

    def neighbourhoods(self, ctx: HostContext, *values: Value) -> Neighbourhoods:
        """The rectangles, as (height, width). A sample whose anchor lies outside fails."""
        a = self.arguments(ctx, values)
        # The arguments are (width, height) and (x, y).
        mask, anchor = a.mask_size[:, ::-1], a.anchor[:, ::-1]
        # -1 means the middle.
        anchor = np.where(anchor == -1, mask // 2, anchor)
        for i in np.flatnonzero(((anchor < 0) | (anchor >= mask)).any(axis=1) & ctx.present):
            ctx.fail(
                int(i),
                Status.ARGUMENT,
                f"anchor must be inside of the mask {mask[i, ::-1].tolist()}, got {anchor[i, ::-1].tolist()}",
            )
        # Each further iteration enlarges the mask by its extent less 1, so that one pass does the work of all.
        return Neighbourhoods(mask + (self.iterations - 1) * (mask - 1), anchor * self.iterations)


@operator_function(Dilate)
def dilate(
    input: Input,
    /,
    *,
    anchor: Annotated[PerFrame[ListOf[int]], Len(2), Range(-1, MAX_MASK_EXTENT)] = (-1, -1),
    border_mode: BorderMode = "constant",
    iterations: Annotated[int, Range(1, 64)] = 1,
    mask_size: Annotated[PerFrame[ListOf[int]], Len(2), Range(1, MAX_MASK_EXTENT)] = (3, 3),
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """Replaces each element by the largest of the rectangle around it, each channel on its own.

    DALI has this operator only on GPUs; here it also runs on the CPU.

    Args:
      input: images or sequences of 8- or 16-bit integers or floats of at most 32 bits, HW, HWC, CHW, FHWC or FCHW.
      anchor: the position (x, y) of the replaced element in the rectangle; -1 is the middle. May be per sample or
        frame.
      border_mode: what the values beyond the border are: "constant": they are ignored, "replicate": the outermost
        elements, "reflect": the image mirrored at its edge, "reflect_101": mirrored about the centre of the outermost
        element, "wrap": its other side.
      iterations: how often the operation is repeated.
      mask_size: (width, height) of the rectangle. May be per sample or frame.

    Returns:
      The input's shape, type and layout.

    Raises:
      TypeError, ValueError: the element type or layout is not supported. A sample whose anchor lies outside the
        rectangle fails when its batch is made.

    Example:
      >>> fn.experimental.dilate(masks, mask_size=[5, 5])
    """
    ...
