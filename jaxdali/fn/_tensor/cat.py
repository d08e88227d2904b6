"""Concatenation."""

from __future__ import annotations

from typing import Literal, Unpack

from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._core.operator_function import Hints, Input, operator_function
from ..._core.values import Spec
from .join import Join


class Cat(Join):
    """Along an axis that the inputs have."""

    name = "cat"

    def joined(self, first: Spec) -> tuple[int, bool]:
        if self.axis_name is not None:
            if self.axis != 0:
                raise ArgumentError("axis and axis_name exclude each other")
            if len(self.axis_name) != 1 or self.axis_name not in first.layout:
                raise ArgumentError(f"axis_name={self.axis_name!r} is not an axis of the layout {first.layout!r}")
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
    """Puts tensors one after the other along an axis.

    Args:
      *inputs: tensors of one type and number of dimensions, which differ in extent along that axis only.
      axis: the axis; negative: from the last.
      axis_name: its letter in the layout, instead of `axis`.

    Returns:
      A tensor of the first layout that an input has.

    Raises:
      ArgumentError: types or shapes don't fit, or there is no such axis.
      OperatorError: shapes of a sample don't fit.

    Example:
      >>> side_by_side = fn.cat(images, fn.flip(images), axis=1)
    """
    ...
