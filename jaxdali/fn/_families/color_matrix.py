"""The family of linear maps of channels."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import numpy as np

from ..._core import ffi as _ffi
from ..._core.arguments import Values
from ..._core.context import HostContext, LowerContext
from ..._core.operator import NativeOperator, Setup
from ..._core.values import Spec, Value
from ..._cpu import Status
from .layouts import DEFAULT_LAYOUTS, image_layout


class ColorMatrix(NativeOperator):
    """A linear map of the channels of each pixel, with an offset."""

    kernel = "color"
    only_kernels = True
    # The number of channels of the input. 1: the map is applied to each element, in data of any layout.
    colors: ClassVar[int] = 3
    dtype: np.dtype | None  # of the output; None: the input's

    def takes_image(self, image: Spec) -> bool:
        return True

    def matrix(self, ctx: HostContext, image: Spec, a: Values) -> np.ndarray:
        """The maps, ``f64[N, output channels, input channels + 1]``, with the offset in the last column."""
        raise NotImplementedError(self.name)

    def infer(self, image: Spec, *arguments: Spec) -> tuple[Spec, ...]:
        """The input's shape in the type `dtype`. Raises ValueError for types that the kernel lacks, or another number
        of channels.
        """
        dtype = self.dtype or image.dtype
        if image.dtype.itemsize > 4 or dtype.itemsize > 4 or image.dtype.kind == "b":
            raise ValueError(
                f"the input must be of an integer or float type of at most 32 bits, and the output; got {image.dtype} to {dtype}"
            )
        if self.colors == 1:
            return (
                dataclasses.replace(image, dtype=dtype, layout=image.layout or DEFAULT_LAYOUTS.get(image.ndim, "")),
            )
        return self.pixels(image, dtype)

    def pixels(self, image: Spec, dtype: np.dtype) -> tuple[Spec, ...]:
        """The spec of an image of the same shape in another element type. Raises ValueError unless it has `colors`
        channels.
        """
        layout = image_layout(image, ("HWC", "FHWC", "DHWC", "FDHWC"))
        if image.extent(image.ndim - 1) not in (None, self.colors):
            raise ValueError(f"the input must have {self.colors} channels, got {image.extent(image.ndim - 1)}")
        return (dataclasses.replace(image, dtype=dtype, layout=layout),)

    def setup(self, ctx: HostContext, *values: Value) -> Setup:
        """The maps of the samples, and the shapes unless the spec has them. A sample with another number of channels
        than `colors` fails.
        """
        image = values[0]
        if self.colors > 1:
            # Checked for each sample, because the spec lacks the number of channels if it may vary.
            for i in np.flatnonzero((image.shapes[:, -1] != self.colors) & ctx.present):
                ctx.fail(int(i), Status.INPUT, f"the input must have {self.colors} channels, got {image.shapes[i, -1]}")
        matrix = self.matrix(ctx, image.spec, self.arguments(ctx, values)).astype(np.float32)
        return Setup((None if ctx.spec.shape is not None else image.shapes,), {"matrix": matrix})

    def lower(self, ctx: LowerContext, *arrays: Any) -> Any:
        y, status = _ffi.call("color", ctx, arrays[0], ctx.spec, ctx.out[0], ctx.params["matrix"])
        return (y,), status
