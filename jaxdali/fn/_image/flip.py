"""Mirroring."""

from __future__ import annotations

import dataclasses
from typing import Literal, Unpack

from ..._core.arguments import Values
from ..._core.context import HostContext
from ..._core.graph import DataNode
from ..._core.operator_function import Hints, Input, PerSample, operator_function
from ..._core.values import Spec, Value
from .._families import Part, Window
from .._families.layouts import depth_doubt


class Flip(Window):
    """Mirrors spatial axes."""

    name = "flip"

    def infer(self, image: Spec, *arguments: Spec) -> tuple[Spec, ...]:
        return (dataclasses.replace(image, layout=self.layout(image)),)

    def doubts(self, *specs: Spec) -> str:
        is_deep = not self.args.is_static("depthwise") or self.args.get("depthwise")
        return depth_doubt(specs[0], "depthwise" if is_deep else "")

    def part(self, ctx: HostContext, image: Value, a: Values) -> Part:
        window = Part.whole(image.shapes)
        for letter, is_mirrored in (("W", a.horizontal), ("H", a.vertical), ("D", a.depthwise)):
            if letter in self.layout(image.spec):
                window.flip(self.layout(image.spec).index(letter), is_mirrored != 0)
        return window


@operator_function(Flip)
def flip(
    input: Input,
    /,
    *,
    horizontal: PerSample[int] = 1,
    vertical: PerSample[int] = 0,
    depthwise: PerSample[int] = 0,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """Mirrors images, sequences or volumes.

    Args:
      input: any layout with the axes H and W, e.g. HWC, CHW, FHWC, DHWC; data without a layout are HWC, FHWC or FDHWC
        by their rank. Any type.
      horizontal: if nonzero, left and right are exchanged. May be per sample.
      vertical: if nonzero, top and bottom are exchanged. May be per sample.
      depthwise: if nonzero, front and back of volumes are exchanged. May be per sample.

    Returns:
      The input's shape, type and layout.

    Raises:
      ValueError: wrong layout.

    Example:
      >>> fn.flip(images, horizontal=fn.random.coin_flip())
    """
    ...
