"""Axes of extent 1 inserted."""

from __future__ import annotations

from typing import Literal, Unpack

import numpy as np

from ..._core.context import HostContext
from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._core.operator_function import Hints, Input, OneOrMore, operator_function
from ..._core.values import Spec, Value
from .._families.layouts import LAYOUT_ADVICE
from .reshaped import Reshaped


class ExpandDims(Reshaped):
    """Adds axes of extent 1."""

    name = "expand_dims"
    axes: tuple[int, ...] | int  # indices of the new axes in the result
    new_axis_names: str  # a letter for each new axis; "": the result has no layout

    def _axes(self, x: Spec) -> tuple[int, ...]:
        """The indices of the new axes in the result. Raises ArgumentError if they or their names do not fit."""
        axes = (self.axes,) if isinstance(self.axes, int) else self.axes
        if len(set(axes)) < len(axes):
            raise ArgumentError(f"an axis is given twice: axes={list(axes)}")
        for a in axes:
            if not 0 <= a < x.ndim + len(axes):
                raise ArgumentError(
                    f"axes={list(axes)} has {a}, which is not one of the {x.ndim + len(axes)} dimensions of the result"
                )
        if self.new_axis_names and len(self.new_axis_names) != len(axes):
            raise ArgumentError(
                f"new_axis_names={self.new_axis_names!r} must have a letter for each of the {len(axes)} axes"
            )
        if self.new_axis_names and not x.layout and x.ndim:
            raise ArgumentError(f"new_axis_names needs an input with a layout{LAYOUT_ADVICE}")
        return axes

    def infer(self, x: Spec) -> tuple[Spec, ...]:
        """The input's extents with the new axes. The layout is lost unless the new axes have names."""
        axes = self._axes(x)
        extents: list[int | None] = [x.extent(d) for d in range(x.ndim)]
        letters = list(x.layout)
        has_layout = bool(self.new_axis_names) or not axes
        # In ascending order, so that each index is one of the result.
        for a, letter in sorted(zip(axes, self.new_axis_names or " " * len(axes))):
            extents.insert(a, 1)
            letters.insert(a, letter)
        shape = tuple(e for e in extents if e is not None) if x.shape is not None else None
        return (
            Spec(
                x.dtype,
                len(extents),
                shape,
                "".join(letters) if has_layout else "",
                None if shape is not None else tuple(extents),
            ),
        )

    def shapes(self, ctx: HostContext, x: Value) -> np.ndarray:
        axes = sorted(self._axes(x.spec))
        # np.insert takes indices of the array as it was before.
        return np.insert(x.shapes, [a - i for i, a in enumerate(axes)], 1, axis=1)


@operator_function(ExpandDims)
def expand_dims(
    data: Input,
    /,
    *,
    axes: OneOrMore[int],
    new_axis_names: str = "",
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """Inserts axes of extent 1.

    Args:
      data: any tensor.
      axes: the positions of the new axes in the result, from 0.
      new_axis_names: the axes' letters in the layout, instead of `axes`. Default: the result has no layout.

    Returns:
      A tensor with more dimensions.

    Raises:
      ArgumentError: an axis is given twice or is out of range, or the letters don't match.

    Example:
      >>> batch_of_one = fn.expand_dims(images, axes=0, new_axis_names="F")
    """
    ...
