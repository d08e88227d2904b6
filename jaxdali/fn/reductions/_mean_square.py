"""reductions.mean_square: means of squares over axes."""

from __future__ import annotations

from typing import Any, Literal, Unpack

import numpy as np

from ..._core.declaration import DType
from ..._core.graph import DataNode
from ..._core.operator_function import Hints, Input, OneOrMore, operator_function
from ..._cpu import Reduction as ReductionKind
from ._reduction import Reduction


class MeanSquare(Reduction):
    """The mean of the squares."""

    name = "reductions.mean_square"
    kind = ReductionKind.SQUARES
    dtype: np.dtype | None

    def result(self, dtype: np.dtype) -> np.dtype:
        return self.dtype or np.dtype(np.float32)

    def finish(self, xp: Any, total: Any, count: Any) -> Any:
        return total / count


@operator_function(MeanSquare)
def mean_square(
    data: Input,
    /,
    *,
    axes: OneOrMore[int] | None = None,
    axis_names: str | None = None,
    dtype: DType | None = None,
    keep_dims: bool = False,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """Averages the squares of elements over axes.

    The result is computed in double precision. In DALI, squares of uint16 and of wider integers overflow.

    Args:
      data: any tensor of numbers; 64-bit integers beyond 2**53 are rounded.
      axes: the axes to reduce, by number. Default: all.
      axis_names: the axes to reduce, by their letters in the layout.
      dtype: element type of the result. Default: FLOAT.
      keep_dims: whether reduced axes stay, with extent 1.

    Returns:
      The means of the squares.

    Raises:
      ValueError: wrong axes.
    """
    ...
