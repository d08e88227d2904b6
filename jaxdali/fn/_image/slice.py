"""A window of a tensor, by its start and its end or shape."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Literal, Unpack

import numpy as np

from ..._core.context import BuildContext, HostContext
from ..._core.declaration import DType, Range
from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._core.operator import Operator, Setup
from ..._core.operator_function import DTypeImageTypeHints, Input, OneOrMore, PerSample, operator_function
from ..._core.values import Spec, Value
from ..._cpu import Status
from ...types import is_float
from .._families import DEFAULT_LAYOUTS, WindowOnHost, spec_of
from .._families.cropping import Bounded, ByAxis, Policy, axes_of, converted, rounded, window_bounds

_NAMED_ARGUMENTS = ("start", "rel_start", "end", "rel_end", "shape", "rel_shape")


class Slice(Bounded):
    """A window by the inputs anchor and shape, or by the arguments start, end and shape."""

    name = "slice"
    axis_names: str | None  # the axes by their letters; None: those of the argument `axes`, or W and H
    dtype: np.dtype | None
    normalized_anchor: bool  # whether an input anchor of a float type is a fraction of the extents
    normalized_shape: bool  # whether an input shape of a float type is

    def bind(self, ctx: BuildContext, *specs: Spec) -> Operator:
        """A slice on the host, which may have a static shape, or this operator."""
        # Vectors are arguments of other operators, such as labels and bounds. They stay on the host.
        is_vector = specs[0].ndim == 1 and ctx.on_host
        if ctx.stage != "host" and not (ctx.stage == "cpu" and is_vector):
            return self
        # The inputs that are not arguments are the data, and maybe anchor and shape. With a shape that is one literal
        # for all samples, the result has a static shape.
        has_shape_input = len(specs) - len(self.args.inputs) == 3 and self.args.is_static("axes")
        extent = ctx.literals[2] if has_shape_input and self.out_of_bounds_policy != "trim_to_shape" else None
        if not is_vector or extent is None or extent.size != 1 or extent.dtype.kind not in "iu" or extent.item() < 0:
            return WindowOnHost(window=self)
        return _VectorSlice(window=self, extent=int(extent.item()))

    def takes_image(self, image: Spec) -> bool:
        return image.ndim > 2 and "axes" not in self.args

    def layout(self, image: Spec) -> str:
        return image.layout

    def is_plain_crop(self, image: Spec, out: Spec) -> bool:
        axes = self._axes(image)
        is_unchanged = not self.has_fill and out.dtype == image.dtype
        # An unknown extent may be 0, which no decoder makes.
        return is_unchanged and axes is not None and all(d < 2 and out.extent(d) for d in axes)

    def _axes(self, image: Spec) -> list[int] | None:
        """The axes that the window's numbers are for; None: each sample has its own."""
        if "axes" in self.args and self.axis_names is not None:
            raise ArgumentError("give either axes or axis_names")
        if not self.args.is_static("axes"):
            return None
        if "axes" in self.args:
            # An empty list means all axes.
            axes = np.atleast_1d(self.args.get("axes")).tolist() or None
            return axes_of("", image.ndim, axis_names=None, axes=axes)
        layout = image.layout or {2: "HW", **DEFAULT_LAYOUTS}.get(image.ndim, "")
        return axes_of(layout, image.ndim, "WH" if self.axis_names is None else self.axis_names, None)

    def infer(self, image: Spec, *arguments: Spec) -> tuple[Spec, ...]:
        """The input with the extents of the window, as far as they are known. Raises ArgumentError for arguments that
        exclude each other.
        """
        num_window_inputs = len(arguments) - len(self.args.inputs)  # anchor and shape
        if num_window_inputs not in (0, 2):
            raise ArgumentError("give both anchor and shape as inputs, or neither")
        if num_window_inputs and any(n in self.args for n in _NAMED_ARGUMENTS):
            raise ArgumentError("give either anchor and shape as inputs, or the arguments start, end and shape")
        for names in (("start", "rel_start"), ("end", "rel_end", "shape", "rel_shape")):
            if sum(n in self.args for n in names) > 1:
                raise ArgumentError(f"give only one of {', '.join(names)}")
        axes = self._axes(image)
        extents = [image.extent(d) for d in range(image.ndim)]
        if axes is None:
            return (Spec(converted(image, self.dtype), image.ndim, None, image.layout),)
        for k, d in enumerate(axes):
            # Only the argument `shape` tells the extent of a result before there is a batch.
            extents[d] = None
            if "shape" in self.args and self.args.is_static("shape") and self.out_of_bounds_policy != "trim_to_shape":
                size = np.atleast_1d(self.args.get("shape"))
                extents[d] = int(size[k if len(size) > 1 else 0]) if len(size) in (1, len(axes)) else None
        return (spec_of(converted(image, self.dtype), extents, image.layout),)

    def setup(self, ctx: HostContext, *values: Value) -> Setup:
        """The window of each sample, from the inputs anchor and shape, or from the arguments."""
        image, a = values[0], self.arguments(ctx, values)
        by_axis = ByAxis(ctx, image.shapes, a, self._axes(image.spec))
        extent = image.shapes.astype(np.float64)
        if len(values) - len(self.args.inputs) == 3:
            # Whether anchor and shape are fractions of the extents; integers never are.
            relative = [
                is_float(v.spec.dtype) and flag
                for v, flag in zip(values[1:3], (self.normalized_anchor, self.normalized_shape))
            ]
            begin, size = (by_axis.input(n, v) for n, v in zip(("anchor", "shape"), values[1:3]))
            begin, size = (x * extent if is_relative else x for x, is_relative in zip((begin, size), relative))
            end = begin + size
        else:
            begin, end = window_bounds(extent, by_axis.argument)
        # Axes that are not listed, which are NaN, and NaN itself, mean the whole axis.
        is_given = by_axis.is_listed & ~np.isnan(begin) & ~np.isnan(end)
        start, stop = (
            rounded(np.where(is_given, begin, 0)),
            np.where(is_given, rounded(np.where(is_given, end, 0)), image.shapes),
        )
        for i in np.flatnonzero((stop < start).any(axis=1) & ctx.present):
            ctx.fail(
                int(i),
                Status.ARGUMENT,
                f"the end must not be before the start, got {start[i].tolist()} ... {stop[i].tolist()}",
            )
        return self.setup_of(ctx, image, self.bounded(ctx, image.shapes, start, np.maximum(stop - start, 0)))


