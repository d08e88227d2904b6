"""The family of affine maps."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from ... import types
from ..._core import ffi as _ffi
from ..._core.context import HostContext, LowerContext
from ..._core.operator import Setup, StageOperator
from ..._core.values import Spec, Value
from ..._cpu import Status
from .conversion import convert
from .layouts import image_layout, spec_of


class Warp(StageOperator):
    """An affine map of images or volumes."""

    kernel = "warp"
    # By layout: the first spatial axis, and the number of spatial axes.
    layouts: ClassVar[dict[str, tuple[int, int]]] = {"HWC": (0, 2), "FHWC": (1, 2), "DHWC": (0, 3), "FDHWC": (1, 3)}
    max_extent: ClassVar[int] = 1 << 26  # the kernel's coordinates are fixed point
    fill_value: float | None  # None: outside the image, the nearest pixel of its edge is repeated
    interp_type: types.DALIInterpType
    dtype: np.dtype | None

    @property
    def linear(self) -> bool:
        return self.interp_type == types.INTERP_LINEAR

    def takes_image(self, image: Spec) -> bool:
        return True

    def layout(self, image: Spec) -> tuple[str, int, int]:
        """The layout, the first spatial axis, and the number of spatial axes."""
        layout = image_layout(image, tuple(self.layouts))
        return layout, *self.layouts[layout]

    def extents(self, size: Any) -> np.ndarray:
        """Extents of the result by the argument `size`, at least 1. As in DALI, a size for all samples is rounded, and
        a size per sample loses its fraction.
        """
        half = 0.5 if self.args.is_static("size") else 0.0
        # Clipped before they become integers, to extents that `setup_of` still refuses.
        return np.maximum(1, np.floor(np.minimum(size, 2.0 * self.max_extent) + half)).astype(np.int64)

    def output(self, image: Spec, size: Sequence[int | None]) -> Spec:
        """The spec of an output of these spatial extents (None: unknown). Raises ValueError for unsupported types."""
        layout, first, _ = self.layout(image)
        dtype = self.dtype or image.dtype
        is_supported = image.dtype.name in _WARP_TYPES and dtype.name in _WARP_TYPES
        if not is_supported or (dtype != image.dtype and np.float32 not in (dtype, image.dtype)):
            raise ValueError(
                f"the input must be {', '.join(_WARP_TYPES)}, the output the same or float32 (any of these from float32); "
                f"got {image.dtype} to {dtype}; fn.cast converts it"
            )
        return spec_of(dtype, (*(image.extent(d) for d in range(first)), *size, image.extent(image.ndim - 1)), layout)

    def setup_of(self, ctx: HostContext, image: Value, size: np.ndarray, source_map: Any) -> Setup:
        """The outputs' shapes and the kernel's parameters. Samples with too large extents fail.

        Args:
          size: ``i64[N, dims]``, spatial extents of the outputs.
          source_map: ``source_map(size)`` returns affine maps ``f64[N, dims, dims + 1]`` from an output pixel (x, y(,
            z)) to the source point of its centre. It is called with extents of 1 where a sample failed.
        """
        _, first, dims = self.layout(image.spec)
        source_size = image.shapes[:, first : first + dims]
        # Tested for all at once first: a sample is rarely too large.
        if max(size.max(initial=0), source_size.max(initial=0)) > self.max_extent:
            large = np.any(np.maximum(size, source_size) > self.max_extent, axis=1)
            for i in np.flatnonzero(large & ctx.present):
                reason = (
                    f"extents must not exceed {self.max_extent}, got {size[i].tolist()} of {source_size[i].tolist()}"
                )
                ctx.fail(int(i), Status.TOO_LARGE, reason)
            size = np.where(large[:, None], 1, size)
        # Linear interpolation blends the fill value with pixels of the image, so it is converted to their type first.
        dtypes = (image.spec.dtype, ctx.spec.dtype) if self.linear else (ctx.spec.dtype,)
        fill = np.full(ctx.N, _as_pixel(self.fill_value or 0.0, dtypes), np.float32)
        params = {"map": source_map(size), "fill": fill}
        shapes = None
        if ctx.spec.shape is None:
            shapes = np.concatenate([image.shapes[:, :first], size, image.shapes[:, first + dims :]], axis=1)
        return Setup((shapes,), params)

    def makes_windows(self, image: Spec, made: Spec) -> bool:
        """See `StageOperator.makes_windows`: the GPU's kernel for windows takes images HWC of bytes, not sequences."""
        return image.ndim == 3 and image.dtype == made.dtype == np.uint8

    def call(self, ctx: LowerContext) -> _ffi.KernelCall:
        _, first, dims = self.layout(ctx.inputs[0])
        attrs = {"dims": dims, "first": first, "linear": self.linear, "has_fill": self.fill_value is not None}
        return _ffi.KernelCall((ctx.params["map"], ctx.params["fill"]), attrs)


@functools.lru_cache(maxsize=1024)
def _as_pixel(x: float, dtypes: tuple[np.dtype, ...]) -> np.float32:
    """`x` converted to one element type after the other."""
    pixel = np.asarray([x], np.float32)
    for dtype in dtypes:
        pixel = convert(np, pixel, dtype).astype(np.float32)
    return pixel[0]


_WARP_TYPES = ("uint8", "int16", "int32", "float16", "bfloat16", "float32")
