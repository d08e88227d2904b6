"""Families of operators: each is one native kernel, or one function of arrays, and needs of an operator its parameters alone."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Sequence
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np

from .. import types
from .._core import ffi as _ffi
from .._core.arguments import Values
from .._core.context import HostContext, LowerContext
from .._core.operator import NativeOperator, Setup
from .._core.values import Spec, Value
from ._elementwise import Elementwise as Elementwise
from ._elementwise import samples_of_blocks as samples_of_blocks
from ._tensor.cast import convert

DEFAULT_LAYOUTS = {3: "HWC", 4: "FHWC", 5: "FDHWC"}
SPATIAL = "DHW"
UNSUPPORTED, OUT_OF_BOUNDS, TOO_LARGE = 4, 7, 8  # ffi/common/status.h


def image_layout(spec: Spec, among: Sequence[str] = ()) -> str:
    """The layout of an image, sequence or volume; without one it counts as HWC, FHWC or FDHWC, by its rank.

    Args:
      among: the layouts that are taken; none: any with an axis H or W.

    Raises:
      ValueError: it is another.
    """
    layout = spec.layout or DEFAULT_LAYOUTS.get(spec.ndim, "")
    if layout in among or (not among and set(layout) & set("HW")):
        return layout
    got = f"layout {spec.layout!r}" if spec.layout else f"{spec.ndim}-D data without a layout"
    known = f"layout {', '.join(among)}" if among else "a layout with the axes H and W"
    raise ValueError(f"the input must have {known} or none (3-D: HWC, 4-D: FHWC, 5-D: FDHWC), got {got}")


def spec_of(dtype: np.dtype, extents: Sequence[int | None], layout: str) -> Spec:
    """The spec of an output of which some extents are known (None: not)."""
    known = tuple(n for n in extents if n is not None)
    shape, dims = (known, None) if len(known) == len(extents) else (None, tuple(extents))
    return Spec(dtype, len(extents), shape, layout, dims)


# --- windows ------------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Part:
    """Which part of each sample a `Window` takes, and what becomes of its elements.

    Attributes:
      start, step, extent: ``i64[N, ndim]`` by axis of the input: first index, to the next, how many.
      fill: ``[N, channels]``, of indices outside the input; None: these are an error of their sample.
      scale, offset: ``[N, channels]``; elements are ``scale * x + offset``.
    """

    start: np.ndarray
    step: np.ndarray
    extent: np.ndarray
    fill: np.ndarray | None = None
    scale: np.ndarray | None = None
    offset: np.ndarray | None = None

    @staticmethod
    def whole(shapes: np.ndarray) -> Part:
        """Everything."""
        return Part(np.zeros_like(shapes), np.ones_like(shapes), shapes.copy())

    def flip(self, axis: int, which: np.ndarray):
        """Mirrors an axis of some samples, ``bool[N]``."""
        last = self.start[:, axis] + (self.extent[:, axis] - 1) * self.step[:, axis]
        self.start[:, axis] = np.where(which, last, self.start[:, axis])
        self.step[:, axis] = np.where(which, -self.step[:, axis], self.step[:, axis])


class Window(NativeOperator):
    """A strided window of each sample, with fill, scale and offset by channel; the output's layout may permute the input's."""

    kernel = "window"

    def part(self, ctx: HostContext, image: Value, a: Values) -> Part:
        """What is taken of each sample."""
        raise NotImplementedError(self.name)

    def layout(self, image: Spec) -> str:
        """The input's layout, where it has one or may do without."""
        return image_layout(image)

    def setup(self, ctx: HostContext, *values: Value) -> Setup:
        return self.setup_of(ctx, values[0], self.part(ctx, values[0], self.arguments(ctx, values)))

    def setup_of(self, ctx: HostContext, image: Value, part: Part) -> Setup:
        """What `setup` returns."""
        params = {n: getattr(part, n).astype(np.int32) for n in ("start", "step", "extent")}
        params |= {n: x.astype(np.float32) for n in ("fill", "scale", "offset") if (x := getattr(part, n)) is not None}
        return Setup((None if ctx.spec.shape is not None else self.shapes(image.spec, ctx.spec, part),), params)

    def shapes(self, image: Spec, out: Spec, part: Part) -> np.ndarray:
        """Shapes of the output, ``i64[N, ndim]``."""
        return part.extent[:, self._permutation(image, out)]

    def lower(self, ctx: LowerContext, *arrays: Any) -> Any:
        layout = self.layout(ctx.inputs[0])
        y, status = call_window(
            ctx, arrays[0], **ctx.params, permutation=self._permutation(ctx.inputs[0], ctx.spec), channel=layout.find("C")
        )
        return (y,), status

    def _permutation(self, image: Spec, out: Spec) -> list[int]:
        layout = self.layout(image)
        return [layout.index(letter) for letter in out.layout] if out.layout and layout else list(range(image.ndim))


