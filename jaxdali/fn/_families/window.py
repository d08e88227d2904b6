"""The family of strided windows: crop, slice, flip, pad, paste, transpose."""

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
    """Which part of each sample a `Window` takes, and what becomes of its elements.

    Attributes:
      start, step, extent: ``i64[N, ndim]`` by axis of the input: first index, to the next, how many.
      fill: ``[N, channels]``, of indices outside the input, converted as by `cut`; None: these are an error of their
        sample.
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
        return Part(np.zeros(shapes.shape, np.int64), np.full(shapes.shape, 1, np.int64), shapes.copy())

    def flip(self, axis: int, which: np.ndarray):
        """Mirrors an axis of some samples, ``bool[N]``."""
        _cpu.mirror_windows(self.start, self.step, self.extent, axis, which)


class Window(StageOperator):
    """A strided window of each sample, with fill, scale and offset by channel; the output's layout may permute the
    input's.

    What operators on the host make arguments of, as boxes are, stays there.
    """

    kernel = "window"

    @property
    def has_host_form(self) -> bool:
        return True  # but for scale and offset, which are for images

    def bind(self, ctx: BuildContext, *specs: Spec) -> Operator:
        return WindowOnHost(window=self) if ctx.stage == "host" else self

    @property
    def has_fill(self) -> bool:
        """Whether the window may reach outside the sample, and has fill there."""
        return False

    @property
    def cuts(self) -> bool:
        """Whether it may read less than the whole image, so that only that part of it need be made."""
        return False

    def is_part(self, image: Spec, out: Spec) -> bool:
        """Whether it is rows and columns of the image, at least one of each, just as they are. Only asked where it
        `cuts`.
        """
        return False

    def is_made_in_place(self, image: Spec, out: Spec) -> bool:
        if (
            image.ndim != 3
            or image.extent(2) not in range(1, MOST_TILE_CHANNELS + 1)
            or self.layout(image).find("C") != 2
        ):
            return False
        known = out.dtype.name in ("uint8", "float16", "bfloat16", "float32")
        return known and not self.has_fill and self.permutation(image, out) in ([0, 1, 2], [2, 0, 1])

    def takes_image(self, image: Spec) -> bool:
        return True

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
        known = (
            (type(self).lower, type(self).call) == (Window.lower, Window.call)
            and spec.shape is not None
            and out.shape is not None
        )
        # Fill values of these types are exact as float32.
        exact = out.dtype.itemsize <= 2 or out.dtype == np.float32
        return DenseWindow(window=self) if known and exact and spec.dtype.itemsize <= 4 else None

    def permutation(self, image: Spec, out: Spec) -> list[int]:
        """For each axis of the output the input's."""
        layout = self.layout(image)
        return [layout.index(letter) for letter in out.layout] if out.layout and layout else list(range(image.ndim))

    def of_sample(self, x: np.ndarray, image: Spec, out: Spec, params: Mapping[str, np.ndarray]) -> np.ndarray:
        """One sample with NumPy. `params`: of `setup`, those of the sample."""
        extent, permutation = params["extent"].copy(), self.permutation(image, out)
        if out.shape is not None:
            extent[permutation] = out.shape  # also where the sample has failed, or is not there
        at = [
            a + s * np.arange(n) for a, s, n in zip(params["start"].tolist(), params["step"].tolist(), extent.tolist())
        ]
        inside = [(i >= 0) & (i < n) for i, n in zip(at, x.shape)]
        channel = self.layout(image).find("C")

        def numbers(name: str) -> np.ndarray:
            """A parameter by channel, as it broadcasts against the window."""
            given = params[name]
            if channel < 0:
                return given[0]
            return given[np.clip(at[channel], 0, len(given) - 1)].reshape(-1, *(1,) * (x.ndim - 1 - channel))

        taken = x[np.ix_(*(i[k] for i, k in zip(at, inside)))]
        fill = cut(np.asarray(numbers("fill") if "fill" in params else 0, np.float32), out.dtype)
        result = np.empty([len(i) for i in at], out.dtype)
        result[...] = fill
        result[np.ix_(*inside)] = convert(np, taken, out.dtype)
        return np.ascontiguousarray(result.transpose(permutation))


