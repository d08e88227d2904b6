"""full_like: tensors of one value, with the shape of another tensor."""

from __future__ import annotations

from typing import Literal, Unpack

from ..._core.graph import DataNode
from ..._core.operator_function import Hints, Input, operator_function
from .filled import Filled


class FullLike(Filled):
    """A tensor with an input's shape and type, filled with the value of another input."""

    name = "full_like"
    like = True


@operator_function(FullLike)
def full_like(
    data_like: Input,
    fill_value: Input,
    /,
    *,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """Fills a tensor that has the shape, type and layout of another with one value.

    Args:
      data_like: any tensor.
      fill_value: the value, as in `full`.

    Returns:
      A tensor like `data_like`.

    Raises:
      OperatorError: the value can't be broadcast to the shape.

    Example:
      >>> gray = fn.full_like(images, 128)
    """
    ...