def call_window(
    ctx: LowerContext,
    x: Any,
    start: Any,
    step: Any,
    extent: Any,
    *,
    fill: Any = None,
    scale: Any = None,
    offset: Any = None,
    permutation: Sequence[int] = (),
    channel: int = -1,
) -> tuple[Any, Any]:
    """A strided window of each sample, see ffi/window/window.h.

    Args:
      start, step, extent: ``i32[B, ndim]`` by axis of the input.
      fill, scale, offset: ``f32[B, channels]``, see `Part`.
      permutation: for each axis of the output the input's. Default: as they are.
      channel: the input's axis along which fill, scale and offset vary; -1: they don't.

    Returns:
      (output, status).
    """
    none = jnp.zeros((ctx.B, 0), jnp.float32)
    operands = (none if p is None else p for p in (fill, scale, offset))
    axes = tuple(permutation) or tuple(range(start.shape[1]))
    return _ffi.call("window", ctx, x, ctx.spec, ctx.out[0], start, step, extent, *operands, permutation=axes, channel=channel)


# --- colours ------------------------------------------------------------------------------------------------------


class ColorMatrix(NativeOperator):
    """A linear map of the channels of each pixel, with an offset."""

    kernel = "color"
    colors: ClassVar[int] = 3  # channels it is a map of; 1: of each element, in data of any layout
    dtype: np.dtype | None

    def matrix(self, ctx: HostContext, image: Spec, a: Values) -> np.ndarray:
        """``f64[N, channels of the output, of the input + 1]``."""
        raise NotImplementedError(self.name)

    def infer(self, image: Spec, *arguments: Spec) -> tuple[Spec, ...]:
        dtype = self.dtype or image.dtype
        if image.dtype.itemsize > 4 or dtype.itemsize > 4 or image.dtype.kind == "b":
            raise ValueError(
                f"the input must be of an integer or float type of at most 32 bits, and the output; got {image.dtype} to {dtype}"
            )
        if self.colors == 1:
            return (dataclasses.replace(image, dtype=dtype),)
        return self.pixels(image, dtype)

    def pixels(self, image: Spec, dtype: np.dtype) -> tuple[Spec, ...]:
        """The image in another element type, with its layout. Raises ValueError for another number of channels."""
        layout = image_layout(image, ("HWC", "FHWC", "DHWC", "FDHWC"))
        if image.extent(image.ndim - 1) not in (None, self.colors):
            raise ValueError(f"the input must have {self.colors} channels, got {image.extent(image.ndim - 1)}")
        return (dataclasses.replace(image, dtype=dtype, layout=layout),)

    def setup(self, ctx: HostContext, *values: Value) -> Setup:
        image = values[0]
        if self.colors > 1:
            for i in np.flatnonzero((image.shapes[:, -1] != self.colors) & ctx.present):
                ctx.fail(int(i), UNSUPPORTED, f"the input must have {self.colors} channels, got {image.shapes[i, -1]}")
        matrix = self.matrix(ctx, image.spec, self.arguments(ctx, values)).astype(np.float32)
        return Setup((None if ctx.spec.shape is not None else image.shapes,), {"matrix": matrix})

    def lower(self, ctx: LowerContext, *arrays: Any) -> Any:
        y, status = _ffi.call("color", ctx, arrays[0], ctx.spec, ctx.out[0], ctx.params["matrix"])
        return (y,), status


# --- filters ------------------------------------------------------------------------------------------------------


