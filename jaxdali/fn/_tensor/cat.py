"""Concatenation."""

from __future__ import annotations

from typing import Literal, Unpack

from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._core.operator_function import Hints, Input, operator_function
from ..._core.values import Spec
from .._families.layouts import LAYOUT_ADVICE
from .join import Join


class Cat(Join):
    """Joins inputs along one of their axes."""

    name = "cat"

    def joined(self, first: Spec) -> tuple[int, bool]:
        """The axis that `axis` or `axis_name` names. Inputs have it: the second result is False."""
        if self.axis_name is not None:
            if self.axis != 0:
                raise ArgumentError("give either axis or axis_name")
            if len(self.axis_name) != 1 or self.axis_name not in first.layout:
                advice = "" if first.layout else LAYOUT_ADVICE
                raise ArgumentError(
                    f"axis_name={self.axis_name!r} is not an axis of the layout {first.layout!r}{advice}"
                )
            return first.layout.index(self.axis_name), False
        if not -first.ndim <= self.axis < first.ndim:
            raise ArgumentError(f"axis={self.axis} is not one of the {first.ndim} dimensions")
        return self.axis % first.ndim, False

    def layout(self, inputs: tuple[Spec, ...], axis: int) -> str:
        return next((x.layout for x in inputs if x.layout), "")


@operator_function(Cat)
def cat(
    *inputs: Input,
    axis: int = 0,
    axis_name: str | None = None,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """Concatenates tensors along an axis.

    Args:
      *inputs: tensors with the same type and number of dimensions, which differ in extent only along that axis.
      axis: the number of the axis; negative numbers count from the last.
      axis_name: its letter in the layout, instead of `axis`.

    Returns:
      A tensor with the layout of the first input that has one.

    Raises:
      ArgumentError: the types or shapes don't match, or there is no such axis.
      OperatorError: the shapes of a sample don't match.

    Example:
      >>> side_by_side = fn.cat(images, fn.flip(images), axis=1)
    """
    ...
