"""filter: convolution with one filter per sample."""

from __future__ import annotations

import dataclasses
from typing import Literal, Unpack

import numpy as np

from ..._core.building import reads_images
from ..._core.context import HostContext
from ..._core.declaration import DType
from ..._core.graph import DataNode
from ..._core.input_warnings import filtered_layout_warning, image_layout_warning
from ..._core.operator import Setup
from ..._core.operator_function import Hints, Input, InputPerFrame, OneOrMore, PerFrame, operator_function
from ..._core.values import Spec, Value
from ..._cpu import Border, Status, StencilReduction
from .._families import BORDERS, SPATIAL, Neighbourhoods, Stencil, filtered_layout, spec_of

BorderMode = Literal[
    "reflect_101",
    "reflect101",
    "101",
    "reflect_1001",
    "reflect1001",
    "1001",
    "reflect",
    "wrap",
    "clamp",
    "edge",
    "constant",
    "fill",
    "pad",
]


class Filter(Stencil):
    """A convolution. The inputs are images, filters, optionally fill values, and then the arguments."""

    name = "filter"
    reduction = StencilReduction.SUM
    border: BorderMode
    dtype: np.dtype | None  # of the output; None: the input's
    mode: Literal["same", "valid"]  # "valid": results only where the whole filter is inside the image
    reads_images: bool = dataclasses.field(default_factory=reads_images)

    @property
    def border_type(self) -> Border:
        return BORDERS[self.border]

    def about_axes(self, image: Spec) -> str:
        return image_layout_warning(image) if self.reads_images else filtered_layout_warning(image)

    def axes(self, image: Spec) -> tuple[int, int]:
        """See `Stencil.axes`: D, H and W, or two of them, which must be neighbours."""
        layout = filtered_layout(image, self.reads_images)
        spatial = [d for d, letter in enumerate(layout) if letter in SPATIAL]
        if len(spatial) not in (2, 3) or image.ndim != len(layout) or spatial[-1] - spatial[0] != len(spatial) - 1:
            actual = f"{image.ndim}-D data of layout {layout!r}"
            raise ValueError(
                f"the input must have two or three spatial axes, D, H and W, that are neighbours; got {actual}"
            )
        return spatial[0], len(spatial)

    def infer(self, image: Spec, filters: Spec, *others: Spec) -> tuple[Spec, ...]:
        """The input's extents; in mode "valid" those of the places where the whole filter is inside the image."""
        # Raises an error for an unsupported type or layout of the image.
        super().infer(image)
        first, axes = self.axes(image)
        if filters.dtype != np.float32 or filters.ndim != axes:
            volume = (
                '; of volumes, fn.reshape(x, layout="DHW") says so' if self.reads_images and not image.layout else ""
            )
            raise TypeError(f"the filter must be {axes}-D and float32, got {filters.ndim}-D {filters.dtype}{volume}")
        # The fill values, without the inputs that are arguments.
        for fill in others[: len(others) - len(self.args.inputs)]:
            if fill.dtype != image.dtype or (fill.ndim and fill.shape not in ((1,),)):
                raise TypeError(
                    f"fill_value must be scalars of the input's type {image.dtype}, got {fill.ndim}-D {fill.dtype}"
                )
        dtype = self.dtype or image.dtype
        if dtype not in (image.dtype, np.dtype(np.float32)):
            raise ValueError(f"the output must be of the input's type or FLOAT, got {image.dtype} to {dtype}")
        if self.mode == "same":
            return (dataclasses.replace(image, dtype=dtype),)
        # The filter stays inside the image, so that there are fewer results.
        extents = [image.extent(d) for d in range(image.ndim)]
        for k in range(axes):
            extent, taps = extents[first + k], filters.extent(k)
            extents[first + k] = None if extent is None or taps is None else max(extent - taps + 1, 0)
        return (spec_of(dtype, extents, image.layout),)

    def setup(self, ctx: HostContext, *values: Value) -> Setup:
        """As for `Stencil`. In mode "valid" the outputs are smaller; a sample that is smaller than its filter fails."""
        shapes, window = values[0].shapes.copy(), values[1].shapes
        first, axes = self.axes(values[0].spec)
        if self.mode == "valid":
            for i in np.flatnonzero((window > shapes[:, first : first + axes]).any(axis=1) & ctx.present):
                sizes = f"the filter is {window[i].tolist()}, the image {shapes[i, first : first + axes].tolist()}"
                ctx.fail(
                    int(i), Status.ARGUMENT, f"in mode 'valid' the filter must not be larger than the image; {sizes}"
                )
            shapes[:, first : first + axes] = np.maximum(shapes[:, first : first + axes] - window + 1, 0)
        return self.setup_of(ctx, shapes, self.neighbourhoods(ctx, *values))

    def neighbourhoods(self, ctx: HostContext, *values: Value) -> Neighbourhoods:
        """The filters as weights, row by row, the place of the result in each filter, and the fill values."""
        _, axes = self.axes(values[0].spec)
        window = values[1].shapes
        for i in np.flatnonzero((window < 1).any(axis=1) & ctx.present):
            ctx.fail(int(i), Status.ARGUMENT, f"the filter must not be empty, got {window[i].tolist()}")
        anchor = self.arguments(ctx, values).vector("anchor", axes, one_for_all=True)
        assert anchor is not None
        # -1 means the middle.
        anchor = np.where(anchor == -1, window // 2, anchor)
        # Result 0 is the sum of the first window that is inside the image, which begins at element 0.
        if self.mode == "valid":
            anchor = np.zeros_like(window)
        for i in np.flatnonzero(((anchor < 0) | (anchor >= window)).any(axis=1) & ctx.present):
            ctx.fail(
                int(i),
                Status.ARGUMENT,
                f"anchor must be inside of the filter {window[i].tolist()}, got {anchor[i].tolist()}",
            )
        if values[1].spec.shape is not None:
            weights = values[1].dense("the filter", ctx.present).reshape(ctx.N, -1)
        else:
            weights = np.zeros((ctx.N, int(window.prod(axis=1).max(initial=1))))
            for i in values[1].indices(ctx.present):
                weights[i, : window[i].prod()] = values[1].sample(i).reshape(-1)
        # The fill values are a third input, if there is one in front of the arguments.
        fill = np.zeros(ctx.N)
        for fills in values[2 : len(values) - len(self.args.inputs)]:
            for i in fills.indices(ctx.present):
                fill[i] = fills.sample(i).reshape(())
        return Neighbourhoods(np.maximum(window, 1), anchor, weights, fill)


@operator_function(Filter)
def filter(
    data: Input,
    filter: InputPerFrame,
    fill_value: InputPerFrame | None = None,
    /,
    *,
    anchor: PerFrame[OneOrMore[int]] = (-1,),
    border: BorderMode = "reflect_101",
    dtype: DType | None = None,
    mode: Literal["same", "valid"] = "same",
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """Correlates images, sequences or volumes with one filter per sample (usually called a convolution).

    Element i of the result is the sum of ``filter[k] * data[i - anchor + k]``, in float32. Unlike DALI's CPU operator,
    this one also takes volumes, int8 and float16, on every device.

    Args:
      data: data in a layout with two or three adjacent spatial axes: HW, HWC, CHW, FHWC, FCHW, DHWC, ...; without a
        layout all axes are spatial, as in DALI. The type is 8- or 16-bit integers or floats of at most 32 bits.
      filter: float32, a host value: 2-D for images and sequences, 3-D for volumes, with at most 4096 elements along an
        axis. May be per frame.
      fill_value: the value beyond a constant border, a scalar of the input's type and a host value. Default: 0. May be
        per frame.
      anchor: the element of the filter that is aligned with the element of the result, one number or one per axis; -1
        is the middle, rounded down. It has no effect in mode "valid". May be per sample or frame.
      border: what the values beyond the border are: "reflect_101", "reflect101" or "101": the image mirrored about the
        centre of the outermost element, "reflect_1001", "reflect1001", "1001" or "reflect": mirrored at its edge,
        "wrap": its other side, "clamp" or "edge": the outermost element, "constant", "fill" or "pad": `fill_value`. The
        letters may be of either case, as in `mode`.
      dtype: element type of the result: the input's (default; integers are rounded and saturated) or FLOAT.
      mode: with "same", the result is as large as the data; with "valid", it has only the places where the filter lies
        inside the data.

    Returns:
      The input's layout.

    Raises:
      TypeError, ValueError: wrong layout, element type or number of axes. A sample fails when its batch is made if the
        anchor lies outside the filter, or if in mode "valid" the filter is larger than the data.

    Example:
      >>> sharp = fn.filter(images, np.float32([[0, -1, 0], [-1, 5, -1], [0, -1, 0]]))
    """
    ...
