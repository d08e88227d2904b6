"""transforms.combine: the product of transforms."""

from __future__ import annotations

import dataclasses
from typing import Literal, Unpack

import numpy as np

from ..._core.context import BuildContext, HostContext
from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._core.operator import HostOperator, Operator
from ..._core.operator_function import Hints, InputPerFrame, operator_function
from ..._core.values import Spec, Value
from ._transform import LAYOUT, check_transform, then


class Combine(HostOperator):
    """Combines all inputs; the first input is applied first."""

    name = "transforms.combine"
    reverse_order: bool  # whether the last input is applied first
    shape: tuple[int, ...] | None = None  # from a source's first sample, if no input's spec has it

    def bind(self, ctx: BuildContext, *specs: Spec) -> Operator:
        """Fills in `shape`, if the input comes from a source."""
        # A source's spec has no shape, but its first sample does.
        shape = self.shape
        for i, t in enumerate(specs):
            first = ctx.first_shape(i) if t.shape is None else None
            # An affine matrix, [d, d + 1].
            if first is not None and len(first) == 2 and first[1] == first[0] + 1:
                shape = first
        return dataclasses.replace(self, shape=shape)

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """A transform of the inputs' number of dimensions; if none of them tells it, its shape varies."""
        if len(inputs) < 2:
            raise ArgumentError(f"needs at least two transforms, got {len(inputs)}")
        for t in inputs:
            check_transform(t)
        distinct_shapes = {t.shape for t in inputs if t.shape is not None} or (
            {self.shape} if self.shape is not None else set()
        )
        if len(distinct_shapes) > 1:
            raise ArgumentError(
                f"the transforms have different numbers of dimensions: {sorted(s[0] for s in distinct_shapes)}"
            )
        if distinct_shapes:
            return (Spec(np.dtype(np.float32), 2, distinct_shapes.pop(), LAYOUT),)
        return (Spec(np.dtype(np.float32), 2, None, LAYOUT),)

    def run(self, ctx: HostContext, *inputs: Value) -> tuple[np.ndarray | list[np.ndarray]]:
        """The products, in double precision. Raises ArgumentError if the transforms have another shape than the first
        sample.
        """
        matrices = [t.dense("a transform", ctx.present).astype(np.float64) for t in inputs]
        out = matrices[0]
        for t in matrices[1:]:
            out = then(t, out) if self.reverse_order else then(out, t)
        if ctx.spec.shape is not None and out.shape[1:] != ctx.spec.shape:
            raise ArgumentError(
                f"the transforms are {out.shape[1]}-D in this batch, and {ctx.spec.shape[0]}-D in the first sample"
            )
        out = out.astype(np.float32)
        return (out if ctx.spec.shape is not None else list(out),)


@operator_function(Combine)
def combine(
    *inputs: InputPerFrame,
    reverse_order: bool = False,
    device: Literal["cpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """Combines transforms into one that applies them one after the other, the first input first.

    Args:
      *inputs: two or more transforms ``f32[D, D+1]``, host values. May be per frame.
      reverse_order: whether the last one is applied first.

    Returns:
      ``f32[D, D+1]``, a host value; it has an axis F in front if an input or argument is per frame.

    Raises:
      ArgumentError: an input is not a transform, or the numbers of dimensions differ.

    Example:
      >>> fn.transforms.combine(fn.transforms.rotation(angle=30.0), fn.transforms.translation(offset=(8.0, 0.0)))
    """
    ...
