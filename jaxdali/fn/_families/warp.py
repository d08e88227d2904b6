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
    # First axis, how many.
    layouts: ClassVar[dict[str, tuple[int, int]]] = {"HWC": (0, 2), "FHWC": (1, 2), "DHWC": (0, 3), "FDHWC": (1, 3)}
    max_extent: ClassVar[int] = 1 << 26  # the kernel's coordinates are fixed point
    fill_value: float | None
    interp_type: types.DALIInterpType
    dtype: np.dtype | None

    @property
    def linear(self) -> bool:
        return self.interp_type == types.INTERP_LINEAR

    def takes_image(self, image: Spec) -> bool:
        return True

    def layout(self, image: Spec) -> tuple[str, int, int]:
        """Layout, first spatial axis and number of them."""
        layout = image_layout(image, tuple(self.layouts))
        return layout, *self.layouts[layout]

    def extents(self, size: Any) -> np.ndarray:
        """Extents of the result, at least 1. As in DALI, those for all samples are rounded, and those per sample lose
        their fractions.
        """
        half = 0.5 if self.args.is_static("size") else 0.0
        return np.maximum(1, np.floor(np.minimum(size, 2.0 * self.max_extent) + half)).astype(np.int64)

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
          source_map: ``source_map(size)`` gives ``f64[N, dims, dims + 1]``: output pixel (x, y(, z)) to the source
            point of its centre.
        """
        _, first, dims = self.layout(image.spec)
        have = image.shapes[:, first : first + dims]
        if max(size.max(initial=0), have.max(initial=0)) > self.max_extent:
            large = np.any(np.maximum(size, have) > self.max_extent, axis=1)
            for i in np.flatnonzero(large & ctx.present):
                reason = f"extents must not exceed {self.max_extent}, got {size[i].tolist()} of {have[i].tolist()}"
                ctx.fail(int(i), Status.TOO_LARGE, reason)
            size = np.where(large[:, None], 1, size)
        # Where it is blended with pixels of the image, the fill value is first made one of these.
        kinds = (image.spec.dtype, ctx.spec.dtype) if self.linear else (ctx.spec.dtype,)
        params = {"map": source_map(size), "fill": np.full(ctx.N, _as_pixel(self.fill_value or 0.0, kinds), np.float32)}
        shapes = None
        if ctx.spec.shape is None:
            shapes = np.concatenate([image.shapes[:, :first], size, image.shapes[:, first + dims :]], axis=1)
        return Setup((shapes,), params)

    def makes_windows(self, image: Spec, made: Spec) -> bool:
        return image.ndim == 3 and image.dtype == made.dtype == np.uint8

    def call(self, ctx: LowerContext) -> _ffi.KernelCall:
        _, first, dims = self.layout(ctx.inputs[0])
        attrs = {"dims": dims, "first": first, "linear": self.linear, "has_fill": self.fill_value is not None}
        return _ffi.KernelCall((ctx.params["map"], ctx.params["fill"]), attrs)


@functools.lru_cache(maxsize=1024)
def _as_pixel(x: float, kinds: tuple[np.dtype, ...]) -> np.float32:
    """A number converted to one type after the other."""
    pixel = np.asarray([x], np.float32)
    for dtype in kinds:
        pixel = convert(np, pixel, dtype).astype(np.float32)
    return pixel[0]


_WARP_TYPES = ("uint8", "int16", "int32", "float16", "bfloat16", "float32")
