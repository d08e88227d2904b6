"""Cast: conversion between element types."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, Unpack

import numpy as np

from ..._core.declaration import DType
from ..._core.graph import DataNode
from ..._core.operator_function import Hints, Input, operator_function
from ..._core.values import Spec
from .._families.conversion import convert
from .._families.elementwise import Elementwise


class Cast(Elementwise):
    """Converts the elements; shapes and layout stay."""

    name = "cast"
    dtype: np.dtype

    def infer(self, x: Spec, *others: Spec) -> tuple[Spec, ...]:
        return (dataclasses.replace(x, dtype=self.dtype),)

    def is_identity(self, *specs: Spec) -> bool:
        return specs[0].dtype == self.dtype

    def element(self, xp: Any, *inputs: Any) -> Any:
        return convert(xp, inputs[0], self.dtype)


@operator_function(Cast)
def cast(
    input: Input,
    /,
    *,
    dtype: DType,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """Converts to another element type.

    Differs from DALI on the CPU: a number midway between two float16 numbers is rounded to the even one, as on GPUs,
    not away from 0.

    Args:
      input: any tensor.
      dtype: the type, e.g. ``types.FLOAT`` or ``np.float32``. Integer types round half away from zero and saturate (NaN
        becomes 0, or the minimum of INT32 and INT64). BOOL is whether the number rounds to nonzero. In FLOAT16 and
        BFLOAT16 (not in DALI), numbers that are too large become infinite; BFLOAT16 rounds the float32 number to the
        nearest, halves to even.

    Returns:
      A tensor of the same shape and layout.

    Raises:
      TypeError: `dtype` is not a numeric type.

    Example:
      >>> images = fn.cast(images, dtype=types.FLOAT) / 255.0
    """
    ...
