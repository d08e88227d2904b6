"""experimental.erode: each element becomes the smallest one in its neighbourhood."""

from __future__ import annotations

from typing import Annotated, Literal, Unpack

from ..._core.declaration import Len, Range
from ..._core.graph import DataNode
from ..._core.operator_function import Hints, Input, ListOf, PerFrame, operator_function
from ..._cpu import StencilReduction
from ._dilate import MAX_MASK_EXTENT, BorderMode, Dilate


class Erode(Dilate):
    """The smallest element of a rectangle."""

    name = "experimental.erode"
    reduction = StencilReduction.MIN


@operator_function(Erode)
def erode(
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
    """Replaces each element by the smallest of the rectangle around it; arguments and result are those of `dilate`.

    Args:
      input: images or sequences of 8- or 16-bit integers or floats of at most 32 bits, HW, HWC, CHW, FHWC or FCHW.
      anchor: the position (x, y) of the replaced element in the rectangle; -1 is the middle. May be per sample or
        frame.
      border_mode: what the values beyond the border are, see `dilate`.
      iterations: how often the operation is repeated.
      mask_size: (width, height) of the rectangle. May be per sample or frame.

    Returns:
      The input's shape, type and layout.

    Raises:
      TypeError, ValueError: the element type or layout is not supported. A sample whose anchor lies outside the
        rectangle fails when its batch is made.

    Example:
      >>> fn.experimental.erode(masks, mask_size=[3, 3], iterations=2)
    """
    ...
