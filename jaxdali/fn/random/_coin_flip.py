"""random.coin_flip: ones and zeros."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Unpack

from ... import types
from ..._core.context import HostContext
from ..._core.declaration import DType, OneOf, Range
from ..._core.graph import DataNode
from ..._core.operator_function import Input, OneOrMore, PerSample, SeededHints, operator_function
from ._distribution import NUMBERS, Distribution, add_distribution


class CoinFlip(Distribution):
    """1 with some probability, else 0."""

    name: ClassVar[str] = "random.coin_flip"

    def transform(self, ctx: HostContext, values, u, sizes):
        probability = self.arguments(ctx, values).probability
        return (u < self._each(probability, sizes)).astype(self.dtype)


@operator_function("random.coin_flip")
def coin_flip(
    shape_like: Input | None = None,
    /,
    *,
    probability: Annotated[PerSample[float], Range(0, 1)] = 0.5,
    dtype: Annotated[DType, OneOf("bool", *NUMBERS)] = types.INT32,
    shape: Annotated[PerSample[OneOrMore[int]] | None, Range(0)] = None,
    seed: int = -1,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[SeededHints],
) -> DataNode:
    """1 with some probability, else 0.

    Args:
      shape_like: a value whose samples' shapes the result takes.
      probability: of a 1, in [0, 1]. May be per sample.
      dtype: of the result, by default `types.INT32`; any numeric type (DALI: BOOL, UINT8, INT32).
      shape: of a sample: an integer or a list, may be per sample. By default a sample is one number (no dimensions).
      seed: fixes the random numbers regardless of the pipeline's seed and of the operator's place in the pipeline; a negative seed counts
        as not given.

    Raises:
      ValueError: a probability outside [0, 1] (DALI clamps it), shape given twice.
    """
    return add_distribution(
        CoinFlip, shape_like, {"probability": probability, "shape": shape}, seed=seed, dtype=dtype, device=device, name=name
    )
