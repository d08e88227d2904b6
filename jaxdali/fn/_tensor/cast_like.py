"""Conversion to the type of another tensor."""

from __future__ import annotations

import dataclasses
from typing import Literal, Unpack

from ..._core.context import BuildContext
from ..._core.graph import DataNode
from ..._core.operator import HostOperator, Operator, ProgramOperator
from ..._core.operator_function import Hints, Input, operator_function
from ..._core.values import Spec
from .cast import Cast


@dataclasses.dataclass(frozen=True, kw_only=True)
class CastLike(HostOperator, ProgramOperator):
    """A cast whose type is known with the inputs'."""

    name = "cast_like"

    def run_reads(self, i: int) -> bool:
        return i == 0

    def bind(self, ctx: BuildContext, x: Spec, like: Spec) -> Operator:
        return _CastTo(dtype=like.dtype)


class _CastTo(Cast):
    """A cast with a second input, which is not looked at."""

    name = "cast_like"

    def run_reads(self, i: int) -> bool:
        return i == 0

    def infer(self, x, like):  # pyright: ignore[reportIncompatibleMethodOverride]
        return super().infer(x)

    def setup(self, ctx, x, like):  # pyright: ignore[reportIncompatibleMethodOverride]
        return super().setup(ctx, x)

    def run(self, ctx, x, like):  # pyright: ignore[reportIncompatibleMethodOverride]
        return super().run(ctx, x)

    def lower(self, ctx, x, like):  # pyright: ignore[reportIncompatibleMethodOverride]
        return super().lower(ctx, x)


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
      input_0: what is converted.
      input_1: the tensor whose type it gets.

    Returns:
      A tensor of the shape and layout of `input_0`.

    Example:
      >>> mask = fn.cast_like(mask, images)
    """
    ...
