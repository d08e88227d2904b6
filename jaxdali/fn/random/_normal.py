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
    """Normally distributed."""

    name: ClassVar[str] = "random.normal"

    def transform(self, ctx: HostContext, values, u, sizes):
        a = self.arguments(ctx, values)
        mean, stddev = self._each(a.mean, sizes), self._each(a.stddev, sizes)
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
    """Normally distributed numbers (Box-Muller, in double precision).

    Args:
      shape_like: a value whose samples' shapes the result takes.
      mean: of the distribution. May be per sample.
      stddev: its standard deviation; a negative one mirrors the numbers, as in DALI. May be per sample.
      dtype: of the result, by default `types.FLOAT`; for integers the numbers are rounded and clamped.
      shape: of a sample: an integer or a list, may be per sample. By default a sample is one number (no dimensions).
      seed: fixes the random numbers regardless of the pipeline's seed and of the operator's place in the pipeline; a negative seed counts
        as not given.

    Raises:
      ValueError: shape given twice.
    """
    arguments = {"mean": mean, "stddev": stddev, "shape": shape}
    return add_distribution(Normal, shape_like, arguments, seed=seed, dtype=dtype, device=device, name=name)
