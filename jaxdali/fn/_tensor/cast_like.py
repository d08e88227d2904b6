"""cast_like: conversion to the type of another tensor."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, Unpack

from ..._core.context import HostContext, LowerContext
from ..._core.graph import DataNode
from ..._core.operator import HostOperator, ProgramOperator, Setup
from ..._core.operator_function import Hints, Input, operator_function
from ..._core.values import Spec, Value
from .._families.ragged import shapes_of
from .cast import Cast


class CastLike(HostOperator, ProgramOperator):
    """A cast to the type of the second input, whose values are not read."""

    name = "cast_like"

    def run_reads(self, i: int) -> bool:
        return i == 0

    def is_identity(self, x: Spec, like: Spec) -> bool:  # pyright: ignore[reportIncompatibleMethodOverride]
        return x.dtype == like.dtype

    def infer(self, x: Spec, like: Spec) -> tuple[Spec, ...]:
        return (dataclasses.replace(x, dtype=like.dtype),)

    def setup(self, ctx: HostContext, x: Value, like: Value) -> Setup:
        return Setup((shapes_of(x),))

    def run(self, ctx: HostContext, x: Value, like: Value) -> tuple[Any, ...]:
        return Cast(dtype=ctx.spec.dtype).run(ctx, x)

    def lower(self, ctx: LowerContext, x: Any, like: Any) -> tuple[Any, ...]:
        return Cast(dtype=ctx.spec.dtype).lower(ctx, x)


@operator_function(CastLike)
def cast_like(
    input_0: Input,
    input_1: Input,
    /,
    *,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """Converts to the element type of another tensor, by the rules of `cast`.

    Args:
      input_0: the tensor that is converted.
      input_1: the tensor that gives the type.

    Returns:
      A tensor of the shape and layout of `input_0`.

    Example:
      >>> mask = fn.cast_like(mask, images)
    """
    ...
