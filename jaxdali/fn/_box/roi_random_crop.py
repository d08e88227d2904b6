"""roi_random_crop: random windows that contain as much of a region as possible."""

from __future__ import annotations

import dataclasses
from typing import Literal, Unpack

import numpy as np

from ..._core.arguments import Arguments
from ..._core.building import add, is_node
from ..._core.context import BuildContext, HostContext
from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._core.operator import HostOperator, Operator
from ..._core.operator_function import Input, OneOrMore, PerSample, SeededHints, operator_function
from ..._core.values import Spec, Value
from ..._cpu import Status
from .._families.drawing import uniforms


class RoiRandomCrop(HostOperator):
    """Draws the first indices of a window, from the start of a region and the extents of both."""

    name = "roi_random_crop"
    random = True
    has_data: bool  # whether the first input is the data, whose shape is the limit
    seed: int

    def __post_init__(self):
        if ("roi_end" in self.args) == ("roi_shape" in self.args):
            raise ArgumentError("give either roi_end or roi_shape")
        if self.has_data and "in_shape" in self.args:
            raise ArgumentError("give either an input or in_shape")

    def run_reads(self, i: int) -> bool:
        return i > 0 or not self.has_data

    def bind(self, ctx: BuildContext, *inputs: Spec) -> Operator:
        return dataclasses.replace(self, args=self.args.measure(ctx, inputs, *self.args.inputs))

    def _num_axes(self, inputs: tuple[Spec, ...]) -> int:
        """The number of axes of the window and of the region."""
        widths = {
            n: self.args.width(n, inputs)
            for n in ("crop_shape", "roi_start", "roi_end", "roi_shape", "in_shape")
            if n in self.args
        }
        axes = max([w for w in widths.values() if w is not None] + [1])
        if axes == 1 and None in widths.values():
            raise ArgumentError("crop_shape and the region must have the same number of elements in all samples")
        input_ndim = inputs[0].ndim if self.has_data else axes
        if any(w not in (1, axes, None) for w in widths.values()) or input_ndim < axes:
            raise ArgumentError(
                f"crop_shape and the region must have one number of axes, at most the {input_ndim} of the input; got {widths}"
            )
        return axes

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        return (Spec(np.dtype(np.int64), 1, (self._num_axes(inputs),)),)

    def run(self, ctx: HostContext, *inputs: Value) -> tuple[np.ndarray]:
        """Draws the starts. A sample whose region or window is not inside the extents fails."""
        a, axes = self.arguments(ctx, inputs), self._num_axes(tuple(x.spec for x in inputs))

        def vector(name: str) -> np.ndarray:
            """An argument as whole numbers, ``i64[N, axes]``."""
            values = a.vector(name, axes, one_for_all=True)
            assert values is not None, name
            return values.astype(np.int64)

        crop, first = vector("crop_shape"), vector("roi_start")
        last = vector("roi_end") if "roi_end" in a else first + vector("roi_shape")
        # The window may start anywhere between two places: where it starts with the region, and where it ends with it.
        # A larger window contains the region then, and a smaller one lies inside it.
        low, high = np.minimum(first, last - crop), np.maximum(first, last - crop)
        limit = inputs[0].shapes[:, :axes] if self.has_data else vector("in_shape") if "in_shape" in a else None
        if limit is not None:
            is_outside = (crop > limit) | (first < 0) | (last > limit)
            for i in np.flatnonzero(is_outside.any(axis=1) & ctx.present):
                d = int(is_outside[i].argmax())
                reason = f"the region {first[i, d]} ... {last[i, d]} and crop_shape {crop[i, d]}"
                ctx.fail(
                    int(i), Status.OUT_OF_RANGE, f"{reason} must be inside of the extent {limit[i, d]} of axis {d}"
                )
            low, high = np.maximum(low, 0), np.minimum(high, limit - crop)
        return (low + (uniforms(ctx, self.seed, axes) * (high - low + 1)).astype(np.int64),)


@operator_function("roi_random_crop")
def roi_random_crop(
    input: Input | None = None,
    /,
    *,
    crop_shape: PerSample[OneOrMore[int]],
    roi_start: PerSample[OneOrMore[int]],
    roi_end: PerSample[OneOrMore[int]] | None = None,
    roi_shape: PerSample[OneOrMore[int]] | None = None,
    in_shape: PerSample[OneOrMore[int]] | None = None,
    seed: int = -1,
    device: Literal["cpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[SeededHints],
) -> DataNode:
    """Draws the start of a window that shows as much of a region of interest as it can.

    Along an axis where the region is larger than the window, the window lies inside the region; along others, the
    region lies inside the window. All positions are equally likely. Differs from DALI: the same seed gives other
    numbers.

    Args:
      input: the data that the window must lie in. Only the shapes are read, and only of the first axes if the other
        arguments have fewer axes. Optional.
      crop_shape: extents of the window, in elements: one number, or one per axis. May be per sample.
      roi_start: first indices of the region. May be per sample.
      roi_end, roi_shape: the indices after the region's last element, or its extents; give one of them. May be per
        sample.
      in_shape: extents that the window must lie in, instead of those of an input. Default: no limits. May be per
        sample.
      seed: fixes the random numbers regardless of the pipeline's seed and of the operator's place in the pipeline; a
        negative seed counts as not given.

    Returns:
      The first indices of the window, 1-D int64.

    Raises:
      ArgumentError: arguments that can't be combined, or that have different numbers of axes.
      OperatorError: the window is larger than the data, or the region lies outside the data.

    Example:
      >>> start = fn.roi_random_crop(images, crop_shape=(224, 224, 3), roi_start=start, roi_end=end)
      >>> images = fn.slice(images, start=start, shape=(224, 224, 3), axes=(0, 1, 2))
    """
    arguments = {
        "crop_shape": crop_shape,
        "roi_start": roi_start,
        "roi_end": roi_end,
        "roi_shape": roi_shape,
        "in_shape": in_shape,
    }
    args, nodes = Arguments.of(arguments, is_node)
    op = RoiRandomCrop(has_data=input is not None, seed=seed, args=args)
    return add(op, *(() if input is None else (input,)), *nodes, device=device, name=name)
