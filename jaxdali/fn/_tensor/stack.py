"""Stacking along a new axis."""

from __future__ import annotations

from typing import Literal, Unpack

from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._core.operator_function import Hints, Input, operator_function
from ..._core.values import Spec
from .._families.layouts import LAYOUT_ADVICE
from .join import Join


class Stack(Join):
    """Joins inputs along a new axis."""

    name = "stack"

    def joined(self, first: Spec) -> tuple[int, bool]:
        """The axis in the result. Inputs lack it: the second result is True."""
        if not -first.ndim - 1 <= self.axis <= first.ndim:
            raise ArgumentError(f"axis={self.axis} is not one of the {first.ndim + 1} dimensions of the result")
        return self.axis % (first.ndim + 1), True

    def layout(self, inputs: tuple[Spec, ...], axis: int) -> str:
        """The inputs' layout with `axis_name` inserted; "" without a name."""
        if self.axis_name is None:
            return ""
        if len(self.axis_name) != 1:
            raise ArgumentError(f"axis_name must be one letter, got {self.axis_name!r}")
        layout = next((x.layout for x in inputs if x.layout), "")
        if not layout and inputs[0].ndim:
            raise ArgumentError(f"axis_name needs inputs with a layout{LAYOUT_ADVICE}")
        return layout[:axis] + self.axis_name + layout[axis:]


@operator_function(Stack)
def stack(
    *inputs: Input,
    axis: int = 0,
    axis_name: str | None = None,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """Stacks tensors of equal shapes along a new axis.

    Args:
      *inputs: tensors with the same type and shape.
      axis: the position of the new axis in the result; negative numbers count from the last.
      axis_name: its letter in the layout. Default: the result has no layout.

    Returns:
      A tensor with one more dimension.

    Raises:
      ArgumentError: the types or shapes don't match, or the position does not exist.
      OperatorError: the shapes of a sample don't match.

    Example:
      >>> size = fn.stack(height, width)  # of scalars: a vector
    """
    ...
