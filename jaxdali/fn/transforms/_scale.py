"""Scaling."""

from __future__ import annotations

import dataclasses
from typing import Literal, Unpack

import numpy as np

from ..._core.arguments import Values
from ..._core.context import BuildContext
from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._core.operator import Operator
from ..._core.operator_function import Hints, InputPerFrame, OneOrMore, PerFrame, operator_function
from ..._core.values import Spec
from ._transform import Transform, known_width


class Scale(Transform):
    """Multiplies each coordinate."""

    name = "transforms.scale"
    ndim: int | None  # the number of dimensions, if there is a single factor for all

    def bind(self, ctx: BuildContext, *specs: Spec) -> Operator:
        op = super().bind(ctx, *specs)
        assert isinstance(op, Scale)
        # A single factor scales all coordinates of the input transform, if the number of these is known (not None).
        ndim = op.input_dimensions(ctx, specs)
        return dataclasses.replace(op, ndim=ndim) if ndim is not None and op.args.width("scale", specs) == 1 else op

    def dimensions(self, specs: tuple[Spec, ...]) -> int:
        """The argument `ndim`, or the number of factors. A single factor stands for all axes."""
        width = known_width(self.args.width("scale", specs), "scale")
        if self.ndim is None or self.ndim == width:
            return width
        if width != 1:
            raise ArgumentError(f"ndim={self.ndim}, but scale has {width} elements")
        return self.ndim

    def matrix(self, a: Values, ndim: int) -> np.ndarray:
        factors = a.vector("scale", ndim, one_for_all=True)
        assert factors is not None
        return factors[:, :, None] * np.eye(ndim)


@operator_function(Scale)
def scale(
    input: InputPerFrame | None = None,
    /,
    *,
    scale: PerFrame[OneOrMore[float]],
    center: PerFrame[OneOrMore[float]] | None = None,
    ndim: int | None = None,
    reverse_order: bool = False,
    device: Literal["cpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """Makes a scaling.

    Args:
      input: another transform, ``f32[D, D+1]``, to combine with. May be per frame.
      scale: factors of the D coordinates. May be per sample or frame.
      center: the point that does not move. Default: the origin. May be per sample or frame.
      ndim: D, if `scale` is one number for all coordinates. Default: D of the input, or 1 without an input.
      reverse_order: whether the new transform is applied before that of the input. By default the input's is applied
        first.

    Returns:
      ``f32[D, D+1]``, a host value; it has an axis F in front if an input or argument is per frame.

    Raises:
      ArgumentError: the numbers of dimensions differ.

    Example:
      >>> fn.transforms.scale(scale=(2.0, 0.5), center=(128.0, 128.0))
    """
    ...
