"""tensor_resize: resampling of any axes of tensors."""

from __future__ import annotations

from typing import Literal, Unpack

import numpy as np

from ... import types
from ..._core.arguments import Values
from ..._core.context import HostContext
from ..._core.declaration import DType
from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._core.operator import Setup
from ..._core.operator_function import Input, OneOrMore, PerSample, operator_function
from ..._core.values import Spec, Value
from ..._cpu import ExtentRounding, Status
from .._families import spec_of
from .._families.cropping import axes_of
from .resize import FILTER_ARGUMENTS, FLOATS, INPUT_TYPES, MAX_EXTENT, Resampling, ResizeHints, plan


class TensorResize(Resampling):
    """Resizes given axes, by sizes or scales."""

    name = "tensor_resize"
    axes: tuple[int, ...] | int | None  # None: those of `axis_names`, or all
    axis_names: str | None
    mode: str | None
    size_rounding: str  # how extents are rounded: "round", "truncate" or "ceil"
    subpixel_scale: bool
    roi_relative: bool

    def __post_init__(self):
        """Raises ArgumentError for arguments that exclude each other."""
        if ("sizes" in self.args) == ("scales" in self.args):
            raise ArgumentError("give either sizes or scales")
        if ("roi_start" in self.args) != ("roi_end" in self.args):
            raise ArgumentError("roi_start and roi_end must be given together")
        if self.axes is not None and self.axis_names is not None:
            raise ArgumentError("give either axes or axis_names, not both")
        if "scales" in self.args and self.mode in ("not_larger", "not_smaller"):
            raise ArgumentError(f"mode {self.mode!r} needs sizes, not scales")

    def _axes(self, image: Spec) -> list[int]:
        """The axes that the arguments refer to, in their order."""
        axes = None if self.axes is None else np.atleast_1d(self.axes).tolist()
        return axes_of(image.layout, image.ndim, self.axis_names, axes)

    def _is_unchanged(self, image: Spec, k: int, axis: int) -> bool:
        """Whether the axis, the `k`-th in the arguments, is known to keep its extent."""
        name = "scales" if "scales" in self.args else "sizes"
        if "roi_start" in self.args or not self.args.is_static(name):
            return False
        value = np.broadcast_to(np.asarray(self.args.get(name), np.float64).reshape(-1), len(self._axes(image)))[k]
        # A size of 0 is not given: the mode "stretch" keeps the extent.
        return (
            value == 1 if name == "scales" else value == image.extent(axis) or (value == 0 and self.mode == "stretch")
        )

    @property
    def _may_blur(self) -> bool:
        """Whether a filter is GAUSSIAN, or comes per sample."""
        names = [name for name in FILTER_ARGUMENTS if name in self.args]
        return any(not self.args.is_static(n) or self.args.get(n) == types.INTERP_GAUSSIAN for n in names)

    def resampled(self, image: Spec) -> tuple[int, int]:
        """The range of axes from the first to the last one that changes, as (first axis, number of axes). The modes
        "not_larger" and "not_smaller" give all axes one scale, also those that are not listed.
        """
        axes = range(image.ndim)
        if self.mode not in ("not_larger", "not_smaller"):
            # The kernel needs an axis, even if none changes.
            axes = [d for k, d in enumerate(self._axes(image)) if not self._is_unchanged(image, k, d)]
            axes = axes or [image.ndim - 1]
        first, count = min(axes), max(axes) - min(axes) + 1
        # DALI filters two axes at least, the next one too, or else the one before. GAUSSIAN alone changes an axis that
        # keeps its extent.
        if count == 1 and image.ndim > 1 and self._may_blur:
            first, count = min(first, image.ndim - 2), 2
        if count > 3:
            raise ArgumentError(
                f"at most 3 axes that are neighbours can be resized at once, got {first} ... {first + count - 1}; "
                "name them with axes, or give others a scale of 1"
            )
        return first, count

    def takes_image(self, image: Spec) -> bool:
        return self.axes is None

    def infer(self, image: Spec, *arguments: Spec) -> tuple[Spec, ...]:
        """The input with the resized extents, which are known if the input's are, and no argument comes per sample."""
        dtype = self.dtype or image.dtype
        if image.dtype not in INPUT_TYPES or dtype not in (image.dtype, *FLOATS):
            raise TypeError(
                "the input must be uint8, int16, uint16, float16, bfloat16 or float32, the output the same, FLOAT, FLOAT16 or BFLOAT16; "
                f"got {image.dtype} to {dtype}"
            )
        if image.ndim < 1:
            raise ValueError("the input must have axes, got 0-D data")
        for name in ("sizes", "scales", "roi_start", "roi_end", "max_size", "alignment"):
            self.args.check_width(name, len(self._axes(image)), arguments, one_for_all=True)
        first, count = self.resampled(image)
        extents = [image.extent(d) for d in range(image.ndim)]
        if self.args.inputs or None in extents:
            extents[first : first + count] = [None] * count
        else:
            # All samples have the same extents: they are computed for one.
            sizes, _, _ = self._planned(np.array([extents]), image, self.arguments(None, ()))
            extents = sizes[0].tolist()
        return (spec_of(dtype, extents, image.layout),)

    def _planned(self, extents: np.ndarray, image: Spec, a: Values) -> tuple[np.ndarray, np.ndarray, bool]:
        """The results of `plan` for all axes: the outputs' extents, the source intervals, and whether all are valid.
        Axes that are not listed keep their extent.
        """
        axes = self._axes(image)

        def for_all_axes(name: str, default: np.ndarray | float) -> np.ndarray | None:
            """An argument ``[N, ndim]``, with the default for axes that are not listed; None if it is not given."""
            x = a.vector(name, len(axes), one_for_all=True)
            if x is None:
                return None
            values = np.broadcast_to(np.asarray(default, np.float64), extents.shape).copy()
            values[:, axes] = x
            return values

        sizes, scales, start = (
            for_all_axes("sizes", extents),
            for_all_axes("scales", 1.0),
            for_all_axes("roi_start", 0.0),
        )
        end = for_all_axes("roi_end", 1.0 if self.roi_relative else extents)
        request = sizes if scales is None else scales.astype(np.float32) * extents.astype(np.float32)
        assert request is not None
        return plan(
            extents,
            request.astype(np.float64),
            roi=None if start is None or end is None else (start, end),
            roi_relative=self.roi_relative,
            mode=self.mode or "default",
            max_size=for_all_axes("max_size", 0.0),
            subpixel_scale=self.subpixel_scale,
            rounding=ExtentRounding[self.size_rounding.upper()],
            alignment=for_all_axes("alignment", 0.5),
        )

    def setup(self, ctx: HostContext, image: Value, *values: Value) -> Setup:
        """Plans the resizing of each sample. A sample whose output would be too large, or not finite, fails."""
        first, count = self.resampled(image.spec)
        a = self.arguments(ctx, values)
        sizes, interval, all_valid = self._planned(image.shapes, image.spec, a)
        if not all_valid:
            is_invalid = ~np.isfinite(interval).all(axis=(1, 2)) | np.any(sizes > MAX_EXTENT, axis=1)
            for i in np.flatnonzero(is_invalid & ctx.present):
                reason = (
                    f"an output of shape {sizes[i].tolist()} can't be made of one of shape {image.shapes[i].tolist()}"
                )
                ctx.fail(int(i), Status.TOO_LARGE, f"{reason}; at most {MAX_EXTENT}")
            sizes = np.where(is_invalid[:, None], 1, sizes)
        # The kernel gets the numbers of the resampled axes only.
        return self.setup_of(ctx, image, a, sizes[:, first : first + count], interval[:, first : first + count])


