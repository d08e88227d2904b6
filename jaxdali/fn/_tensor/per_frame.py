"""per_frame: tensors marked as sequences."""

from __future__ import annotations

import dataclasses
from typing import Literal, Unpack

from ..._core.graph import DataNode
from ..._core.operator_function import Hints, Input, operator_function
from ..._core.values import Spec
from .copy import Copy


class PerFrame(Copy):
    """The same value with a layout that begins with F."""

    name = "per_frame"
    replace: bool  # whether another first letter of the layout is replaced; if not, it is an error

    def is_on_device(self, asked: str, follows: bool) -> bool:
        return follows or asked == "gpu"

    def infer(self, x: Spec) -> tuple[Spec, ...]:
        """The input with F as the first letter of its layout."""
        if not x.ndim:
            raise ValueError("a scalar can't be a sequence")
        if x.layout and x.layout[0] != "F" and not self.replace:
            raise ValueError(f"the layout must begin with F, got {x.layout!r}; replace=True replaces the first letter")
        # An axis without a meaning has the letter *.
        return (dataclasses.replace(x, layout="F" + (x.layout[1:] or "*" * (x.ndim - 1))),)


@operator_function(PerFrame)
def per_frame(
    input: Input,
    /,
    *,
    replace: bool = False,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """Marks tensors as sequences: their layout begins with F, for frames. Values do not change.

    An argument that may be per frame accepts such a tensor, with a value for each frame of the operator's input, or one
    for all frames.

    Args:
      input: any tensor with at least one axis.
      replace: whether to replace another first letter of the layout. By default, another letter is an error.

    Returns:
      The same tensor; a layout that was empty becomes "F" and a "*" for each other axis.

    Raises:
      ArgumentError: a scalar, or a layout with another first letter.

    Example:
      >>> video = fn.rotate(video, angle=fn.per_frame(fn.random.uniform(range=(-5.0, 5.0), shape=16)), keep_size=True)
    """
    ...
