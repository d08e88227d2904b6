"""The family of stencils: each element becomes the sum, the median or an extreme of its neighbourhood."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import numpy as np

from ..._core import ffi as _ffi
from ..._core.context import HostContext, LowerContext
from ..._core.operator import NativeOperator, Setup
from ..._core.values import Spec, Value
from ..._cpu import MOST_WINDOW, Border, Status, StencilReduction


@dataclasses.dataclass
class Neighbourhoods:
    """The neighbourhood of each element, for each sample of a batch.

    Attributes:
      window: ``i64[N, axes]``, the extents of the neighbourhood.
      anchor: ``i64[N, axes]``, the index in the neighbourhood of the element that the result replaces.
      weights: ``[N, elements]``, the weights of a sum, row by row.
      fill: ``[N]``, the value outside the image for a constant border. Maxima and minima ignore what is outside.
    """

    window: np.ndarray
    anchor: np.ndarray
    weights: np.ndarray | None = None
    fill: np.ndarray | None = None


class Stencil(NativeOperator):
    """A reduction of the neighbourhood of each element, over the two or three spatial axes."""

    kernel = "stencil"
    only_kernels = True
    reduction: ClassVar[StencilReduction]

    def takes_image(self, image: Spec) -> bool:
        return True

    @property
    def border_type(self) -> Border:
        """How the image goes on outside its edges."""
        raise NotImplementedError(self.name)

    def axes(self, image: Spec) -> tuple[int, int]:
        """The first spatial axis, and the number of spatial axes. Raises ValueError for an unsupported layout."""
        raise NotImplementedError(self.name)

    def neighbourhoods(self, ctx: HostContext, *values: Value) -> Neighbourhoods:
        """The neighbourhoods of a batch."""
        raise NotImplementedError(self.name)

    def infer(self, image: Spec, *others: Spec) -> tuple[Spec, ...]:
        # Raises ValueError for an unsupported layout.
        self.axes(image)
        if image.dtype.name not in _STENCIL_TYPES:
            raise TypeError(f"the input must be {', '.join(_STENCIL_TYPES)}, got {image.dtype}")
        return (image,)

    def setup(self, ctx: HostContext, *values: Value) -> Setup:
        return self.setup_of(ctx, values[0].shapes, self.neighbourhoods(ctx, *values))

    def setup_of(self, ctx: HostContext, shapes: np.ndarray, neighbourhoods: Neighbourhoods) -> Setup:
        """The kernel's parameters, and the outputs' `shapes` unless the spec has them."""
        window = neighbourhoods.window
        for i in np.flatnonzero((window > MOST_WINDOW).any(axis=1) & ctx.present):
            ctx.fail(
                int(i),
                Status.ARGUMENT,
                f"a neighbourhood has at most {MOST_WINDOW} elements along an axis, got {window[i].tolist()}",
            )
        weights = np.zeros((ctx.N, 0)) if neighbourhoods.weights is None else neighbourhoods.weights
        # Padded to a power of two, so that few programs are compiled.
        width = 1 << int(weights.shape[1] - 1).bit_length() if weights.size else 0
        padded = np.zeros((ctx.N, width), np.float32)
        padded[:, : weights.shape[1]] = weights
        params = {
            "weights": padded,
            "window": window.astype(np.int32),
            "anchor": neighbourhoods.anchor.astype(np.int32),
            "fill": (np.zeros(ctx.N) if neighbourhoods.fill is None else neighbourhoods.fill).astype(np.float32),
        }
        return Setup((None if ctx.spec.shape is not None else shapes,), params)

    def lower(self, ctx: LowerContext, *arrays: Any) -> Any:
        first, axes = self.axes(ctx.inputs[0])
        params = [ctx.params[n] for n in ("weights", "window", "anchor", "fill")]
        attrs = {"first": first, "axes": axes, "reduction": int(self.reduction), "border": int(self.border_type)}
        y, status = _ffi.call("stencil", ctx, arrays[0], ctx.spec, ctx.out[0], *params, **attrs)
        return (y,), status


_STENCIL_TYPES = ("uint8", "int8", "uint16", "int16", "float16", "bfloat16", "float32")
