"""The family of gathers: pixels taken at points that are computed or given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np

from ... import types
from ..._core import ffi as _ffi
from ..._core.context import HostContext, LowerContext
from ..._core.operator import NativeOperator, Setup
from ..._core.values import Spec, Value
from ..._cpu import Border, Points
from .conversion import convert
from .layouts import image_layout, spec_of


class PointGather(NativeOperator):
    """A gather: each output pixel is the image's value at a point, which is computed or given."""

    kernel = "remap"
    only_kernels = True
    points: ClassVar[Points]
    layouts: ClassVar[tuple[str, ...]] = ("HWC", "FHWC")
    types: ClassVar[tuple[str, ...]] = ("uint8", "int16", "uint16", "float16", "bfloat16", "float32")

    @property
    def interpolation(self) -> types.DALIInterpType:
        """INTERP_NN, INTERP_LINEAR or INTERP_CUBIC."""
        return types.INTERP_NN

    @property
    def beyond(self) -> Border:
        """What is outside of the image; of `Border.CONSTANT` the fill value."""
        return Border.CONSTANT

    def takes_image(self, image: Spec) -> bool:
        return True

    def layout(self, image: Spec) -> tuple[str, int]:
        """Layout, and the axis H, behind which W is."""
        layout = image.layout or {2: "HW"}.get(image.ndim, "")
        layout = layout if layout in self.layouts else image_layout(image, self.layouts)
        return layout, layout.index("H")

    def output(self, image: Spec, size: Sequence[int | None]) -> Spec:
        """The spec of the output, of known or unknown size ``(H, W)``. Raises ValueError for element types that are not
        taken.
        """
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
          numbers: ``f64[N, count]``, see ffi/remap/remap.h.
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
            "border": int(self.beyond),
            "first": self.layout(ctx.inputs[0])[1],
        }
        p = ctx.params
        operands = (*map_x, *map_y, p["numbers"], p["fill"], p["applied"])
        y, status = _ffi.call("remap", ctx, image, ctx.spec, ctx.out[0], *operands, **attrs)
        return (y,), status