@operator_function(TensorResize)
def tensor_resize(
    input: Input,
    /,
    *,
    alignment: PerSample[OneOrMore[float]] = 0.5,
    antialias: bool = True,
    axes: OneOrMore[int] | None = None,
    axis_names: str | None = None,
    dtype: DType | None = None,
    interp_type: PerSample[types.DALIInterpType] = types.INTERP_LINEAR,
    mag_filter: PerSample[types.DALIInterpType] | None = None,
    max_size: PerSample[OneOrMore[float]] | None = None,
    min_filter: PerSample[types.DALIInterpType] | None = None,
    mode: Literal["default", "stretch", "not_larger", "not_smaller"] | None = None,
    roi_end: PerSample[OneOrMore[float]] | None = None,
    roi_relative: bool = False,
    roi_start: PerSample[OneOrMore[float]] | None = None,
    scales: PerSample[OneOrMore[float]] | None = None,
    size_rounding: Literal["round", "truncate", "ceil"] = "round",
    sizes: PerSample[OneOrMore[float]] | None = None,
    subpixel_scale: bool = True,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[ResizeHints],
) -> DataNode:
    """Resizes tensors of any rank and layout along any axes, channels included.

    At most three adjacent axes can change at once. This is decided when the pipeline is built, from `axes`, scales of 1
    and sizes that equal the input's; DALI may also decide it with each batch. `alignment` refers to the axes in `axes`;
    DALI mixes up its order when only some axes are given. `INTERP_GAUSSIAN` blurs at least two axes, as in DALI: where
    one changes, its neighbour, too.

    Args:
      input: uint8, int16, uint16, float32 or (not in DALI) float16, bfloat16.
      alignment: the point of the region, from its start (0) to its end (1), that keeps its position when an extent is
        rounded; one number or one per axis. May be per sample.
      antialias, dtype, interp_type, mag_filter, min_filter: as in `resize`.
      axes: the axes that the arguments refer to, by number. Default: all.
      axis_names: the same axes, by their letters in the layout.
      max_size: limits of the output extents, one number or one per axis; 0 sets no limit. May be per sample.
      mode: as in `resize`; "not_larger" and "not_smaller" work with `sizes` only. Axes that are not listed count with
        their own extent.
      roi_start, roi_end, roi_relative: the source region, as in `resize`, along the listed axes.
      scales: output extents in units of the input's, one number or one per axis; negative: mirrored. May be per sample.
      size_rounding: how extents are rounded to whole numbers: "round" (halves up), "truncate" or "ceil".
      sizes: output extents, one number or one per axis; 0: unset; negative: mirrored. May be per sample.
      subpixel_scale: as in `resize`.

    Returns:
      A tensor of the input's layout.

    Raises:
      ValueError, TypeError: none or both of `sizes` and `scales`; wrong or too many axes; an unsupported element type.
        A sample whose result would be too large fails when its batch is made.

    Example:
      >>> fn.tensor_resize(masks, scales=(0.5, 0.5), axis_names="HW", interp_type=types.INTERP_NN)
    """
    ...
