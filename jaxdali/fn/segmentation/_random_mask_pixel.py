"""Random pixels of masks."""

from __future__ import annotations

from typing import Any, Literal, Unpack

import numpy as np

from ..._core.arguments import Arguments
from ..._core.building import add, is_node
from ..._core.context import HostContext
from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._core.operator import HostOperator
from ..._core.operator_function import Input, PerSample, SeededHints, operator_function
from ..._core.values import Spec, Value
from ..._cpu import Status
from ...types import is_number
from .._families.drawing import uniforms


class RandomMaskPixel(HostOperator):
    """Draws the indices of one element of a mask."""

    name = "segmentation.random_mask_pixel"
    random = True
    seed: int

    def infer(self, mask: Spec, *arguments: Spec) -> tuple[Spec, ...]:
        if not (mask.dtype == np.bool_ or is_number(mask.dtype)) or not mask.ndim:
            raise ArgumentError(
                f"the input must be masks of numbers with at least one axis, got {mask.ndim}-D {mask.dtype}"
            )
        return (Spec(np.dtype(np.int64), 1, (mask.ndim,)),)

    def run(self, ctx: HostContext, mask: Value, *arguments: Value) -> tuple[Any, ...]:
        """Draws the index of a pixel among those of the foreground, or among all, for each sample."""
        a, u = self.arguments(ctx, arguments), uniforms(ctx, self.seed, 1)[:, 0]
        out = np.zeros((ctx.N, mask.spec.ndim), np.int64)
        for i in np.flatnonzero(ctx.present).tolist():
            x = mask.sample(i)
            if not x.size:
                ctx.fail(i, Status.INPUT, f"the mask is empty, of shape {x.shape}")
                continue
            pixels = np.zeros(0, np.int64)
            if a.foreground[i]:
                pixels = np.flatnonzero(x == a.value[i] if "value" in a else x > a.threshold[i])
            # Any pixel if there is no foreground.
            k = pixels[int(u[i] * len(pixels))] if len(pixels) else int(u[i] * x.size)
            out[i] = np.unravel_index(k, x.shape)
        return (out,)


@operator_function("segmentation.random_mask_pixel")
def random_mask_pixel(
    input: Input,
    /,
    *,
    foreground: PerSample[int] = 0,
    threshold: PerSample[float] | None = None,
    value: PerSample[int] | None = None,
    seed: int = -1,
    device: Literal["cpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[SeededHints],
) -> DataNode:
    """Draws a random pixel of a mask, from its foreground or from all pixels.

    Differs from DALI: the same seed gives other numbers, and an empty mask is an error.

    Args:
      input: masks of numbers, of any number of axes. A host value.
      foreground: whether to draw from the foreground, if there is one; 0 draws from all pixels. May be per sample.
      threshold: elements above it are foreground. Default: 0. May be per sample.
      value: elements equal to it are foreground, instead of those above the threshold. May be per sample.
      seed: fixes the random numbers regardless of the pipeline's seed and of the operator's place in the pipeline; a
        negative seed counts as not given.

    Returns:
      The indices of the pixel, 1-D int64, one per axis of the mask.

    Raises:
      ArgumentError: both `threshold` and `value` are given, or the mask is a scalar.
      OperatorError: a mask has no pixels.

    Example:
      >>> center = fn.segmentation.random_mask_pixel(masks, foreground=1)
    """
    if threshold is not None and value is not None:
        raise ArgumentError("give either threshold or value")
    threshold = 0.0 if threshold is None and value is None else threshold
    args, nodes = Arguments.of({"foreground": foreground, "threshold": threshold, "value": value}, is_node)
    return add(RandomMaskPixel(seed=seed, args=args), input, *nodes, device=device, name=name)
