"""reductions.min: least elements over axes."""

from __future__ import annotations

from typing import Literal, Unpack

from ..._core.graph import DataNode
from ..._core.operator_function import Hints, Input, OneOrMore, operator_function
from ..._cpu import Reduction as ReductionKind
from ._reduction import Extreme


class Min(Extreme):
    """The least element."""

    name = "reductions.min"
    kind = ReductionKind.MIN


@operator_function(Min)
def min(
    data: Input,
    /,
    *,
    axes: OneOrMore[int] | None = None,
    axis_names: str | None = None,
    keep_dims: bool = False,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """Finds the least element over axes.

    The result is computed in double precision, unlike DALI's.

    Args:
      data: any tensor of numbers; 64-bit integers beyond 2**53 are rounded.
      axes: the axes to reduce, by number. Default: all.
      axis_names: the axes to reduce, by their letters in the layout.
      keep_dims: whether reduced axes stay, with extent 1.

    Returns:
      The least elements, of the input's type. A NaN may hide them, or not.

    Raises:
      ValueError: wrong axes.
    """
    ...
