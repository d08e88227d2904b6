"""Padding to a common shape."""

from __future__ import annotations

from typing import Annotated, Literal, Unpack

import numpy as np

from ..._core.arguments import Values
from ..._core.context import HostContext
from ..._core.declaration import Range
from ..._core.graph import DataNode
from ..._core.operator_function import Hints, Input, OneOrMore, PerSample, operator_function
from ..._core.values import Spec, Value
from .._families import DEFAULT_LAYOUTS, Part, Window, spec_of
from .._windows import axes_of


class Pad(Window):
    """Grows axes at their ends."""

    name = "pad"
    axes: tuple[int, ...] | int | None
    axis_names: str | None

    def layout(self, image: Spec) -> str:
        return image.layout

    def _axes(self, x: Spec) -> list[int]:
        layout = x.layout or DEFAULT_LAYOUTS.get(x.ndim, "")
        axes = None if self.axes is None or np.size(self.axes) == 0 else np.atleast_1d(self.axes).tolist()
        return axes_of(layout, x.ndim, self.axis_names, axes)

    def infer(self, x: Spec, *arguments: Spec) -> tuple[Spec, ...]:
        extents = [x.extent(d) for d in range(x.ndim)]
        fixed = self.args.is_static("shape") and self.args.is_static("align")
        known = fixed and x.shape is not None and self._sizes(np.array([x.shape]), x, self.arguments(None, ()))
        for d in self._axes(x):
            extents[d] = int(known[d][0]) if known else None
        return (spec_of(x.dtype, extents, x.layout),)

    def _sizes(self, shapes: np.ndarray, x: Spec, a: Values) -> dict[int, np.ndarray]:
        """The axes that are padded, with their new extents."""
        axes = self._axes(x)
        wanted, align = a.vector("shape", len(axes), one_for_all=True), a.vector("align", len(axes), one_for_all=True)
        sizes = {}
        for k, d in enumerate(axes):
            size = np.broadcast_to(shapes[:, d].max(initial=0), len(shapes))
            if wanted is not None:
                size = np.where(wanted[:, k] > 0, np.maximum(shapes[:, d], wanted[:, k]), size)
            if align is not None:
                size = -(-size // align[:, k]) * align[:, k]
            sizes[d] = size
        return sizes

    def part(self, ctx: HostContext, image: Value, a: Values) -> Part:
        shapes = image.shapes[image.indices(ctx.present)]
        part = Part.whole(image.shapes)
        for d, size in self._sizes(shapes, image.spec, a).items():
            part.extent[:, d] = size
        part.fill = a.fill_value[:, None]
        return part


@operator_function(Pad)
def pad(
    input: Input,
    /,
    *,
    align: Annotated[PerSample[OneOrMore[int]] | None, Range(1)] = None,
    axes: OneOrMore[int] | None = None,
    axis_names: str | None = None,
    fill_value: PerSample[float] = 0.0,
    shape: PerSample[OneOrMore[int]] | None = None,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """Pads tensors at the ends of their axes, to the largest extents of the batch or to a given shape.

    The batch is that of all shards of the process.

    Args:
      input: any tensor.
      align: extents become multiples of it, one number or one per axis. May be per sample.
      axes: the axes meant, by number. Default: all.
      axis_names: the axes meant, by letter of the layout.
      fill_value: of the new elements; of integers the fraction is cut. May be per sample.
      shape: least extents, one number or one per axis; an axis with 0 or less grows to the batch's largest. May be per sample.

    Returns:
      The padded data, in the input's layout.

    Raises:
      ValueError: wrong axes.

    Example:
      >>> fn.pad(images, axis_names="HW", align=32)
    """
    ...
