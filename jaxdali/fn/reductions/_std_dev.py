"""reductions.std_dev: standard deviations from a given mean."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Unpack

from ..._core.declaration import Range
from ..._core.graph import DataNode
from ..._core.operator_function import Hints, Input, OneOrMore, operator_function
from ._variance import Variance


class StdDev(Variance):
    """Its root."""

    name = "reductions.std_dev"

    def finish(self, xp: Any, total: Any, count: Any) -> Any:
        return xp.sqrt(super().finish(xp, total, count))


@operator_function(StdDev)
def std_dev(
    data: Input,
    mean: Input,
    /,
    *,
    axes: OneOrMore[int] | None = None,
    axis_names: str | None = None,
    ddof: Annotated[int, Range(0)] = 0,
    keep_dims: bool = False,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """Computes the standard deviation from a given mean over axes.

    Computed in double precision, unlike DALI's.

    Args:
      data: any tensor of numbers; 64-bit integers beyond 2**53 are rounded.
      mean: of each result, of the result's shape.
      axes: the axes reduced, by number. Default: all.
      axis_names: the axes reduced, by letter of the layout.
      ddof: what is subtracted from the number of elements in the divisor. If it is more than their number, the result is NaN.
      keep_dims: reduced axes stay, with extent 1.

    Returns:
      FLOAT deviations.

    Raises:
      ValueError: wrong axes.
    """
    ...
