"""Tensors of a value that an input gives."""

from __future__ import annotations

from typing import Literal, Unpack

from ..._core.graph import DataNode
from ..._core.operator_function import Hints, Input, OneOrMore, PerSample, operator_function
from .filled import Filled


class Full(Filled):
    """Of a shape given."""

    name = "full"
    layout: str | None


@operator_function(Full)
def full(
    fill_value: Input,
    /,
    *,
    shape: PerSample[OneOrMore[int]] | None = None,
    layout: str | None = None,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """A tensor of one value, or of a smaller tensor repeated by the rules of broadcasting.

    Args:
      fill_value: the value.
      shape: extents. Default: those of `fill_value`. May be per sample.
      layout: of the result.

    Returns:
      A tensor of the value's type.

    Raises:
      ArgumentError: the layout does not fit the shape.
      OperatorError: the value can't be broadcast to the shape.

    Example:
      >>> fn.full(fn.random.uniform(), shape=(8, 8))
    """
    ...
