"""full: tensors filled with the value of an input."""

from __future__ import annotations

from typing import Literal, Unpack

from ..._core.graph import DataNode
from ..._core.operator_function import Hints, Input, OneOrMore, PerSample, operator_function
from .filled import Filled


class Full(Filled):
    """A tensor of a given shape, filled with the value of an input."""

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
    """Fills a tensor with one value, or with a smaller tensor that is broadcast.

    Args:
      fill_value: the value.
      shape: the extents. Default: those of `fill_value`. May be per sample.
      layout: layout of the result.

    Returns:
      A tensor with the type of the value.

    Raises:
      ArgumentError: the layout does not fit the shape.
      OperatorError: the value can't be broadcast to the shape.

    Example:
      >>> fn.full(fn.random.uniform(), shape=(8, 8))
    """
    ...
