"""reductions.variance: variances about a given mean."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Unpack

from ..._core.declaration import Range
from ..._core.graph import DataNode
from ..._core.operator_function import Hints, Input, OneOrMore, operator_function
from ..._cpu import Reduction as ReductionKind
from ._reduction import Reduction


class Variance(Reduction):
    """The mean of the squared distances from a given mean."""

    name = "reductions.variance"
    kind = ReductionKind.SQUARES
    ddof: int  # subtracted from the number of elements in the divisor

    def finish(self, xp: Any, total: Any, count: Any) -> Any:
        return total / (count - float(self.ddof))


@operator_function(Variance)
def variance(
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
    """Computes the variance about a given mean over axes.

    The result is computed in double precision, unlike DALI's.

    Args:
      data: any tensor of numbers; 64-bit integers beyond 2**53 are rounded.
      mean: the means, of the result's shape.
      axes: the axes to reduce, by number. Default: all.
      axis_names: the axes to reduce, by their letters in the layout.
      ddof: the number subtracted from the number of elements in the divisor. If it exceeds that number, the result is
        negative.
      keep_dims: whether reduced axes stay, with extent 1.

    Returns:
      FLOAT variances.

    Raises:
      ValueError: wrong axes.
    """
    ...
