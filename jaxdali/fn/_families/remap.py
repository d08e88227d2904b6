"""The family of gathers: each output pixel is the image's value at a point, which is computed or read from a map."""

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
    """A gather: each output pixel is the image's value at a point. The kernel computes the points by the formula
    `points`, or reads them from maps.
    """

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
    def border_type(self) -> Border:
        """How the image goes on outside its edges; with `Border.CONSTANT` by the fill value."""
        return Border.CONSTANT

    def takes_image(self, image: Spec) -> bool:
        return True

    def layout(self, image: Spec) -> tuple[str, int]:
        """The layout, and the index of the axis H. The axis W is behind it."""
        layout = image.layout or {2: "HW"}.get(image.ndim, "")
        layout = layout if layout in self.layouts else image_layout(image, self.layouts)
        return layout, layout.index("H")

    def output(self, image: Spec, size: Sequence[int | None]) -> Spec:
        """The spec of an output of the size ``(H, W)`` (None: unknown). Raises ValueError for unsupported types."""
        layout, first = self.layout(image)
        if image.dtype.name not in self.types:
            raise ValueError(f"the input must be {', '.join(self.types)}, got {image.dtype}")
        extents = [image.extent(d) for d in range(image.ndim)]
        extents[first : first + 2] = size
        return spec_of(image.dtype, extents, layout)

    def infer(self, image: Spec, *arguments: Spec) -> tuple[Spec, ...]:
        """By default, the output has the size of the image."""
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
        """The outputs' shapes and the kernel's parameters.

        Args:
          numbers: ``f64[N, count]``, the parameters of the formula `points`, see ffi/remap/remap.h.
          size: ``i64[N, 2]``, H and W of the outputs. Default: the images'.
          fill: the value outside the image, one number or one per channel.
          applied: ``[N]``; samples with 0 stay unchanged. Default: all are changed.
        """
        _, first = self.layout(image.spec)
        shapes = image.shapes.copy()
        if size is not None:
            shapes[:, first : first + 2] = size
        # As a pixel of the image's type can hold it; the kernel's operand is float32 for all types.
        color = convert(np, np.atleast_1d(np.asarray(fill, np.float64)), image.spec.dtype).astype(np.float32)
        params = {
            "numbers": numbers.astype(np.float64),
            "fill": np.tile(color, (ctx.N, 1)),
            "applied": np.ones(ctx.N, np.int32) if applied is None else (applied != 0).astype(np.int32),
        }
        return Setup((None if ctx.spec.shape is not None else shapes,), params)

    def lower(self, ctx: LowerContext, *arrays: Any) -> Any:
        # The kernel computes the points, so that the operands for given ones are empty.
        no_map = (jnp.zeros((0,), jnp.float32), jnp.zeros((0,), jnp.int32))
        return self.lower_with(ctx, arrays[0], no_map, no_map)

    def lower_with(self, ctx: LowerContext, image: Any, map_x: tuple[Any, Any], map_y: tuple[Any, Any]) -> Any:
        """Launches the kernel. `map_x`, `map_y`: coordinates of the points as (flat data, offsets), empty if they are
        computed.
        """
        _, first = self.layout(ctx.inputs[0])  # the axis H
        attrs = {
            "points": int(self.points),
            "sampling": int(self.interpolation),
            "border": int(self.border_type),
            "first": first,
        }
        p = ctx.params
        operands = (*map_x, *map_y, p["numbers"], p["fill"], p["applied"])
        y, status = _ffi.call("remap", ctx, image, ctx.spec, ctx.out[0], *operands, **attrs)
        return (y,), status
