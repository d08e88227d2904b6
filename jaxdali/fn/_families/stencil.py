"""The family of reductions of the window around each element."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import numpy as np

from ..._core import ffi as _ffi
from ..._core.context import HostContext, LowerContext
from ..._core.operator import NativeOperator, Setup
from ..._core.values import Spec, Value
from ..._cpu import Border, StencilReduction


@dataclasses.dataclass
class Around:
    """Which window around each element a `Stencil` reduces.

    Attributes:
      window: ``i64[N, axes]``, extents.
      anchor: ``i64[N, axes]``, which of its elements is at the element of the result.
      weights: ``[N, most]``, of sums: row by row of a window.
      fill: ``[N]``, what is beyond a constant border; maxima and minima leave that out.
    """

    window: np.ndarray
    anchor: np.ndarray
    weights: np.ndarray | None = None
    fill: np.ndarray | None = None


class Stencil(NativeOperator):
    """A reduction of the window around each element, over the two or three spatial axes."""

    kernel = "stencil"
    only_kernels = True
    reduction: ClassVar[StencilReduction]

    def takes_image(self, image: Spec) -> bool:
        return True

    @property
    def beyond(self) -> Border:
        """What stands beyond the border."""
        raise NotImplementedError(self.name)

    def axes(self, image: Spec) -> tuple[int, int]:
        """The first spatial axis, and how many there are. Raises ValueError for a layout that is not taken."""
        raise NotImplementedError(self.name)

    def around(self, ctx: HostContext, *values: Value) -> Around:
        """The windows of a batch."""
        raise NotImplementedError(self.name)

    def infer(self, image: Spec, *others: Spec) -> tuple[Spec, ...]:
        self.axes(image)
        if image.dtype.name not in _STENCIL_TYPES:
            raise TypeError(f"the input must be {', '.join(_STENCIL_TYPES)}, got {image.dtype}")
        return (image,)

    def setup(self, ctx: HostContext, *values: Value) -> Setup:
        return self.setup_of(ctx, values[0].shapes, self.around(ctx, *values))

    def setup_of(self, ctx: HostContext, shapes: np.ndarray, around: Around) -> Setup:
        """What `setup` returns."""
        weights = np.zeros((ctx.N, 0)) if around.weights is None else around.weights
        room = 1 << int(weights.shape[1] - 1).bit_length() if weights.size else 0  # few programs are compiled
        padded = np.zeros((ctx.N, room), np.float32)
        padded[:, : weights.shape[1]] = weights
        params = {
            "weights": padded,
            "window": around.window.astype(np.int32),
            "anchor": around.anchor.astype(np.int32),
            "fill": (np.zeros(ctx.N) if around.fill is None else around.fill).astype(np.float32),
        }
        return Setup((None if ctx.spec.shape is not None else shapes,), params)

    def lower(self, ctx: LowerContext, *arrays: Any) -> Any:
        first, axes = self.axes(ctx.inputs[0])
        params = [ctx.params[n] for n in ("weights", "window", "anchor", "fill")]
        attrs = {"first": first, "axes": axes, "reduction": int(self.reduction), "border": int(self.beyond)}
        y, status = _ffi.call("stencil", ctx, arrays[0], ctx.spec, ctx.out[0], *params, **attrs)
        return (y,), status


_STENCIL_TYPES = ("uint8", "int8", "uint16", "int16", "float16", "bfloat16", "float32")
