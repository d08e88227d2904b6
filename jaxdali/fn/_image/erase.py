"""Erasing of regions."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, Literal, Unpack

import jax.numpy as jnp
import numpy as np

from ..._core import ffi as _ffi
from ..._core.arguments import Values
from ..._core.context import BuildContext, HostContext, LowerContext
from ..._core.declaration import Range
from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._core.operator import HostOperator, NativeOperator, Operator, ProgramOperator, Setup
from ..._core.operator_function import Hints, Input, OneOrMore, PerSample, operator_function
from ..._core.ragged import Ragged
from ..._core.values import Spec, Value
from ..._cpu import Status
from ...types import is_number
from .._families import DEFAULT_LAYOUTS, call_window
from .._families.conversion import cut
from .._families.cropping import axes_of
from .._families.ragged import fit, shapes_of


class Erase(HostOperator, ProgramOperator):
    """Fills boxes."""

    name = "erase"
    axes: tuple[int, ...] | int | None  # None: those of `axis_names`, or all but C
    axis_names: str | None
    centered_anchor: bool  # whether `anchor` is the centre of a box, not its first corner
    normalized: bool | None  # whether anchors and shapes are fractions of the extents
    normalized_anchor: bool | None  # whether anchors are
    normalized_shape: bool | None  # whether shapes are

    def takes_image(self, image: Spec) -> bool:
        return self.axes is None or self.axis_names is not None

    def _layout(self, x: Spec) -> str:
        return x.layout or DEFAULT_LAYOUTS.get(x.ndim, "")

    def _axes(self, x: Spec) -> list[int]:
        """The axes that `anchor` and `shape` have numbers for."""
        layout = self._layout(x)
        if self.axes is None and self.axis_names is None:
            return [d for d in range(x.ndim) if layout[d : d + 1] != "C"]
        return axes_of(
            layout, x.ndim, self.axis_names, None if self.axes is None else np.atleast_1d(self.axes).tolist()
        )

    def infer(self, x: Spec, *arguments: Spec) -> tuple[Spec, ...]:
        """The input. Raises an error for arguments that exclude each other, and for an axis that the input lacks."""
        if not is_number(x.dtype):
            raise ValueError(f"the input must be numbers, got {x.dtype}")
        if self.normalized is not None and (self.normalized_anchor is not None or self.normalized_shape is not None):
            raise ArgumentError("give either normalized or normalized_anchor and normalized_shape")
        # Raises ArgumentError for an axis that the input lacks.
        self._axes(x)
        return (x,)

    def setup_reads(self, i: int) -> bool:
        return i > 0

    def _boxes(self, ctx: HostContext, x: Value, a: Values) -> list[np.ndarray]:
        """The boxes of each sample, ``i64[boxes, 2, ndim]``: the first index, and the one after the last, both clipped
        to the sample.
        """
        axes = self._axes(x.spec)
        is_anchor_relative, is_shape_relative = (
            bool(self.normalized) or bool(flag) for flag in (self.normalized_anchor, self.normalized_shape)
        )
        sizes = a.ragged("shape") if "shape" in a else None
        anchors = a.ragged("anchor") if "anchor" in a else None
        boxes = []
        for i, dims in enumerate(x.shapes):
            size = sizes[i] if sizes is not None else np.zeros(0)
            anchor = anchors[i] if anchors is not None else np.zeros_like(size)
            # A sample may have several boxes, one after the other.
            if len(anchor) != len(size) or len(size) % max(len(axes), 1):
                reason = (
                    f"anchor and shape must have {len(axes)} numbers for each region, got {len(anchor)} and {len(size)}"
                )
                ctx.fail(i, Status.ARGUMENT, reason)
                anchor = size = np.zeros(0)
            # In float32, as DALI.
            extent = dims[axes].astype(np.float32)
            first, size = (v.reshape(-1, len(axes)).astype(np.float32) for v in (anchor, size))
            first, size = first * extent if is_anchor_relative else first, size * extent if is_shape_relative else size
            if self.centered_anchor:
                first = first - size / 2
            box = np.zeros((len(first), 2, len(dims)), np.int64)
            # Along axes without numbers, a box is as long as the sample.
            box[:, 1] = dims
            for side, position in enumerate((first, first + size)):
                box[:, side, axes] = np.floor(np.clip(np.nan_to_num(position), 0, extent)).astype(np.int64)
            boxes.append(box)
        return boxes

    def _fill(self, ctx: HostContext, x: Value, a: Values) -> np.ndarray:
        """The fill values of each sample in the input's type, ``[N, numbers]``: one, or one per channel."""
        fill = a.fill_value
        channels = self._layout(x.spec).find("C")
        if fill.shape[1] > 1:
            if channels < 0:
                raise ArgumentError(
                    f"fill_value of several numbers needs a layout with the axis C, got {x.spec.layout!r}"
                )
            for i in np.flatnonzero((x.shapes[:, channels] != fill.shape[1]) & ctx.present):
                ctx.fail(
                    int(i),
                    Status.ARGUMENT,
                    f"fill_value must be 1 number or {x.shapes[i, channels]}, got {fill.shape[1]}",
                )
        return cut(fill, x.spec.dtype)

    def run(self, ctx: HostContext, *values: Value) -> tuple[Any, ...]:
        """Fills the boxes of each sample, in a copy. A sample that is not present becomes zeros, or empty."""
        x, a = values[0], self.arguments(ctx, values)
        fill, channels = self._fill(ctx, x, a), self._layout(x.spec).find("C")
        data, samples = ctx.output(x.shapes)
        for i, boxes in enumerate(self._boxes(ctx, x, a)):
            if not ctx.present[i]:
                continue
            sample = samples[i]
            sample[...] = x.sample(i)
            fill_values = fill[i, 0]
            # One value per channel, laid out as the sample. A sample with another number of channels has failed.
            if fill.shape[1] > 1 and fill.shape[1] == sample.shape[channels]:
                fill_values = np.broadcast_to(fill[i].reshape(-1, *(1,) * (sample.ndim - 1 - channels)), sample.shape)
            for first, last in boxes.tolist():
                region = tuple(slice(b, e) for b, e in zip(first, last, strict=True))
                sample[region] = fill_values[region] if fill_values.ndim else fill_values
        return (data,)

    def setup(self, ctx: HostContext, *values: Value) -> Setup:
        """The boxes as ``i32[N, most boxes, 2, ndim]``, and the fill values."""
        x, a = values[0], self.arguments(ctx, values)
        sample_boxes = self._boxes(ctx, x, a)
        largest = max(map(len, sample_boxes), default=0)
        # Padded to a power of two, so that few programs are compiled. A box of zeros has no elements.
        padded = 1 << (largest - 1).bit_length() if largest else 0
        boxes = np.zeros((ctx.N, padded, 2, x.spec.ndim), np.int32)
        for i, box in enumerate(sample_boxes):
            boxes[i, : len(box)] = box
        return Setup((shapes_of(x),), {"boxes": boxes, "fill": self._fill(ctx, x, a)})

    def bind(self, ctx: BuildContext, *specs: Spec) -> Operator:
        if ctx.stage == "host" or specs[0].shape is not None:
            return self
        return _RaggedErase(**{f.name: getattr(self, f.name) for f in dataclasses.fields(self)})

    def lower(self, ctx: LowerContext, *arrays: Any) -> Any:
        """Fills the elements in the boxes of a dense batch ``[B, ...]``. Each tests its coordinates."""
        data, boxes, fill = arrays[0], ctx.params["boxes"], ctx.params["fill"]
        channels, ndim = self._layout(ctx.spec).find("C"), ctx.spec.ndim
        # The sample of each element, and its coordinates there, one array for each axis.
        samples = jnp.arange(ctx.B, dtype=jnp.int32).reshape(-1, *(1,) * ndim)
        coordinates = [
            jnp.arange(n, dtype=jnp.int32).reshape(*(-1 if k == d else 1 for k in range(ndim + 1)))
            for d, n in enumerate(data.shape)
            if d  # axis 0 is that of the samples
        ]
        # Whether each element is in one of its sample's boxes.
        erased = jnp.zeros(data.shape, bool)
        for r in range(boxes.shape[1]):
            is_inside = jnp.ones((), bool)
            for d in range(ndim):
                is_inside &= (coordinates[d] >= boxes[samples, r, 0, d]) & (coordinates[d] < boxes[samples, r, 1, d])
            erased |= is_inside
        color = fill[samples, coordinates[channels] if fill.shape[1] > 1 else 0]
        return (jnp.where(erased, color, data),)


