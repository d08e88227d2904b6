"""reductions.mean: means over axes."""

from __future__ import annotations

from typing import Any, Literal, Unpack

import numpy as np

from ..._core.declaration import DType
from ..._core.graph import DataNode
from ..._core.operator_function import Hints, Input, OneOrMore, operator_function
from ._reduction import Reduction


class Mean(Reduction):
    """The mean."""

    name = "reductions.mean"
    dtype: np.dtype | None

    def result(self, dtype: np.dtype) -> np.dtype:
        return self.dtype or np.dtype(np.float32)

    def finish(self, xp: Any, total: Any, count: Any) -> Any:
        if self.dtype is None or self.dtype.kind not in "iu":
            return total / count
        # As in DALI, which sums in this type, where the sum may wrap around.
        return xp.trunc(total.astype(np.int64).astype(self.dtype).astype(np.float64) / count)


@operator_function(Mean)
def mean(
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
    """Averages elements over axes.

    The result is computed in double precision, unlike DALI's.

    Args:
      data: any tensor of numbers; 64-bit integers beyond 2**53 are rounded.
      axes: the axes to reduce, by number. Default: all.
      axis_names: the axes to reduce, by their letters in the layout.
      dtype: element type of the result. Default: FLOAT. With an integer type, sums wrap and means are truncated, as in
        DALI.
      keep_dims: whether reduced axes stay, with extent 1.

    Returns:
      The means.

    Raises:
      ValueError: wrong axes.
    """
    ...