class WindowOnHost(HostOperator):
    """A window with NumPy, of few elements."""

    window: Window

    @property
    def name(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.window.name

    def infer(self, *specs: Spec) -> tuple[Spec, ...]:
        return self.window.infer(*specs)

    def run(self, ctx: HostContext, *values: Value) -> tuple[Any, ...]:
        image, params = values[0], self.window.setup(ctx, *values).params
        nothing = np.zeros(ctx.spec.shape if ctx.spec.shape is not None else (0,) * ctx.spec.ndim, ctx.spec.dtype)
        samples = [
            self.window.of_sample(image.sample(i), image.spec, ctx.spec, {n: p[i] for n, p in params.items()})
            if here
            else nothing
            for i, here in enumerate(ctx.present.tolist())
        ]
        return (np.stack(samples) if ctx.spec.shape is not None else samples,)


class DenseWindow(ProgramOperator):
    """A window of dense samples in JAX's own operations: for accelerators without native kernels, such as TPUs. Its
    result is dense, too.

    Attributes:
      window: what is taken.
      moves: whether elements come from other places than their own; otherwise the window is the whole sample, and zeros
        behind it.
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
        params = dict(self.window.setup(ctx, *values).params)
        if not self.moves:
            params = {n: x for n, x in params.items() if n in ("scale", "offset")}
        if "fill" in params:
            params["fill"] = cut(params["fill"], ctx.spec.dtype).astype(np.float32)
        return Setup((None,), params)

    def lower(self, ctx: LowerContext, image: Any, *arguments: Any) -> Any:
        spec, out, params = ctx.inputs[0], ctx.spec, ctx.params
        assert spec.shape is not None and out.shape is not None
        permutation = self.window.permutation(spec, out)
        # Of the window, in the order of the input's axes.
        extents = [out.shape[permutation.index(axis)] for axis in range(spec.ndim)]
        channel = self.window.layout(spec).find("C")
        # By axis: the index of each element along it, and whether it is inside the sample, ``[B, n]``
        at, inside = [], []
        for axis, (size, n) in enumerate(zip(spec.shape, extents, strict=True)) if self.moves else ():
            index = params["start"][:, axis, None] + params["step"][:, axis, None] * jnp.arange(n, dtype=jnp.int32)
            at.append(index)
            inside.append((index >= 0) & (index < size))
            if size:
                image = jnp.take_along_axis(image, _along(jnp.clip(index, 0, size - 1), axis, spec.ndim), axis=1 + axis)
            else:
                image = jnp.zeros((*image.shape[: 1 + axis], n, *image.shape[2 + axis :]), image.dtype)

        def numbers(given: Any) -> Any:
            """A parameter by channel, as it broadcasts against the window."""
            if channel < 0 or given.shape[1] == 1:
                return given[:, :1].reshape(ctx.B, *(1,) * spec.ndim)
            if self.moves:
                given = jnp.take_along_axis(given, jnp.clip(at[channel], 0, given.shape[1] - 1), axis=1)
            return _along(given, channel, spec.ndim)

        if "scale" in params:
            image = convert(jnp, image, np.dtype(np.float32)) * numbers(params["scale"]) + numbers(params["offset"])
        result = convert(jnp, image, out.dtype)
        if "fill" in params:
            filled = numbers(params["fill"]).astype(out.dtype)
            for axis, there in enumerate(inside):
                result = jnp.where(_along(there, axis, spec.ndim), result, filled)
        if not self.moves:
            result = jnp.pad(result, [(0, 0), *((0, n - size) for size, n in zip(spec.shape, extents, strict=True))])
        return (jnp.transpose(result, (0, *(1 + a for a in permutation))),)


def call_window(ctx: LowerContext, x: Any, start: Any, step: Any, extent: Any, **options: Any) -> tuple[Any, Any]:
    """A strided window of each sample of `x`, with the arguments of `_call`. Returns (output, status)."""
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
    """What the kernel gets, see ffi/window/window.h.

    Args:
      start, step, extent: ``i32[B, ndim]`` by axis of the input.
      fill, scale, offset: ``f32[B, channels]``, see `Part`.
      permutation: for each axis of the output the input's. Default: as they are.
      channel: the input's axis along which fill, scale and offset vary; -1: they don't.
    """
    none = jnp.zeros((ctx.B, 0), jnp.float32)
    axes = tuple(permutation) or tuple(range(start.shape[1]))
    numbers = (none if p is None else p for p in (fill, scale, offset))
    return _ffi.KernelCall((start, step, extent, *numbers), {"permutation": axes, "channel": channel})


def _along(x: Any, axis: int, ndim: int) -> Any:
    """``[B, n]`` with further axes, so that it lies along an axis of samples."""
    return x.reshape(len(x), *(x.shape[1] if a == axis else 1 for a in range(ndim)))
