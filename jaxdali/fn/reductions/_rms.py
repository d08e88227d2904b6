"""reductions.rms: root mean squares over axes."""

from __future__ import annotations

from typing import Any, Literal, Unpack

from ..._core.declaration import DType
from ..._core.graph import DataNode
from ..._core.operator_function import Hints, Input, OneOrMore, operator_function
from ._mean_square import MeanSquare


class Rms(MeanSquare):
    """The root of the mean of the squares."""

    name = "reductions.rms"

    def finish(self, xp: Any, total: Any, count: Any) -> Any:
        return xp.sqrt(total / count)


@operator_function(Rms)
def rms(
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
    """Computes the root mean square over axes.

    The result is computed in double precision. In DALI, squares of uint16 and of wider integers overflow.

    Args:
      data: any tensor of numbers; 64-bit integers beyond 2**53 are rounded.
      axes: the axes to reduce, by number. Default: all.
      axis_names: the axes to reduce, by their letters in the layout.
      dtype: element type of the result. Default: FLOAT.
      keep_dims: whether reduced axes stay, with extent 1.

    Returns:
      The roots.

    Raises:
      ValueError: wrong axes.
    """
    ...