class Separable(NativeOperator):
    """A window along each spatial axis; at borders the image is mirrored about the centre of its outermost pixel."""

    kernel = "filter"
    dtype: np.dtype | None

    def windows(self, ctx: HostContext, axes: int, a: Values) -> tuple[np.ndarray, np.ndarray]:
        """Weights ``f64[N, axes, most]`` and how many of them are used, ``i64[N, axes]``."""
        raise NotImplementedError(self.name)

    def axes(self, image: Spec) -> tuple[int, int]:
        """The first spatial axis, and how many there are."""
        layout = image.layout or SPATIAL[-image.ndim :]  # without a layout all axes are spatial, as in DALI
        spatial = [d for d, letter in enumerate(layout) if letter in SPATIAL]
        if not 0 < image.ndim == len(layout) or not spatial or spatial != list(range(spatial[0], spatial[0] + len(spatial))):
            raise ValueError(
                f"the input must have spatial axes, D, H or W, that are neighbours; got {image.ndim}-D data of layout {layout!r}"
            )
        return spatial[0], len(spatial)

    def infer(self, image: Spec, *arguments: Spec) -> tuple[Spec, ...]:
        self.axes(image)
        dtype = self.dtype or image.dtype
        if dtype not in (image.dtype, np.dtype(np.float32)) or image.dtype.itemsize > 4:
            raise ValueError(f"the output must be of the input's type or FLOAT, and neither of 64 bits; got {image.dtype} to {dtype}")
        return (dataclasses.replace(image, dtype=dtype),)

    def setup(self, ctx: HostContext, *values: Value) -> Setup:
        weights, taps = self.windows(ctx, self.axes(values[0].spec)[1], self.arguments(ctx, values))
        room = 1 << int(weights.shape[-1] - 1).bit_length()  # few programs are compiled
        weights = np.pad(weights, (*((0, 0),) * (weights.ndim - 1), (0, room - weights.shape[-1])))
        params = {"weights": weights.astype(np.float32), "taps": taps.astype(np.int32)}
        return Setup((None if ctx.spec.shape is not None else values[0].shapes,), params)

    def lower(self, ctx: LowerContext, *arrays: Any) -> Any:
        y, status = self.filtered(ctx, arrays[0], ctx.spec, **ctx.params)
        return (y,), status

    def filtered(self, ctx: LowerContext, x: Any, spec: Spec, weights: Any, taps: Any) -> tuple[Any, Any]:
        """A batch filtered, by windows as `setup` gives them; `spec` is that of the result."""
        first, axes = self.axes(ctx.inputs[0])
        out = ctx.out[0]
        elements = out.capacity if out is not None else ctx.B * int(np.prod(spec.shape or ()))
        scratch = 4 * elements * (axes - 1)  # the CPU kernel leaves it untouched
        return _ffi.call("filter", ctx, x, spec, out, weights, taps, scratch=scratch, first=first, axes=axes)


# --- windows around elements --------------------------------------------------------------------------------------


SUM, MEDIAN, MAX, MIN = range(4)  # ffi/stencil/stencil.h
CONSTANT, REFLECT, MIRROR, WRAP, REPLICATE = range(5)  # ffi/common/border.h


@dataclasses.dataclass
class Around:
    """Which window around each element a `Stencil` reduces.

    Attributes:
      window: ``i64[N, axes]``, extents.
      anchor: ``i64[N, axes]``, which of its elements is at the element of the result.
      weights: ``[N, most]``, of sums: row by row of a window.
      fill: ``[N]``, what is beyond a constant border; maxima and minima leave that out.
    """

    window: np.ndarray
    anchor: np.ndarray
    weights: np.ndarray | None = None
    fill: np.ndarray | None = None


class Stencil(NativeOperator):
    """A reduction of the window around each element, over the two or three spatial axes."""

    kernel = "stencil"
    reduction: ClassVar[int]  # SUM, MEDIAN, MAX or MIN

    @property
    def beyond(self) -> int:
        """What stands beyond the border: `CONSTANT`, ..."""
        raise NotImplementedError(self.name)

    def axes(self, image: Spec) -> tuple[int, int]:
        """The first spatial axis, and how many there are. Raises ValueError for a layout that is not taken."""
        raise NotImplementedError(self.name)

    def around(self, ctx: HostContext, *values: Value) -> Around:
        """The windows of a batch."""
        raise NotImplementedError(self.name)

    def infer(self, image: Spec, *others: Spec) -> tuple[Spec, ...]:
        self.axes(image)
        if image.dtype.name not in _STENCIL_TYPES:
            raise TypeError(f"the input must be {', '.join(_STENCIL_TYPES)}, got {image.dtype}")
        return (image,)

    def setup(self, ctx: HostContext, *values: Value) -> Setup:
        return self.setup_of(ctx, values[0].shapes, self.around(ctx, *values))

    def setup_of(self, ctx: HostContext, shapes: np.ndarray, around: Around) -> Setup:
        """What `setup` returns."""
        weights = np.zeros((ctx.N, 0)) if around.weights is None else around.weights
        room = 1 << int(weights.shape[1] - 1).bit_length() if weights.size else 0  # few programs are compiled
        params = {
            "weights": np.pad(weights, ((0, 0), (0, room - weights.shape[1]))).astype(np.float32),
            "window": around.window.astype(np.int32),
            "anchor": around.anchor.astype(np.int32),
            "fill": (np.zeros(ctx.N) if around.fill is None else around.fill).astype(np.float32),
        }
        return Setup((None if ctx.spec.shape is not None else shapes,), params)

    def lower(self, ctx: LowerContext, *arrays: Any) -> Any:
        first, axes = self.axes(ctx.inputs[0])
        params = [ctx.params[n] for n in ("weights", "window", "anchor", "fill")]
        attrs = {"first": first, "axes": axes, "reduction": self.reduction, "border": self.beyond}
        y, status = _ffi.call("stencil", ctx, arrays[0], ctx.spec, ctx.out[0], *params, **attrs)
        return (y,), status


