"""``fn.resize``: resampling of images, sequences and volumes."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, Unpack

import jax.numpy as jnp
import numpy as np

from ... import _cpu, types
from ..._core import ffi as _ffi
from ..._core.arguments import Values
from ..._core.context import BuildContext, HostContext, LowerContext
from ..._core.declaration import DType
from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._core.operator import Operator, Setup, StageOperator
from ..._core.operator_function import Hints, ImageTypeHints, Input, OneOrMore, PerSample, operator_function
from ..._core.ragged import Ragged
from ..._core.values import Spec, Value
from ..._cpu import ExtentRounding, ResizeMode, Status
from .._families.layouts import NO_LAYOUT, channels_missing, spec_of

LAYOUTS = ("HWC", "CHW", "FHWC", "FCHW", "CFHW", "DHWC", "CDHW", "FDHWC", "FCDHW", "CFDHW")
INPUT_TYPES = tuple(map(np.dtype, ("uint8", "int16", "uint16", "float16", "bfloat16", "float32")))
FLOATS = INPUT_TYPES[3:]  # types that results of any input may have
# The index of each is its number in the enumeration Convention of ffi/resize/resize.h.
CONVENTIONS = ("dali", "pillow", "tensorflow", "torchvision")
_FILTERS = {  # the filters of each convention
    "dali": [f for f in types.DALIInterpType if f != types.INTERP_AREA],
    "pillow": [f for f in types.DALIInterpType if f != types.INTERP_GAUSSIAN],
    "tensorflow": list(types.DALIInterpType),
    "torchvision": [
        types.INTERP_NN,
        types.INTERP_LINEAR,
        types.INTERP_CUBIC,
        types.INTERP_LANCZOS3,
        types.INTERP_TRIANGULAR,
    ],
}
_ROUNDINGS = {  # how each library rounds an extent of the result
    "dali": ExtentRounding.ROUND,
    "pillow": ExtentRounding.PYTHON,
    "tensorflow": ExtentRounding.EVEN,  # in single precision, as in its programs
    "torchvision": ExtentRounding.TORCHVISION,
    "timm": ExtentRounding.TIMM,
}
MAX_EXTENT = 1 << 24  # float32 holds positions of single pixels up to here


def plan(
    extents: np.ndarray,
    request: np.ndarray,
    *,
    roi: tuple[np.ndarray, np.ndarray] | None = None,
    roi_relative: bool = False,
    mode: str = "default",
    max_size: np.ndarray | None = None,
    subpixel_scale: bool = True,
    rounding: ExtentRounding = ExtentRounding.ROUND,
    alignment: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray, bool]:
    """Output extents and source intervals of a resize; all arrays are ``[N, axes]``.

    Args:
      extents: of the input.
      request: the requested extents of the output, which may be fractional. 0: not given; negative: mirrored.
      roi: first and last coordinate of the source region, mirrored where ``first > last``. None: the whole input.
      roi_relative: whether `roi` is in units of the extents.
      mode: as in `resize`.
      max_size: limits of the output; 0: none.
      subpixel_scale: whether to scale the source interval by the factor that rounding changes the output extent by.
      rounding: how an extent becomes a whole number.
      alignment: the point of the source interval, from its start (0) to its end (1), that `subpixel_scale` leaves in
        its place. None: 0.5.

    Returns:
      (``i64[N, axes]`` output extents, ``f32[N, axes, 2]`` source intervals, which are mirrored if the first number is
      larger, whether all are valid: numbers are finite, and extents at most `MAX_EXTENT`).
    """
    sizes, interval = np.empty(extents.shape, np.int64), np.empty((*extents.shape, 2), np.float32)
    first, last = (None, None) if roi is None else roi
    source, requested = (np.ascontiguousarray(x, np.float64) for x in (extents, request))
    first, last, limits, alignments = (
        None if x is None else np.ascontiguousarray(x, np.float64) for x in (first, last, max_size, alignment)
    )
    options = ResizeMode[mode.upper()], limits, subpixel_scale, rounding, alignments, MAX_EXTENT
    return sizes, interval, _cpu.plan_resize(source, requested, first, last, roi_relative, *options, sizes, interval)


def _layout(image: Spec) -> str:
    """The layout of an image; images and sequences without a layout are HWC and FHWC."""
    return image.layout or {3: "HWC", 4: "FHWC"}.get(image.ndim, "")


class Resampling(StageOperator):
    """Resampling of an interval along each spatial axis, the source interval, to the extent of the output."""

    kernel = "resize"
    layouts: ClassVar[tuple[str, ...]] = LAYOUTS
    antialias: bool  # whether filters become wider where an axis shrinks
    dtype: np.dtype | None  # of the output; None: the input's
    convention: str = "dali"  # the library whose pixels the kernel makes

    def takes_image(self, image: Spec) -> bool:
        return True

    def output(self, image: Spec) -> tuple[str, np.dtype]:
        """Layout and element type of the output. Raises ValueError or TypeError for images that are not supported."""
        layout = _layout(image)
        if layout not in self.layouts:
            actual = f"layout {layout!r}" if layout else f"{image.ndim}-D samples without a layout"
            advice = channels_missing(layout, self.layouts).removeprefix("; ") or (
                "fn.decoders.image makes images of files"
                if image.ndim == 1
                else NO_LAYOUT
                if not layout
                else "external_source takes a layout"
            )
            raise ValueError(
                f"the input must have one of the layouts {', '.join(self.layouts)}, got {actual}; {advice}"
            )
        if image.dtype not in INPUT_TYPES:
            raise TypeError(
                f"the input must be uint8, int16, uint16, float16, bfloat16 or float32, got {image.dtype}; fn.cast converts it"
            )
        dtype = image.dtype if self.dtype is None else self.dtype
        if dtype not in (image.dtype, *FLOATS):
            raise TypeError(f"dtype must be the input's ({image.dtype}), FLOAT, FLOAT16 or BFLOAT16, got {dtype}")
        if self.convention == "pillow" and (image.dtype not in (np.uint8, np.float32) or dtype != image.dtype):
            raise TypeError(
                f"with convention='pillow' the input must be uint8 or float32, and the output keeps the type, got {image.dtype} and {dtype}"
            )
        a = self.arguments(None, ())
        for name in FILTER_ARGUMENTS:
            if name in a and self.args.is_static(name):
                self._check_filters(a[name])
        return layout, dtype

    def _check_filters(self, numbers: Any):
        """Raises ArgumentError for filters that the convention does not have."""
        possible, without = _FILTERS[self.convention], ""
        if self.convention == "torchvision" and not self.antialias:
            possible, without = [f for f in possible if f != types.INTERP_LANCZOS3], " with antialias=False"
        for number in np.setdiff1d(numbers, [int(f) for f in possible]).tolist():
            names = ", ".join(f.name for f in possible)
            raise ArgumentError(
                f"convention={self.convention!r}{without} has the filters {names}, not {types.DALIInterpType(number).name}"
            )

    def resampled(self, image: Spec) -> tuple[int, int]:
        """The first of the resampled axes, which are neighbours, and their number."""
        return spatial_axes(_layout(image))

    def setup_of(self, ctx: HostContext, image: Value, a: Values, sizes: np.ndarray, interval: np.ndarray) -> Setup:
        """The outputs' shapes, unless the spec has them, and the kernel's parameters.

        Args:
          sizes: ``i64[N, axes]``, extents of the outputs, as `plan` returns them.
          interval: ``f32[N, axes, 2]``, the source intervals, as `plan` returns them.
        """
        first, count = self.resampled(image.spec)
        params = {"roi": interval.reshape(len(sizes), -1), "filters": self._filters(a)}
        if ctx.spec.shape is not None:
            return Setup((None,), params)
        shapes = image.shapes.astype(np.int64)
        shapes[:, first : first + count] = sizes
        return Setup((shapes,), params)

    def _filters(self, a: Values) -> np.ndarray:
        """The kernel's operand ``i32[N, 2]``: the filters for shrinking and for enlarging."""
        is_static = all(map(self.args.is_static, FILTER_ARGUMENTS))
        if is_static and a.samples in self._static_filters:
            return self._static_filters[a.samples]
        # `interp_type` counts where `min_filter` or `mag_filter` is not given.
        filters = np.empty((a.samples, 2), np.int32)
        for column, name in enumerate(("min_filter", "mag_filter")):
            filters[:, column] = a[name if name in a else "interp_type"]
        if is_static:
            self._static_filters[a.samples] = filters
        else:
            self._check_filters(filters)
        return filters

    @functools.cached_property
    def _static_filters(self) -> dict[int, np.ndarray]:
        """A cache of `_filters` by the number of samples, for arguments that are the same in every batch."""
        return {}

    def makes_windows(self, image: Spec, made: Spec) -> bool:
        """See `StageOperator.makes_windows`: the GPU's kernel for windows resizes rows and columns of images HWC of
        bytes.
        """
        return (
            image.ndim == 3
            and self.resampled(image) == (0, 2)
            and image.dtype == np.uint8
            and made.dtype in (np.uint8, np.float32)
        )

    def call(self, ctx: LowerContext) -> _ffi.KernelCall:
        first, count = self.resampled(ctx.inputs[0])
        attrs: dict[str, Any] = {"first_axis": first, "num_axes": count, "antialias": self.antialias}
        # Only the kernel `resample` of `ByConvention` has this attribute.
        if self.convention != "dali":
            attrs["convention"] = CONVENTIONS.index(self.convention)
        return _ffi.KernelCall((ctx.params["roi"], ctx.params["filters"]), attrs)


