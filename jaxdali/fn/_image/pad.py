"""pad: padding to a common shape."""

from __future__ import annotations

from typing import Annotated, Literal, Unpack

import numpy as np

from ..._core.arguments import Values
from ..._core.context import HostContext
from ..._core.declaration import Range
from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._core.operator_function import Hints, Input, OneOrMore, PerSample, operator_function
from ..._core.values import Spec, Value
from .._families import DEFAULT_LAYOUTS, Part, Window, spec_of
from .._families.cropping import ByAxis, axes_of


class Pad(Window):
    """Grows axes at their ends."""

    name = "pad"
    axis_names: str | None

    def takes_image(self, image: Spec) -> bool:
        return False  # It pads any axis, so that the letters of the layout do not matter.

    @property
    def has_fill(self) -> bool:
        return True

    @property
    def few_shapes(self) -> bool:
        return "align" in self.args and self.args.is_static("align") and bool(np.max(self.args.get("align")) > 1)

    def layout(self, image: Spec) -> str:
        return image.layout

    def _axes(self, x: Spec) -> list[int] | None:
        """The axes that are padded; None: each sample has its own."""
        if "axes" in self.args and self.axis_names is not None:
            raise ArgumentError("give either axes or axis_names")
        if not self.args.is_static("axes"):
            return None
        # An empty list means all axes, as no list does.
        axes = np.atleast_1d(self.args.get("axes")).tolist() if "axes" in self.args else []
        return axes_of(x.layout or DEFAULT_LAYOUTS.get(x.ndim, ""), x.ndim, self.axis_names, axes or None)

    def infer(self, x: Spec, *arguments: Spec) -> tuple[Spec, ...]:
        """The padded extents, as far as they are the same for all samples."""
        axes = self._axes(x)
        if axes is None:
            return (Spec(x.dtype, x.ndim, None, x.layout),)
        extents = [x.extent(d) for d in range(x.ndim)]
        is_static = self.args.is_static("shape") and self.args.is_static("align")
        # The padded extents if all samples have the same, computed for one sample; False: they vary.
        padded = (
            is_static
            and x.shape is not None
            and self._extents(None, np.array([x.shape]), self.arguments(None, ()), axes)[0]
        )
        for d in axes:
            extents[d] = int(padded[d]) if padded is not False else None
        return (spec_of(x.dtype, extents, x.layout),)

    def _extents(self, ctx: HostContext | None, shapes: np.ndarray, a: Values, axes: list[int] | None) -> np.ndarray:
        """The padded extents, ``i64[N, ndim]``, of samples of these shapes."""
        by_axis = ByAxis(ctx, shapes, a, axes)
        # By default, all samples of the batch get the largest extent.
        extents = np.broadcast_to(shapes.max(axis=0, initial=0), shapes.shape)
        if (minimum := by_axis.argument("shape")) is not None:
            extents = np.where(minimum > 0, np.maximum(shapes, minimum), extents)
        if (align := by_axis.argument("align")) is not None:
            align = np.where(align > 0, align, 1)  # NaN for axes that are not listed
            extents = np.ceil(extents / align) * align
        return np.where(by_axis.is_listed, extents, shapes).astype(np.int64)

    def part(self, ctx: HostContext, image: Value, a: Values) -> Part:
        """Windows that begin with the sample, and end behind it."""
        window = Part.whole(image.shapes)
        # An absent sample counts as the first present one, so that it does not change the largest extents.
        shapes = image.shapes[image.indices(ctx.present)]
        window.extent = np.where(
            ctx.present[:, None], self._extents(ctx, shapes, a, self._axes(image.spec)), window.extent
        )
        window.fill = a.fill_value[:, None]
        return window


@operator_function(Pad)
def pad(
    input: Input,
    /,
    *,
    align: Annotated[PerSample[OneOrMore[int]] | None, Range(1)] = None,
    axes: PerSample[OneOrMore[int]] | None = None,
    axis_names: str | None = None,
    fill_value: Annotated[PerSample[float], Range(infinite=True)] = 0.0,
    shape: PerSample[OneOrMore[int]] | None = None,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """Pads tensors at the ends of their axes, to the largest extents of the batch or to a given shape.

    The batch includes all shards of the process.

    Args:
      input: any tensor.
      align: extents are rounded up to multiples of this, one number or one per axis. May be per sample.
      axes: the axes to pad, by number; an empty list means all. Default: all. May be per sample.
      axis_names: the same axes, by their letters in the layout.
      fill_value: the value of the new elements. For integer types the fraction is dropped, and values out of range wrap
        around, as in DALI: -1 becomes 255 in uint8. May be per sample.
      shape: minimum extents, one number or one per axis; an axis with 0 or less grows to the largest extent in the
        batch. May be per sample.

    Returns:
      The padded data, in the input's layout.

    Raises:
      ValueError: wrong axes.

    Example:
      >>> fn.pad(images, axis_names="HW", align=32)
    """
    ...