class _VectorSlice(WindowOnHost):
    """A slice of vectors, of as many elements in each sample."""

    extent: int

    def infer(self, *specs: Spec) -> tuple[Spec, ...]:
        (spec,) = self.window.infer(*specs)
        return (dataclasses.replace(spec, shape=(self.extent,)),)


@operator_function(Slice)
def slice(
    data: Input,
    anchor: Input | None = None,
    shape_input: Input | None = None,
    /,
    *,
    axes: PerSample[OneOrMore[int]] | None = None,
    axis_names: str | None = None,
    dtype: DType | None = None,
    end: PerSample[OneOrMore[int]] | None = None,
    fill_values: Annotated[OneOrMore[float], Range(infinite=True)] = 0.0,
    normalized_anchor: bool = True,
    normalized_shape: bool = True,
    out_of_bounds_policy: Policy = "error",
    rel_end: PerSample[OneOrMore[float]] | None = None,
    rel_shape: PerSample[OneOrMore[float]] | None = None,
    rel_start: PerSample[OneOrMore[float]] | None = None,
    shape: PerSample[OneOrMore[int]] | None = None,
    start: PerSample[OneOrMore[int]] | None = None,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[DTypeImageTypeHints],
) -> DataNode:
    """Cuts a window out of a tensor.

    Differs from DALI: with ``dtype=types.UINT8`` floats are rounded; DALI drops their fraction.

    Args:
      data: any tensor.
      anchor, shape_input: start and extents of the window along the axes, one number per axis and sample: fractions of
        the extents if they are floats, else elements. They replace the arguments below.
      axes: the axes that the numbers refer to, by number; an empty list means all. Default: `axis_names`. May be per
        sample.
      axis_names: the same axes, by their letters in the layout, where 2-D data without a layout count as HW. Default:
        "WH" (x before y).
      dtype: element type of the result. Values are rounded and saturated. Default: the input's.
      start, end, shape: first index, the index after the last, and extents: one number per axis, or one for all. May be
        per sample.
      rel_start, rel_end, rel_shape: the same as fractions of the extents; rounded when start and end are known. May be
        per sample.
      normalized_anchor, normalized_shape: whether inputs of a float type are fractions.
      fill_values: the value of elements outside the input, with the policy "pad": one number, or one per channel. For
        integer types the fraction is dropped, and values out of range wrap around, as in DALI.
      out_of_bounds_policy: what happens when the window reaches outside the data. "error": the sample fails; "pad": the
        missing part is filled with `fill_values`; "trim_to_shape": the window is cut to the data.

    Returns:
      The window, in the input's layout.

    Raises:
      ValueError: wrong axes, or arguments that can't be combined. A sample whose window reaches outside fails when its
        batch is made.

    Example:
      >>> fn.slice(images, rel_start=(0.25, 0.25), rel_shape=(0.5, 0.5), axis_names="HW")
    """
    ...
