"""jpeg_compression_distortion: the artifacts of JPEG compression."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, Unpack

import numpy as np

from ..._core import ffi as _ffi
from ..._core.context import HostContext, LowerContext
from ..._core.graph import DataNode
from ..._core.operator import NativeOperator, Setup
from ..._core.operator_function import Hints, Input, PerSample, operator_function
from ..._core.values import Spec, Value
from ..._cpu import MCU_BYTES, MCU_SIDE, Status
from .._families import image_layout

# ITU-T T.81, tables K.1 and K.2: quantizers of luminance and of chroma for quality 50.
_LUMINANCE = """
16 11 10 16 24 40 51 61  12 12 14 19 26 58 60 55  14 13 16 24 40 57 69 56  14 17 22 29 51 87 80 62
18 22 37 56 68 109 103 77  24 35 55 64 81 104 113 92  49 64 78 87 103 121 120 101  72 92 95 98 112 100 103 99
"""
_CHROMA = """
17 18 24 47 99 99 99 99  18 21 26 66 99 99 99 99  24 26 56 99 99 99 99 99  47 66 99 99 99 99 99 99
99 99 99 99 99 99 99 99  99 99 99 99 99 99 99 99  99 99 99 99 99 99 99 99  99 99 99 99 99 99 99 99
"""
_TABLES = np.array([_LUMINANCE.split(), _CHROMA.split()], np.int64)


class JpegCompressionDistortion(NativeOperator):
    """Compression with chroma at half the resolution, and decompression, both as libjpeg does them."""

    name = "jpeg_compression_distortion"
    kernel = "jpeg_distortion"
    only_kernels = True

    def takes_image(self, image: Spec) -> bool:
        return True

    def infer(self, image: Spec, *arguments: Spec) -> tuple[Spec, ...]:
        """The input, which must be RGB images of uint8, or sequences of them."""
        layout = image_layout(image, ("HWC", "FHWC"))
        if image.dtype != np.uint8:
            raise TypeError(f"the input must be uint8, got {image.dtype}")
        if image.extent(image.ndim - 1) not in (None, 3):
            raise ValueError(f"the input must have 3 channels, got {image.extent(image.ndim - 1)}")
        return (dataclasses.replace(image, layout=layout),)

    def setup(self, ctx: HostContext, *values: Value) -> Setup:
        """The quantizers, ``i32[N, 2, 64]``, the place of each sample's units in the working memory, and the shapes."""
        shapes = values[0].shapes
        for i in np.flatnonzero((shapes[:, -1] != 3) & ctx.present):
            ctx.fail(int(i), Status.INPUT, f"the input must have 3 channels, got {shapes[i, -1]}")
        quality = np.clip(self.arguments(ctx, values).quality, 1, 100)
        # As jpeg_quality_scaling and jpeg_add_quant_table in libjpeg: a percentage of the tables, for 8-bit quantizers.
        percent = np.where(quality < 50, 5000 // quality, 200 - 2 * quality)
        tables = np.clip((_TABLES * percent[:, None, None] + 50) // 100, 1, 255)
        # Minimum coded units (MCU) of each sample, and the first one in the working memory of its shard.
        units = (-(-shapes[:, -3:-1] // MCU_SIDE)).prod(axis=1) * shapes[:, :-3].prod(axis=1)
        units = units.reshape(ctx.S, ctx.B)
        first = (np.cumsum(units, axis=1) - units).reshape(-1)
        params = {"tables": tables.astype(np.int32), "first": first.astype(np.int32)}
        return Setup(
            (None if ctx.spec.shape is not None else shapes,),
            params,
            scratch=MCU_BYTES * int(units.sum(axis=1).max(initial=1)),
        )

    def lower(self, ctx: LowerContext, *arrays: Any) -> Any:
        # The CPU kernel leaves the working memory untouched.
        params = ctx.params["tables"], ctx.params["first"]
        y, status = _ffi.call("jpeg_distortion", ctx, arrays[0], ctx.spec, ctx.out[0], *params, scratch=ctx.scratch)
        return (y,), status


@operator_function(JpegCompressionDistortion)
def jpeg_compression_distortion(
    input: Input,
    /,
    *,
    quality: PerSample[int] = 50,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """Adds the artifacts of JPEG compression to images: blocks, ringing, blurred colours.

    The results equal compression (4:2:0) and decompression by libjpeg-turbo with its defaults, on every device. DALI's
    GPU operator gives slightly different results.

    Args:
      input: uint8 RGB images or sequences, HWC or FHWC.
      quality: quality of the compression, 1 (worst) to 100; values outside are clipped. May be per sample.

    Returns:
      The input's shape and layout.

    Raises:
      TypeError: the input is not uint8.
      ValueError: wrong layout or number of channels.

    Example:
      >>> fn.jpeg_compression_distortion(images, quality=fn.random.uniform(range=(10, 90), dtype=types.INT32))
    """
    ...
