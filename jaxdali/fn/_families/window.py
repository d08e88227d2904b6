"""The family of strided windows: crop, slice, flip, pad, paste, transpose.

These words mean one thing each, here and in the modules that use this one:

* A *window* is a strided selection of a sample's elements: by axis a first index, a step, and a number of indices. It
  may reach outside the sample, and its elements may be converted and scaled.
* A *crop* is a window of step 1 that the arguments `crop` or `crop_h`, `crop_w` and `crop_d` describe (`cropping`).
* A `Part` holds the windows of all samples of a batch, which are the arguments of the kernel.
* A *region* is a rectangle of an image that is all that a decoder makes of it. `window_regions` is about regions that
  one window reads, see Note [Parts of images].
* An *ROI* is a region, in fractions of a pixel too, that a resize reads (`roi_start` and `roi_end`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from ... import _cpu
from ..._core import ffi as _ffi
from ..._core.arguments import Values
from ..._core.context import BuildContext, HostContext, LowerContext
from ..._core.operator import HostOperator, Operator, ProgramOperator, Setup, StageOperator
from ..._core.values import Spec, Value
from ..._cpu import MOST_TILE_CHANNELS
from .conversion import convert, cut
from .layouts import image_layout


@dataclasses.dataclass
class Part:
    """The window of each sample of a batch, and the conversion of its elements: the arguments of the kernel `window`.

    Attributes:
      start, step, extent: ``i64[N, ndim]`` by axis of the input: first index, distance to the next, number of indices.
      fill: ``[N, channels]``, the value at indices outside the input, converted as by `cut`. None: a sample with such
        indices fails.
      scale, offset: ``[N, channels]``; elements become ``scale * x + offset``. None: they are only converted.
    """

    start: np.ndarray
    step: np.ndarray
    extent: np.ndarray
    fill: np.ndarray | None = None
    scale: np.ndarray | None = None
    offset: np.ndarray | None = None

    @staticmethod
    def whole(shapes: np.ndarray) -> Part:
        """The windows that are the whole samples, of these `shapes`."""
        return Part(np.zeros(shapes.shape, np.int64), np.full(shapes.shape, 1, np.int64), shapes.copy())

    def flip(self, axis: int, which: np.ndarray):
        """Mirrors an axis of some samples, in place. `which`: ``bool[N]``, the samples."""
        _cpu.mirror_windows(self.start, self.step, self.extent, axis, which)


class Window(StageOperator):
    """A strided window of each sample, with fill, scale and offset by channel. The output's layout may permute the
    input's.

    Values in the host's memory that become arguments of operators, such as boxes, stay there: see `WindowOnHost`.
    """

    kernel = "window"

    @property
    def has_host_form(self) -> bool:
        return True  # It ignores scale and offset, which only operators on images have.

    def bind(self, ctx: BuildContext, *specs: Spec) -> Operator:
        return WindowOnHost(window=self) if ctx.stage == "host" else self

    @property
    def has_fill(self) -> bool:
        """Whether the window may reach outside the sample, where its elements are fill."""
        return False

    @property
    def reads_region(self) -> bool:
        """Whether the window may read less than the whole image, so that a decoder need only make a region of it."""
        return False

    def is_plain_crop(self, image: Spec, out: Spec) -> bool:
        """Whether the window is rows and columns of the image, at least one of each, with unchanged pixels. Only called
        if it `reads_region`.
        """
        return False

    def is_made_in_place(self, image: Spec, out: Spec) -> bool:
        """See `StageOperator.is_made_in_place`: windows of images HWC, without fill, that become HWC or CHW."""
        if (
            image.ndim != 3
            or image.extent(2) not in range(1, MOST_TILE_CHANNELS + 1)
            or self.layout(image).find("C") != 2
        ):
            return False
        # The GPU kernels that make windows in place, of resizes and warps, write these types, interleaved or planar.
        is_written = out.dtype.name in ("uint8", "float16", "bfloat16", "float32")
        return is_written and not self.has_fill and self.permutation(image, out) in ([0, 1, 2], [2, 0, 1])

    def takes_image(self, image: Spec) -> bool:
        return True

    def part(self, ctx: HostContext, image: Value, a: Values) -> Part:
        """The windows of a batch, by the arguments `a` of the operator."""
        raise NotImplementedError(self.name)

    def layout(self, image: Spec) -> str:
        """The input's layout, or the default one of its rank. Raises ValueError for a layout that is not taken."""
        return image_layout(image)

    def setup(self, ctx: HostContext, *values: Value) -> Setup:
        return self.setup_of(ctx, values[0], self.part(ctx, values[0], self.arguments(ctx, values)))

    def setup_of(self, ctx: HostContext, image: Value, part: Part) -> Setup:
        """The shapes of the outputs, unless the spec has them, and the kernel's parameters."""
        params = {n: getattr(part, n).astype(np.int32) for n in ("start", "step", "extent")}
        params |= {
            n: x.astype(np.float32, copy=False)
            for n in ("fill", "scale", "offset")
            if (x := getattr(part, n)) is not None
        }
        return Setup((None if ctx.spec.shape is not None else self.shapes(image.spec, ctx.spec, part),), params)

    def shapes(self, image: Spec, out: Spec, part: Part) -> np.ndarray:
        """Shapes of the output, ``i64[N, ndim]``."""
        return part.extent[:, self.permutation(image, out)]

    def call(self, ctx: LowerContext) -> _ffi.KernelCall:
        image = ctx.inputs[0]
        return _call(
            ctx, **ctx.params, permutation=self.permutation(image, ctx.spec), channel=self.layout(image).find("C")
        )

    def portable(self, spec: Spec, out: Spec) -> ProgramOperator | None:
        """See `NativeOperator.portable`: a `DenseWindow`, if input and output have static shapes, and the fill values
        are exact in it.
        """
        # A subclass that calls the kernel in another way computes something else.
        is_dense_window = (
            (type(self).lower, type(self).call) == (Window.lower, Window.call)
            and spec.shape is not None
            and out.shape is not None
        )
        # Fill values of these types are exact as float32.
        has_exact_fill = out.dtype.itemsize <= 2 or out.dtype == np.float32
        return DenseWindow(window=self) if is_dense_window and has_exact_fill and spec.dtype.itemsize <= 4 else None

    def permutation(self, image: Spec, out: Spec) -> list[int]:
        """The input's axis for each axis of the output."""
        layout = self.layout(image)
        return [layout.index(letter) for letter in out.layout] if out.layout and layout else list(range(image.ndim))

    def of_sample(self, x: np.ndarray, image: Spec, out: Spec, params: Mapping[str, np.ndarray]) -> np.ndarray:
        """The window of one sample `x`, with NumPy; it may share memory with `x`. `params`: the sample's rows of the
        parameters that `setup` made.
        """
        extent, permutation = params["extent"].copy(), self.permutation(image, out)
        if out.shape is not None:
            extent[permutation] = out.shape  # A sample that failed or is missing has another extent in `params`.
        axes = list(zip(params["start"].tolist(), params["step"].tolist(), extent.tolist(), strict=True))
        parts = [_inside(*axis, size) for axis, size in zip(axes, x.shape, strict=True)]
        # The elements of the window that the sample has.
        pixels = convert(np, x[tuple(indices for indices, _ in parts)], out.dtype)
        if pixels.shape == tuple(extent):
            return pixels.transpose(permutation)
        fill = np.float32(0)
        if "fill" in params:
            fill, channel = params["fill"], self.layout(image).find("C")
            if channel < 0:
                fill = fill[0]
            else:
                start, step, n = axes[channel]
                # The last value is that of all further channels, as in the kernel.
                channels = np.clip(start + step * np.arange(n), 0, len(fill) - 1)
                fill = fill[channels].reshape(-1, *(1,) * (x.ndim - 1 - channel))
        result = np.empty(extent, out.dtype)
        result[...] = cut(np.asarray(fill, np.float32), out.dtype)
        result[tuple(places for _, places in parts)] = pixels
        return result.transpose(permutation)