# Arguments that choose a filter.
FILTER_ARGUMENTS = ("interp_type", "min_filter", "mag_filter")
_ONE_OF = "exactly one of size, resize_x/resize_y/resize_z, resize_shorter and resize_longer must be given, got {}"


class Resize(Resampling):
    """Resizes to a given size."""

    name = "resize"
    sizeless: ClassVar[tuple[str, ...]] = FILTER_ARGUMENTS  # arguments that the output's size doesn't depend on
    mode: str | None  # None: the default
    subpixel_scale: bool | None  # None: True with the convention "dali"
    roi_relative: bool  # whether the region is in units of the extents
    save_attrs: bool  # whether the extents of the inputs are a second output
    size_convention: str | None = None  # the library whose rounding the output's size has; None: that of `convention`

    def __post_init__(self):
        """Raises ArgumentError for arguments that exclude each other."""
        # The ways to give a size; resize_x, resize_y and resize_z together are one.
        ways = [name for name in ("size", "resize_shorter", "resize_longer") if name in self.args]
        xyz = [name for name in ("resize_x", "resize_y", "resize_z") if name in self.args]
        ways += ["/".join(xyz)] if xyz else []
        if len(ways) > 1:
            raise ArgumentError(_ONE_OF.format(", ".join(ways)))
        if self.mode is not None and ways and ways[0] in ("resize_shorter", "resize_longer"):
            raise ArgumentError(f"{ways[0]} implies a mode, got mode={self.mode!r} as well")
        if ("roi_start" in self.args) != ("roi_end" in self.args):
            raise ArgumentError("roi_start and roi_end must be given together")

    def bind(self, ctx: BuildContext, *specs: Spec) -> Operator:
        return self if self.convention == "dali" else self.as_kind(ByConvention)

    @property
    def num_outputs(self) -> int:
        return 2 if self.save_attrs else 1

    def infer(self, image: Spec, *arguments: Spec) -> tuple[Spec, ...]:
        """The resized images, and with `save_attrs` the extents of the inputs as a second output."""
        layout, dtype = self.output(image)
        first, count = spatial_axes(layout)
        if count < 3 and "resize_z" in self.args:
            raise ValueError(f"resize_z needs a layout with a depth axis, got {layout!r}")
        advice = (
            ""
            if image.layout
            else f'; the input has no layout, so {layout} is assumed: fn.reshape(x, layout="...") gives it another'
        )
        for name in ("size", "max_size", "roi_start", "roi_end"):
            self.args.check_width(name, count, arguments, one_for_all=True, why=advice)
        sizes = self.static_sizes(layout, [image.extent(first + a) for a in range(count)])
        dims = [image.extent(i) for i in range(image.ndim)]
        dims[first : first + count] = sizes
        outputs = (spec_of(dtype, dims, layout),)
        return (*outputs, Spec(np.dtype(np.int32), 1, (count,))) if self.save_attrs else outputs

    def static_sizes(self, layout: str, extents: Sequence[int | None]) -> Sequence[int | None]:
        """The output extents if they are the same for every sample; otherwise None for each axis."""
        count = len(extents)
        if set(self.args.inputs) - set(self.sizeless):
            return [None] * count
        request, mode, roi, _ = self._arguments(self.arguments(None, ()), count)
        if not (np.abs(request) <= MAX_EXTENT).all():
            raise ValueError(f"sizes must be finite and at most {MAX_EXTENT}, got {request[0].tolist()}")
        # The sizes depend on the extents of the input, unless a region in pixels or all sizes are given.
        is_known = all(n is not None for n in extents)
        is_known |= roi is not None and not self.roi_relative
        is_known |= mode in ("default", "stretch") and bool((request != 0).all())
        if not is_known:
            return [None] * count
        # An extent that is not known, and not needed, counts as 1.
        one_sample = np.array([[1 if n is None else n for n in extents]])
        _, sizes, _, _ = self._planned(one_sample, self.arguments(None, ()))
        return sizes[0].tolist()

    def _planned(self, extents: np.ndarray, a: Values) -> tuple[np.ndarray, np.ndarray, np.ndarray, bool]:
        """The requested extents, and the results of `plan`: the outputs' extents, the source intervals, and whether all
        are valid.
        """
        request, mode, roi, limit = self._arguments(a, extents.shape[1])
        subpixel = self.convention == "dali" if self.subpixel_scale is None else self.subpixel_scale
        rounding = _ROUNDINGS[self.size_convention or self.convention]
        options: dict[str, Any] = {"mode": mode, "max_size": limit, "subpixel_scale": subpixel, "rounding": rounding}
        return request, *plan(extents, request, roi=roi, roi_relative=self.roi_relative, **options)

    def _arguments(self, a: Values, count: int):
        """The arguments of `plan`: request, mode, region and limit. All but the mode are ``[N, count]``."""
        mode, request = self.mode or "default", a.vector("size", count, one_for_all=True)
        for name, implied_mode in (("resize_shorter", "not_smaller"), ("resize_longer", "not_larger")):
            if name in a:
                mode, request = implied_mode, a.vector(name, count, one_for_all=True)
        if request is None:
            # In the order of the axes: (z,) y, x.
            sizes_by_axis = [a.get(f"resize_{axis}") for axis in "zyx"[3 - count :]]
            # Not checked when the operator is made: as in DALI, an operator whose result is unused does not fail.
            if all(x is None for x in sizes_by_axis):
                raise ArgumentError(_ONE_OF.format("none"))
            unset = np.zeros(next(len(x) for x in sizes_by_axis if x is not None))
            request = np.column_stack([unset if x is None else x for x in sizes_by_axis])
        start, end = (a.vector(name, count, one_for_all=True) for name in ("roi_start", "roi_end"))
        roi = None if start is None or end is None else (start, end)
        return request, mode, roi, a.vector("max_size", count, one_for_all=True)

    def sizes_of(self, ctx: HostContext, extents: np.ndarray, arguments: Sequence[Value]) -> np.ndarray | None:
        """Extents of the results, ``i64[N, axes]``, for images of these extents.

        Args:
          arguments: the inputs that are arguments; empty: they are not known.

        Returns:
          The extents; None if regions are resized, or if the arguments are not known.
        """
        if "roi_start" in self.args or (self.args.inputs and not arguments):
            return None
        _, sizes, _, _ = self._planned(extents, self.arguments(ctx, arguments))
        return sizes

    def output_windows(
        self, ctx: HostContext, a: Values, sizes: np.ndarray, interval: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Extents and source intervals of the windows of the resized images that are the results: here all of them."""
        return sizes, interval

    def setup(self, ctx: HostContext, image: Value, *values: Value) -> Setup:
        """Plans the resizing of each sample. A sample whose output would be too large, or not finite, fails."""
        first, count = spatial_axes(ctx.spec.layout)
        a = self.arguments(ctx, values)
        extents = image.shapes[:, first : first + count]
        request, sizes, interval, all_valid = self._planned(extents, a)
        if not all_valid:
            is_valid = np.isfinite(request) & np.isfinite(interval).all(axis=2) & (sizes <= MAX_EXTENT)
            for i in np.flatnonzero(~is_valid.all(axis=1) & ctx.present):
                message = (
                    f"an output of size {request[i].tolist()} can't be made of an input of size "
                    f"{extents[i].tolist()}; at most {MAX_EXTENT}"
                )
                ctx.fail(int(i), Status.TOO_LARGE, message)
            sizes = np.where(is_valid.all(axis=1, keepdims=True), sizes, 1)
        setup = self.setup_of(ctx, image, a, *self.output_windows(ctx, a, sizes, interval))
        # The second output of `save_attrs` has a static shape.
        return dataclasses.replace(setup, shapes=(*setup.shapes, None)) if self.save_attrs else setup

    def lower(self, ctx: LowerContext, image: Any, *arguments: Any) -> Any:
        """Resizes, and with `save_attrs` also returns the spatial extents of the inputs, ``i32[B, axes]``."""
        outputs, status = super().lower(ctx, image)
        if not self.save_attrs:
            return outputs, status
        first, count = spatial_axes(ctx.spec.layout)
        if isinstance(image, Ragged):
            extents = image.shapes[:, first : first + count]
        else:
            extents = jnp.broadcast_to(
                jnp.asarray(image.shape[1 + first : 1 + first + count], jnp.int32), (ctx.B, count)
            )
        return (*outputs, extents), status


class ByConvention(Resize):
    """A resize with the pixels of another library."""

    kernel = "resample"


@functools.lru_cache
def spatial_axes(layout: str) -> tuple[int, int]:
    """The first spatial axis of one of `LAYOUTS`, and the number of spatial axes."""
    count = sum(axis in "DHW" for axis in layout)
    return min(layout.index(axis) for axis in "DHW" if axis in layout), count


class ResizeHints(Hints, total=False):
    """Hints of `resize` that only DALI uses."""

    minibatch_size: int | None
    temp_buffer_hint: int | None


class ImageResizeHints(ResizeHints, ImageTypeHints, total=False):
    """Hints of `resize`, and the `image_type`."""


@operator_function(Resize)
def resize(
    input: Input,
    /,
    *,
    antialias: bool = True,
    convention: Literal["dali", "pillow", "tensorflow", "torchvision"] = "dali",
    device: Literal["cpu", "gpu"] | None = None,
    dtype: DType | None = None,
    interp_type: PerSample[types.DALIInterpType] = types.INTERP_LINEAR,
    mag_filter: PerSample[types.DALIInterpType] | None = None,
    max_size: PerSample[OneOrMore[float]] | None = None,
    min_filter: PerSample[types.DALIInterpType] | None = None,
    mode: Literal["default", "stretch", "not_larger", "not_smaller"] | None = None,
    name: str | None = None,
    resize_longer: PerSample[float] | None = None,
    resize_shorter: PerSample[float] | None = None,
    resize_x: PerSample[float] | None = None,
    resize_y: PerSample[float] | None = None,
    resize_z: PerSample[float] | None = None,
    roi_end: PerSample[OneOrMore[float]] | None = None,
    roi_relative: bool = False,
    roi_start: PerSample[OneOrMore[float]] | None = None,
    save_attrs: bool = False,
    size: PerSample[OneOrMore[float]] | None = None,
    size_convention: Literal["dali", "pillow", "tensorflow", "torchvision", "timm"] | None = None,
    subpixel_scale: bool | None = None,
    **hints: Unpack[ImageResizeHints],
) -> DataNode:
    """Resizes images, sequences of images or volumes.

    The size is given by exactly one of: `size`; `resize_x`, `resize_y`, `resize_z` (any of them); `resize_shorter`;
    `resize_longer`. Arguments marked * may be DataNodes with a value per sample. Sizes may be fractional: the output
    extent is rounded, and `subpixel_scale` keeps the scale exact. A negative size mirrors the axis.

    `convention` (not in DALI) makes the pixels those of another library, for models that were trained with it:

    * "dali": taps outside the image repeat its edge, and filters are read from tables.
    * "pillow": the pixels of `PIL.Image.resize`, to the bit. Taps outside the image are left out, and uint8 is rounded
      after each axis, in the order of Pillow 13 (earlier versions also begin with the horizontal axis where the height
      shrinks by more than twice as many pixels as the width, and then differ by one level). Images are uint8 or float32
      and keep their type; channels are independent, where Pillow first multiplies RGBA by its alpha. `INTERP_AREA` is
      Pillow's BOX, and there is no `INTERP_GAUSSIAN`. Pillow always has antialias=True.
    * "tensorflow": the pixels of `tf.image.resize` and, with antialias=True, of `jax.image.resize`, within 0.01 of 255
      levels as FLOAT. Taps outside the image are left out. `INTERP_AREA` is the method "area". TensorFlow's default is
      antialias=False.
    * "torchvision": the pixels of `torchvision.transforms.v2.functional.resize` of tensors on CPUs, uint8 to the bit
      where its kernel has AVX2 (others may differ by one level), floats within 0.02 of 255 levels. The filters are
      `INTERP_LINEAR`, `INTERP_CUBIC`, `INTERP_LANCZOS3` (with antialias=True) and `INTERP_NN`, which is its "nearest",
      not "nearest-exact". Of PIL images torchvision makes the pixels of "pillow".

    Except for "dali", images are resized on the CPU also where there is a GPU.

    `size_convention` (not in DALI) says how extents become whole numbers where all axes have one scale, as with
    `resize_shorter` and `resize_longer`. These are the formulas for a shorter side of `size`; other fractional sizes
    are rounded half to even, with "dali" halves up.

    * "dali": ``scale * extent``, in single precision, halves up.
    * "pillow": ``round(extent * scale)`` in double precision, as Python programs that call Pillow do, such as ADM's.
    * "tensorflow": the same in single precision.
    * "torchvision": ``int(size * longer / shorter)``, as `Resize` of torchvision does, also for PIL images; where
      `max_size` is smaller, both sides are scaled and truncated once more.
    * "timm": ``round(extent / (shorter / size))``, as `ResizeKeepRatio` of timm does.

    Differs from DALI: `INTERP_NN` may take the other of two neighbours where a point lies on their border along the
    depth; errors are `resize_z` on images without depth, and empty inputs where `size` gives all samples one shape; a
    region may lie outside the image, whose outermost pixels are repeated there (with `INTERP_NN` DALI reads what stands
    behind the image in memory, where a region reaches beyond its right end); `INTERP_NN` along one axis and another
    filter along the other also work with regions and mirroring.

    Args:
      input: uint8, int16, uint16, float32 or (not in DALI) float16, bfloat16, with layout HWC, CHW, FHWC, FCHW, CFHW,
        DHWC, CDHW, FDHWC, FCDHW or CFDHW; without a layout, 3-D samples are HWC and 4-D ones FHWC.
      antialias: whether the filter is widened when an axis shrinks. `INTERP_NN` never is. `INTERP_TRIANGULAR` is
        `INTERP_LINEAR`.
      convention: the library whose pixels the result has: "dali", "pillow", "tensorflow" or "torchvision".
      dtype: of the output, the input's (default), FLOAT, or (not in DALI) FLOAT16 or BFLOAT16. Integers are rounded
        half to even, and saturated. Differs from DALI: it rounds half away from zero in the last pixels of a row that
        fill no vector.
      interp_type: * filter, one of `types.DALIInterpType`. `INTERP_AREA` (not in DALI) is the mean of what an output
        pixel covers, with the conventions that have it.
      mag_filter: * filter of the axes that don't shrink; default `interp_type`.
      max_size: * limit of the output extents, one number or one per axis; 0: none.
      min_filter: * filter of the axes that shrink; default `interp_type`.
      mode: what becomes of the axes without a size, and of the aspect ratio. "default": they get the (geometric) mean
        scale of the others; "stretch": they keep their extent; "not_larger", "not_smaller": all axes get the smallest
        (largest) scale asked for. Not together with `resize_shorter` and `resize_longer`.
      resize_longer: * extent of the longer axis; the aspect ratio is kept, as with mode "not_larger".
      resize_shorter: * extent of the shorter axis, as with mode "not_smaller"; see `max_size`.
      resize_x: * width; 0: unset.
      resize_y: * height; 0: unset.
      resize_z: * depth; 0: unset.
      roi_end: * end of the source region, one number per axis in the layout's order (y before x). Filters still read
        pixels outside of it.
      roi_relative: whether the region is in units of the input's extents.
      roi_start: * start of the source region; larger than `roi_end`: mirrored.
      save_attrs: whether to return the input's spatial extents, too, int32, 1-D.
      size: * extents, one number for all axes or one per axis in the layout's order; 0: unset.
      size_convention: the library whose extents the result has, as above. Default: `convention`.
      subpixel_scale: scale the source region about its centre by rounded / requested extent, so that rounding the
        extent does not change the scale. Default: True with convention="dali", otherwise False, as in those libraries.

    Returns:
      A DataNode with the input's layout; with `save_attrs`, a list of it and the extents. The shape is static when it
      is the same for every sample, e.g. with a constant `size` and a known number of channels.

    Raises:
      ValueError, TypeError: contradictory or malformed arguments; an input type or layout that is not supported.

    Example:
      >>> images = fn.resize(images, resize_shorter=256, interp_type=types.INTERP_CUBIC)
    """
    ...
