"""Axes of extent 1 removed."""

from __future__ import annotations

from typing import Literal, Unpack

import numpy as np

from ..._core.context import HostContext
from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._core.operator_function import Hints, Input, OneOrMore, operator_function
from ..._core.values import Spec, Value
from .reshaped import Reshaped


class Squeeze(Reshaped):
    """Removes some axes, which must have extent 1."""

    name = "squeeze"
    axes: tuple[int, ...] | int | None
    axis_names: str | None

    def _kept_axes(self, x: Spec) -> list[int]:
        """The axes that are not removed."""
        if (self.axes is None) == (self.axis_names is None):
            raise ArgumentError("give either axes or axis_names")
        if self.axes is not None:
            axes = (self.axes,) if isinstance(self.axes, int) else self.axes
        else:
            assert self.axis_names is not None
            for letter in self.axis_names:
                if letter not in x.layout:
                    raise ArgumentError(
                        f"axis_names={self.axis_names!r} has the axis {letter!r}, which is not in the layout {x.layout!r}"
                    )
            axes = tuple(x.layout.index(letter) for letter in self.axis_names)
        if len(set(axes)) < len(axes):
            raise ArgumentError(f"an axis is given twice: {self.axes if self.axes is not None else self.axis_names}")
        return [d for d in range(x.ndim) if d not in axes]

    def infer(self, x: Spec) -> tuple[Spec, ...]:
        """The input without the axes. Raises ArgumentError for an axis of another extent than 1."""
        axes = self._kept_axes(x)
        sizes = [x.extent(d) for d in range(x.ndim)]
        # If extents vary or one is 0, `shapes` checks each sample: empty ones may lose any axis.
        for d in range(x.ndim):
            if d not in axes and x.extent(d) not in (None, 1) and None not in sizes and 0 not in sizes:
                raise ArgumentError(f"axis {d} has extent {x.extent(d)}, only axes of extent 1 can be removed")
        dims = tuple(x.extent(d) for d in axes)
        shape = tuple(d for d in dims if d is not None)
        layout = "".join(x.layout[d] for d in axes) if x.layout else ""
        if len(shape) == len(dims) and (x.shape is not None or not dims):
            return (Spec(x.dtype, len(dims), shape, layout),)
        return (Spec(x.dtype, len(dims), None, layout, dims),)

    def shapes(self, ctx: HostContext, x: Value) -> np.ndarray:
        """The shapes without the removed axes. Raises ValueError if elements would be lost."""
        axes = self._kept_axes(x.spec)
        shapes = x.shapes[:, axes]
        # Without an axis of another extent than 1, the number of elements is another. As in DALI, any axis of an empty
        # sample may be removed: it has no elements to lose.
        is_wrong = (shapes.prod(axis=1) != x.shapes.prod(axis=1)) & ctx.present
        if is_wrong.any():
            i = int(is_wrong.argmax())
            raise ValueError(
                f"sample {i} has shape {tuple(x.shapes[i].tolist())}: only axes of extent 1 can be removed"
            )
        return shapes


@operator_function(Squeeze)
def squeeze(
    data: Input,
    /,
    *,
    axes: OneOrMore[int] | None = None,
    axis_names: str | None = None,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """Removes axes of extent 1.

    Args:
      data: any tensor.
      axes: the numbers of the axes, from 0. Axes that the input does not have are ignored, as in DALI.
      axis_names: the axes' letters in the layout, instead of `axes`.

    Returns:
      A tensor with fewer dimensions; the layout loses the axes' letters.

    Raises:
      ArgumentError: none or both of `axes` and `axis_names` are given, or the layout has no such axis.
      OperatorError: an axis has a greater extent, and the sample is not empty.

    Example:
      >>> gray = fn.squeeze(images, axis_names="C")
    """
    ...