_STENCIL_TYPES = ("uint8", "int8", "uint16", "int16", "float16", "float32")


# --- affine maps --------------------------------------------------------------------------------------------------


class Warp(NativeOperator):
    """An affine map of images or volumes."""

    kernel = "warp"
    layouts: ClassVar[dict[str, tuple[int, int]]] = {"HWC": (0, 2), "FHWC": (1, 2), "DHWC": (0, 3), "FDHWC": (1, 3)}  # first axis, how many
    max_extent: ClassVar[int] = 1 << 26  # the kernel's coordinates are fixed point
    fill_value: float | None
    interp_type: types.DALIInterpType
    dtype: np.dtype | None

    @property
    def linear(self) -> bool:
        return self.interp_type == types.INTERP_LINEAR

    def layout(self, image: Spec) -> tuple[str, int, int]:
        """Layout, first spatial axis and number of them."""
        layout = image_layout(image, tuple(self.layouts))
        return layout, *self.layouts[layout]

    def output(self, image: Spec, size: Sequence[int | None]) -> Spec:
        """The spec of the output, of known or unknown size. Raises ValueError for element types that are not taken."""
        layout, first, _ = self.layout(image)
        dtype = self.dtype or image.dtype
        known = image.dtype.name in _WARP_TYPES and dtype.name in _WARP_TYPES
        if not known or (dtype != image.dtype and np.float32 not in (dtype, image.dtype)):
            raise ValueError(
                f"the input must be {', '.join(_WARP_TYPES)}, the output the same or float32 (any of these from float32); "
                f"got {image.dtype} to {dtype}"
            )
        return spec_of(dtype, (*(image.extent(d) for d in range(first)), *size, image.extent(image.ndim - 1)), layout)

    def setup_of(self, ctx: HostContext, image: Value, size: np.ndarray, source_map: Any) -> Setup:
        """What `setup` returns.

        Args:
          size: ``i64[N, dims]``, extents of the outputs; of samples where these are too large 1, and the sample fails.
          source_map: ``source_map(size)`` gives ``f64[N, dims, dims + 1]``: output pixel (x, y(, z)) to the source point of its centre.
        """
        _, first, dims = self.layout(image.spec)
        have = image.shapes[:, first : first + dims]
        large = np.any(np.maximum(size, have) > self.max_extent, axis=1)
        for i in np.flatnonzero(large & ctx.present):
            ctx.fail(int(i), TOO_LARGE, f"extents must not exceed {self.max_extent}, got {size[i].tolist()} of {have[i].tolist()}")
        size = np.where(large[:, None], 1, size)
        fill = self._fill(image.spec.dtype, ctx.spec.dtype)
        params = {"map": source_map(size), "fill": np.full(ctx.N, fill, np.float32)}
        shapes = np.concatenate([image.shapes[:, :first], size, image.shapes[:, first + dims :]], axis=1)
        return Setup((None if ctx.spec.shape is not None else shapes,), params)

    def _fill(self, source: np.dtype, result: np.dtype) -> np.float32:
        """The fill value as a pixel of the result; where it is blended with pixels of the image, first as one of these."""
        fill = np.asarray([self.fill_value or 0.0], np.float32)
        for dtype in (source, result) if self.linear else (result,):
            fill = convert(np, fill, dtype).astype(np.float32)
        return fill[0]

    def lower(self, ctx: LowerContext, *arrays: Any) -> Any:
        _, first, dims = self.layout(ctx.inputs[0])
        has_fill, p = self.fill_value is not None, ctx.params
        attrs = {"dims": dims, "first": first, "linear": self.linear, "has_fill": has_fill}
        y, status = _ffi.call("warp", ctx, arrays[0], ctx.spec, ctx.out[0], p["map"], p["fill"], **attrs)
        return (y,), status


