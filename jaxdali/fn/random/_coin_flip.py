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
    """Draws 1 with a given probability, else 0."""

    name: ClassVar[str] = "random.coin_flip"

    def transform(self, ctx: HostContext, values, u, sizes):
        probability = self.arguments(ctx, values).probability
        return (u < self._per_element(probability, sizes)).astype(self.dtype)


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
    """Draws 1 with a given probability, else 0.

    Args:
      shape_like: a value; each sample of the result has the shape of its sample.
      probability: the probability of a 1, in [0, 1]. May be per sample.
      dtype: element type of the result, any numeric type (in DALI BOOL, UINT8 or INT32). Default: `types.INT32`.
      shape: shape of a sample, an integer or a list. Default: a sample is one number without dimensions. May be per
        sample.
      seed: fixes the random numbers regardless of the pipeline's seed and of the operator's place in the pipeline; a
        negative seed counts as not given.

    Raises:
      ValueError: a probability is outside [0, 1] (DALI takes what is above as 1), or the shape is given twice.
    """
    return add_distribution(
        CoinFlip,
        shape_like,
        {"probability": probability, "shape": shape},
        seed=seed,
        dtype=dtype,
        device=device,
        name=name,
    )
