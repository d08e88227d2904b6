"""Zeros."""

from __future__ import annotations

from typing import Literal, Unpack

import numpy as np

from ... import types
from ..._core.declaration import DType
from ..._core.graph import DataNode
from ..._core.operator_function import Hints, Input, OneOrMore, PerSample, operator_function
from .filled import Filled


class Zeros(Filled):
    """Of a shape given."""

    name = "zeros"
    value = 0
    dtype: np.dtype
    layout: str | None


class ZerosLike(Filled):
    """Of an input's shape."""

    name = "zeros_like"
    value = 0
    like = True
    dtype: np.dtype | None


@operator_function(Zeros)
def zeros(
    *,
    shape: PerSample[OneOrMore[int]] | None = None,
    dtype: DType = types.INT32,
    layout: str | None = None,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """A tensor of zeros.

    Args:
      shape: its extents. Default: a scalar. May be per sample.
      dtype: element type.
      layout: of the tensor.

    Returns:
      A tensor of that shape.

    Raises:
      ArgumentError: the layout does not fit the shape.

    Example:
      >>> fn.zeros(shape=(8, 8), dtype=types.FLOAT)
    """
    ...


@operator_function(ZerosLike)
def zeros_like(
    data_like: Input,
    /,
    *,
    dtype: DType | None = None,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """A tensor of zeros with the shape of another.

    Args:
      data_like: any tensor.
      dtype: element type. Default: that of `data_like`.

    Returns:
      A tensor of the input's shape and layout.

    Example:
      >>> background = fn.zeros_like(images)
    """
    ...
