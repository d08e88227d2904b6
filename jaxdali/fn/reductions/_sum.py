"""reductions.sum: sums over axes."""

from __future__ import annotations

from typing import Any, Literal, Unpack

import numpy as np

from ..._core.declaration import DType
from ..._core.graph import DataNode
from ..._core.operator_function import Hints, Input, OneOrMore, operator_function
from .._families.conversion import convert
from ._reduction import Reduction


class Sum(Reduction):
    """The sum."""

    name = "reductions.sum"
    dtype: np.dtype | None

    def result(self, dtype: np.dtype) -> np.dtype:
        return self.dtype or np.dtype({"u": np.uint64, "i": np.int64}.get(dtype.kind, np.float32))

    def finish(self, xp: Any, total: Any, count: Any) -> Any:
        if self.dtype is None or self.dtype.kind not in "iu" or self.dtype.itemsize == 8:
            return total
        # DALI sums in this type, so the sum wraps around.
        return convert(xp, total, np.dtype(np.int64)).astype(self.dtype)


@operator_function(Sum)
def sum(
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
    """Sums elements over axes.

    Sums are computed in double precision, unlike DALI's. A sum of 64-bit integers that exceeds their range saturates
    instead of wrapping around.

    Args:
      data: any tensor of numbers; 64-bit integers beyond 2**53 are rounded.
      axes: the axes to reduce, by number. Default: all.
      axis_names: the axes to reduce, by their letters in the layout.
      dtype: element type of the result. Default: UINT64, INT64 or FLOAT, for unsigned, signed and floating-point input.
        In narrower integer types sums wrap around, as in DALI.
      keep_dims: whether reduced axes stay, with extent 1.

    Returns:
      The sums.

    Raises:
      ValueError: wrong axes.
    """
    ...