def _inside(start: int, step: int, n: int, size: int) -> tuple[slice, slice]:
    """The indices of a window along an axis that a sample of extent `size` has, and their places in the window.

    Args:
      start, step, n: first index, distance to the next (not 0), number of indices.
    """
    # A window that goes backwards reads the mirrored axis forwards.
    first, distance = (start, step) if step > 0 else (size - 1 - start, -step)
    begin, end = (min(max(-(-x // distance), 0), n) for x in (-first, size - first))  # rounded up
    if begin >= end:
        return slice(0, 0), slice(0, 0)
    stop = start + step * end
    return slice(start + step * begin, stop if stop >= 0 else None, step), slice(begin, end)


class WindowOnHost(HostOperator):
    """A window of values in the host's memory, with NumPy: for few elements, such as boxes."""

    window: Window

    @property
    def name(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.window.name

    def infer(self, *specs: Spec) -> tuple[Spec, ...]:
        return self.window.infer(*specs)

    def run(self, ctx: HostContext, *values: Value) -> tuple[Any, ...]:
        """Takes the window of each sample that is present. The others become zeros, or empty if shapes vary."""
        image, params = values[0], self.window.setup(ctx, *values).params
        empty = np.zeros(ctx.spec.shape if ctx.spec.shape is not None else (0,) * ctx.spec.ndim, ctx.spec.dtype)
        samples = [
            self.window.of_sample(image.sample(i), image.spec, ctx.spec, {n: p[i] for n, p in params.items()})
            if is_present
            else empty
            for i, is_present in enumerate(ctx.present.tolist())
        ]
        return (np.stack(samples) if ctx.spec.shape is not None else samples,)


class DenseWindow(ProgramOperator):
    """A window of dense samples in JAX's own operations, for accelerators without native kernels, such as TPUs. Its
    result is dense, too.

    Attributes:
      window: the operator that this one stands for.
      moves: whether elements may change their places. If not, the window is the whole sample with zeros behind it, and
        only the parameters `scale` and `offset` are used.
    """

    window: Window
    moves: bool = True

    @property
    def name(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.window.name

    def setup_reads(self, i: int) -> bool:
        return i > 0

    def infer(self, *specs: Spec) -> tuple[Spec, ...]:
        return self.window.infer(*specs)

    def setup(self, ctx: HostContext, *values: Value) -> Setup:
        """The parameters of the window's own setup, with the fill values as the output's type can hold them."""
        params = dict(self.window.setup(ctx, *values).params)
        if not self.moves:
            params = {n: x for n, x in params.items() if n in ("scale", "offset")}
        if "fill" in params:
            params["fill"] = cut(params["fill"], ctx.spec.dtype).astype(np.float32)
        return Setup((None,), params)

    def lower(self, ctx: LowerContext, image: Any, *arguments: Any) -> Any:
        """Gathers the elements of the window, converts, scales and fills them, and permutes the axes."""
        spec, out, params = ctx.inputs[0], ctx.spec, ctx.params
        assert spec.shape is not None and out.shape is not None
        permutation = self.window.permutation(spec, out)
        # The window's extents in the order of the input's axes; they are permuted at the end.
        extents = [out.shape[permutation.index(axis)] for axis in range(spec.ndim)]
        channel = self.window.layout(spec).find("C")
        # By axis of the input, ``[B, n]`` each: the indices of the window, and whether each is inside the sample.
        indices, is_inside = [], []
        for axis, (size, n) in enumerate(zip(spec.shape, extents, strict=True)) if self.moves else ():
            index = params["start"][:, axis, None] + params["step"][:, axis, None] * jnp.arange(n, dtype=jnp.int32)
            indices.append(index)
            is_inside.append((index >= 0) & (index < size))
            # One gather per axis, in turn: each reads its axis at the clipped indices. Fill replaces the rest below.
            if size:
                image = jnp.take_along_axis(image, _along(jnp.clip(index, 0, size - 1), axis, spec.ndim), axis=1 + axis)
            else:
                image = jnp.zeros((*image.shape[: 1 + axis], n, *image.shape[2 + axis :]), image.dtype)

        def by_channel(values: Any) -> Any:
            """A parameter ``[B, channels]``, reshaped so that it broadcasts against the window along the channels."""
            if channel < 0 or values.shape[1] == 1:
                return values[:, :1].reshape(ctx.B, *(1,) * spec.ndim)
            if self.moves:
                values = jnp.take_along_axis(values, jnp.clip(indices[channel], 0, values.shape[1] - 1), axis=1)
            return _along(values, channel, spec.ndim)

        if "scale" in params:
            scale, offset = by_channel(params["scale"]), by_channel(params["offset"])
            image = convert(jnp, image, np.dtype(np.float32)) * scale + offset
        result = convert(jnp, image, out.dtype)
        if "fill" in params:
            fill = by_channel(params["fill"]).astype(out.dtype)
            for axis, is_inside_axis in enumerate(is_inside):
                result = jnp.where(_along(is_inside_axis, axis, spec.ndim), result, fill)
        if not self.moves:
            result = jnp.pad(result, [(0, 0), *((0, n - size) for size, n in zip(spec.shape, extents, strict=True))])
        return (jnp.transpose(result, (0, *(1 + a for a in permutation))),)


def call_window(ctx: LowerContext, x: Any, start: Any, step: Any, extent: Any, **options: Any) -> tuple[Any, Any]:
    """Launches the kernel `window` on a batch `x`, with the arguments of `_call`. Returns (output, status)."""
    call = _call(ctx, start, step, extent, **options)
    return _ffi.call("window", ctx, x, ctx.spec, ctx.out[0], *call.params, **call.attrs)


def _call(
    ctx: LowerContext,
    start: Any,
    step: Any,
    extent: Any,
    *,
    fill: Any = None,
    scale: Any = None,
    offset: Any = None,
    permutation: Sequence[int] = (),
    channel: int = -1,
) -> _ffi.KernelCall:
    """The operands and attributes of the kernel, see ffi/window/window.h.

    Args:
      start, step, extent: ``i32[B, ndim]`` by axis of the input.
      fill, scale, offset: ``f32[B, channels]``, see `Part`.
      permutation: the input's axis for each axis of the output. Default: unchanged.
      channel: the input's axis along which fill, scale and offset vary; -1: one number for the whole sample.
    """
    none = jnp.zeros((ctx.B, 0), jnp.float32)  # an operand without channels stands for one that is not given
    axes = tuple(permutation) or tuple(range(start.shape[1]))
    values = (none if x is None else x for x in (fill, scale, offset))
    return _ffi.KernelCall((start, step, extent, *values), {"permutation": axes, "channel": channel})


def _along(x: Any, axis: int, ndim: int) -> Any:
    """``[B, n]``, reshaped so that it broadcasts against a batch ``[B, ...]`` along an axis of the samples."""
    return x.reshape(len(x), *(x.shape[1] if a == axis else 1 for a in range(ndim)))
