"""The family of filters by a window along each axis."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from ..._core import ffi as _ffi
from ..._core.arguments import Values
from ..._core.context import HostContext, LowerContext
from ..._core.input_warnings import filtered_layout_warning
from ..._core.operator import NativeOperator, Setup
from ..._core.values import Spec, Value
from .layouts import SPATIAL


class Separable(NativeOperator):
    """A window along each spatial axis; at borders the image is mirrored about the centre of its outermost pixel."""

    kernel = "filter"
    only_kernels = True
    dtype: np.dtype | None

    def takes_image(self, image: Spec) -> bool:
        return True

    def about_axes(self, image: Spec) -> str:
        return filtered_layout_warning(image)

    def windows(self, ctx: HostContext, axes: int, a: Values) -> tuple[np.ndarray, np.ndarray]:
        """Weights ``f64[N, axes, most]`` and how many of them are used, ``i64[N, axes]``."""
        raise NotImplementedError(self.name)

    def axes(self, image: Spec) -> tuple[int, int]:
        """The first spatial axis, and how many there are: as in DALI all but leading F and C, and a C at the end."""
        layout = image.layout or SPATIAL[-image.ndim :]  # without a layout all axes are spatial
        inner = layout.lstrip("FC")
        before, spatial = layout[: len(layout) - len(inner)], inner.removesuffix("C")
        known = len(set(before)) == len(before) and not set(spatial) & set("FC")
        if not 0 < image.ndim == len(layout) or not known or not 0 < len(spatial) <= 3:
            raise ValueError(
                "the input must have one to three spatial axes that are neighbours, with at most one axis F and one axis C before them, "
                f"or C last; got {image.ndim}-D data of layout {layout!r}"
            )
        return len(before), len(spatial)

    def infer(self, image: Spec, *arguments: Spec) -> tuple[Spec, ...]:
        self.axes(image)
        dtype = self.dtype or image.dtype
        if image.dtype == np.bool_:
            raise ValueError("the input must be numbers, got bool")
        if dtype not in (image.dtype, np.dtype(np.float32)):
            raise ValueError(f"the output must be of the input's type or FLOAT, got {image.dtype} to {dtype}")
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