class _RaggedErase(Erase, NativeOperator):
    """Erases in ragged batches. For each box the kernel `window` makes a mask: zeros, placed in a window as large as
    the sample, with ones around them. Computing the coordinates of each element takes four times as long.
    """

    kernel = "window"

    def lower(self, ctx: LowerContext, *arrays: Any) -> Any:
        """Fills the elements in the boxes: where not all masks are one."""
        out, boxes, fill = ctx.out[0], ctx.params["boxes"], ctx.params["fill"]
        assert out is not None
        data = fit(arrays[0], out).data
        mask_ctx = dataclasses.replace(ctx, specs=(Spec(np.dtype(bool), ctx.spec.ndim, None),))
        zeros, is_kept = jnp.zeros(data.shape, bool), jnp.ones(data.shape, bool)
        status = jnp.zeros((ctx.B,), jnp.int32)
        for r in range(boxes.shape[1]):
            first, end = boxes[:, r, 0], boxes[:, r, 1]
            box = Ragged(zeros, out.offsets, jnp.maximum(end - first, 0))  # a box is not larger than its sample
            mask, code = call_window(
                mask_ctx, box, -first, jnp.ones_like(first), out.shapes, fill=jnp.ones((ctx.B, 1), jnp.float32)
            )
            is_kept &= mask.data
            # A sample keeps the status of its first failed call; 0: none has failed.
            status = jnp.where(status == 0, code, status)
        channels = self._layout(ctx.spec).find("C") if fill.shape[1] > 1 else 0
        fill = fill.reshape(ctx.B, *(-1 if d == channels else 1 for d in range(ctx.spec.ndim)))
        color, code = _ffi.call("expand", ctx, fill, ctx.spec, out)
        status = jnp.where(status == 0, code, status)
        return (Ragged(jnp.where(is_kept, data, color.data), out.offsets, out.shapes),), status