_WARP_TYPES = ("uint8", "int16", "int32", "float16", "float32")


# --- gathers by coordinate maps -----------------------------------------------------------------------------------


class Points(enum.IntEnum):
    """Which point of the image an output pixel is taken from; ffi/remap/remap.h has the same, with the numbers that each needs."""

    GIVEN = 0
    PROJECTIVE = 1
    SPHERE = 2
    WATER = 3
    JITTER = 4
    GRID = 5


BORDERS = ("constant", "replicate", "reflect", "reflect_101", "wrap")  # ffi/remap/remap.h


class Remap(NativeOperator):
    """A gather: each output pixel is the image's value at a point, which is computed or given."""

    kernel = "remap"
    points: ClassVar[Points]
    layouts: ClassVar[tuple[str, ...]] = ("HWC", "FHWC")
    types: ClassVar[tuple[str, ...]] = ("uint8", "int16", "uint16", "float16", "float32")

    @property
    def interpolation(self) -> types.DALIInterpType:
        """INTERP_NN, INTERP_LINEAR or INTERP_CUBIC."""
        return types.INTERP_NN

    @property
    def border(self) -> str:
        """What is outside of the image, one of `BORDERS`; the first: the fill value."""
        return BORDERS[0]

    def layout(self, image: Spec) -> tuple[str, int]:
        """Layout, and the axis H, behind which W is."""
        layout = image.layout or {2: "HW"}.get(image.ndim, "")
        layout = layout if layout in self.layouts else image_layout(image, self.layouts)
        return layout, layout.index("H")

    def output(self, image: Spec, size: Sequence[int | None]) -> Spec:
        """The spec of the output, of known or unknown size ``(H, W)``. Raises ValueError for element types that are not taken."""
        layout, first = self.layout(image)
        if image.dtype.name not in self.types:
            raise ValueError(f"the input must be {', '.join(self.types)}, got {image.dtype}")
        extents = [image.extent(d) for d in range(image.ndim)]
        extents[first : first + 2] = size
        return spec_of(image.dtype, extents, layout)

    def infer(self, image: Spec, *arguments: Spec) -> tuple[Spec, ...]:
        _, first = self.layout(image)
        return (self.output(image, [image.extent(first), image.extent(first + 1)]),)

    def setup_of(
        self,
        ctx: HostContext,
        image: Value,
        numbers: np.ndarray,
        *,
        size: np.ndarray | None = None,
        fill: Any = 0.0,
        applied: np.ndarray | None = None,
    ) -> Setup:
        """What `setup` returns.

        Args:
          numbers: ``f64[N, count]``, see `Points`.
          size: ``i64[N, 2]``, H and W of the outputs. Default: the images'.
          fill: what is outside, one number or one per channel.
          applied: ``[N]``; of samples where it is 0 the result is the image itself. Default: all.
        """
        _, first = self.layout(image.spec)
        shapes = image.shapes.copy()
        if size is not None:
            shapes[:, first : first + 2] = size
        color = convert(np, np.atleast_1d(np.asarray(fill, np.float64)), image.spec.dtype).astype(np.float32)
        params = {
            "numbers": numbers.astype(np.float64),
            "fill": np.tile(color, (ctx.N, 1)),
            "applied": np.ones(ctx.N, np.int32) if applied is None else (applied != 0).astype(np.int32),
        }
        return Setup((None if ctx.spec.shape is not None else shapes,), params)

    def lower(self, ctx: LowerContext, *arrays: Any) -> Any:
        nothing = (jnp.zeros((0,), jnp.float32), jnp.zeros((0,), jnp.int32))
        return self.lower_with(ctx, arrays[0], nothing, nothing)

    def lower_with(self, ctx: LowerContext, image: Any, map_x: tuple[Any, Any], map_y: tuple[Any, Any]) -> Any:
        """What `lower` returns, with the maps of points that are given: data, flat, and offsets."""
        attrs = {
            "points": int(self.points),
            "sampling": int(self.interpolation),
            "border": BORDERS.index(self.border),
            "first": self.layout(ctx.inputs[0])[1],
        }
        p = ctx.params
        operands = (*map_x, *map_y, p["numbers"], p["fill"], p["applied"])
        y, status = _ffi.call("remap", ctx, image, ctx.spec, ctx.out[0], *operands, **attrs)
        return (y,), status
