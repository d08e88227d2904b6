"""The family of separable filters: one vector of weights, called a window, along each spatial axis."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from ..._core import ffi as _ffi
from ..._core.arguments import Values
from ..._core.building import reads_images
from ..._core.context import HostContext, LowerContext
from ..._core.input_warnings import filtered_layout_warning, image_layout_warning
from ..._core.operator import NativeOperator, Setup
from ..._core.values import Spec, Value
from .layouts import filtered_layout


class Separable(NativeOperator):
    """A convolution with a window of weights along each spatial axis in turn. Beyond its edges, the image is mirrored
    about the centres of its outermost pixels.
    """

    kernel = "filter"
    only_kernels = True
    dtype: np.dtype | None  # of the output; None: the input's
    reads_images: bool = dataclasses.field(default_factory=reads_images)

    def takes_image(self, image: Spec) -> bool:
        return True

    def about_axes(self, image: Spec) -> str:
        return image_layout_warning(image) if self.reads_images else filtered_layout_warning(image)

    def windows(self, ctx: HostContext, axes: int, a: Values) -> tuple[np.ndarray, np.ndarray]:
        """Weights ``f64[N, axes, longest]``, and how many of them each window has, ``i64[N, axes]``."""
        raise NotImplementedError(self.name)

    def axes(self, image: Spec) -> tuple[int, int]:
        """The first spatial axis, and the number of spatial axes. As in DALI these are all but leading F and C, and C
        at the end.
        """
        layout = filtered_layout(image, self.reads_images)
        inner = layout.lstrip("FC")
        leading, spatial = layout[: len(layout) - len(inner)], inner.removesuffix("C")
        is_supported = len(set(leading)) == len(leading) and not set(spatial) & set("FC")
        if not 0 < image.ndim == len(layout) or not is_supported or not 0 < len(spatial) <= 3:
            raise ValueError(
                "the input must have one to three spatial axes that are neighbours, with at most one axis F and one axis C before them, "
                f"or C last; got {image.ndim}-D data of layout {image.layout!r}"
            )
        return len(leading), len(spatial)

    def infer(self, image: Spec, *arguments: Spec) -> tuple[Spec, ...]:
        """The input's shape, in its type or as float32."""
        # Raises ValueError for an unsupported layout.
        self.axes(image)
        dtype = self.dtype or image.dtype
        if image.dtype == np.bool_:
            raise ValueError("the input must be numbers, got bool")
        if dtype not in (image.dtype, np.dtype(np.float32)):
            raise ValueError(f"the output must be of the input's type or FLOAT, got {image.dtype} to {dtype}")
        return (dataclasses.replace(image, dtype=dtype),)

    def setup(self, ctx: HostContext, *values: Value) -> Setup:
        """The weights, and how many of them each window has; the outputs' shapes, unless the spec has them."""
        _, axes = self.axes(values[0].spec)
        weights, taps = self.windows(ctx, axes, self.arguments(ctx, values))
        # Padded to a power of two, so that few programs are compiled.
        padded = 1 << int(weights.shape[-1] - 1).bit_length()
        weights = np.pad(weights, (*((0, 0),) * (weights.ndim - 1), (0, padded - weights.shape[-1])))
        params = {"weights": weights.astype(np.float32), "taps": taps.astype(np.int32)}
        return Setup((None if ctx.spec.shape is not None else values[0].shapes,), params)

    def lower(self, ctx: LowerContext, *arrays: Any) -> Any:
        y, status = self.filtered(ctx, arrays[0], ctx.spec, **ctx.params)
        return (y,), status

    def filtered(self, ctx: LowerContext, x: Any, spec: Spec, weights: Any, taps: Any) -> tuple[Any, Any]:
        """Launches the kernel: filters a batch `x` by windows as `setup` makes them. Returns (result, status).

        Args:
          spec: the spec of the result.
          weights, taps: ``f32[B, axes, longest]`` and ``i32[B, axes]``, see `windows`.
        """
        first, axes = self.axes(ctx.inputs[0])
        out = ctx.out[0]
        elements = out.capacity if out is not None else ctx.B * int(np.prod(spec.shape or ()))
        # float32 results of all axes but the last. The CPU kernel leaves it untouched.
        scratch = 4 * elements * (axes - 1)
        return _ffi.call("filter", ctx, x, spec, out, weights, taps, scratch=scratch, first=first, axes=axes)