@operator_function(Erase)
def erase(
    input: Input,
    /,
    *,
    anchor: PerSample[OneOrMore[float]] | None = None,
    axes: OneOrMore[int] | None = None,
    axis_names: str | None = None,
    centered_anchor: bool = False,
    fill_value: Annotated[PerSample[OneOrMore[float]], Range(infinite=True)] = 0.0,
    normalized: bool | None = None,
    normalized_anchor: bool | None = None,
    normalized_shape: bool | None = None,
    shape: PerSample[OneOrMore[float]] | None = None,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """Fills regions of tensors with a value.

    Along each axis, a region covers the indices from ``floor(anchor)`` to ``floor(anchor + shape) - 1``, clipped to the
    data. Axes not listed in `axes` are covered completely.

    Args:
      input: any tensor of numbers.
      anchor: where the regions begin, in elements: one number per listed axis, one region after the other. Default: 0.
        May be per sample, and each sample may have another number of regions.
      axes: the axes that `anchor` and `shape` refer to, by number. Default: all but C.
      axis_names: the same axes, by their letters in the layout; takes precedence over `axes`.
      centered_anchor: Whether `anchor` is the centre of each region.
      fill_value: one number, or one per channel. For integer types the fraction is dropped, and values out of range
        wrap around, as in DALI. May be per sample.
      normalized: whether anchors and shapes are fractions of the extents.
      normalized_anchor, normalized_shape: like `normalized`, for the anchor or the shape only.
      shape: extents of the regions, in the same order as `anchor`. Default: no regions. May be per sample.

    Returns:
      A tensor of the same shape, layout and type.

    Raises:
      ValueError: wrong axes, or arguments that can't be combined. A sample whose anchors and shapes don't match fails
        when its batch is made.

    Example:
      >>> fn.erase(images, anchor=(0.25, 0.25), shape=(0.5, 0.5), normalized=True, fill_value=(123, 117, 104))
    """
    ...
