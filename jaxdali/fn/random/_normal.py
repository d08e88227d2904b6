"""random.normal: normally distributed numbers."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Unpack

import numpy as np

from ... import types
from ..._core.context import HostContext
from ..._core.declaration import DType, OneOf, Range
from ..._core.graph import DataNode
from ..._core.operator_function import Input, OneOrMore, PerSample, SeededHints, operator_function
from .._families.conversion import convert
from ._distribution import NUMBERS, Distribution, add_distribution


class Normal(Distribution):
    """The normal distribution."""

    name: ClassVar[str] = "random.normal"

    def transform(self, ctx: HostContext, values, u, sizes):
        a = self.arguments(ctx, values)
        mean, stddev = self._per_element(a.mean, sizes), self._per_element(a.stddev, sizes)
        return convert(np, mean + stddev * u, self.dtype)


@operator_function("random.normal")
def normal(
    shape_like: Input | None = None,
    /,
    *,
    mean: PerSample[float] = 0.0,
    stddev: PerSample[float] = 1.0,
    dtype: Annotated[DType, OneOf(*NUMBERS)] = types.FLOAT,
    shape: Annotated[PerSample[OneOrMore[int]] | None, Range(0)] = None,
    seed: int = -1,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[SeededHints],
) -> DataNode:
    """Draws normally distributed numbers (Box-Muller, in double precision).

    Args:
      shape_like: a value; each sample of the result has the shape of its sample.
      mean: the mean of the distribution. May be per sample.
      stddev: its standard deviation; a negative one mirrors the numbers, as in DALI. May be per sample.
      dtype: element type of the result. For integers the numbers are rounded and clamped. Default: `types.FLOAT`.
      shape: shape of a sample, an integer or a list. Default: a sample is one number without dimensions. May be per
        sample.
      seed: fixes the random numbers regardless of the pipeline's seed and of the operator's place in the pipeline; a
        negative seed counts as not given.

    Raises:
      ValueError: the shape is given twice.
    """
    arguments = {"mean": mean, "stddev": stddev, "shape": shape}
    return add_distribution(Normal, shape_like, arguments, seed=seed, dtype=dtype, device=device, name=name)
