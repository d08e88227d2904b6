"""random.beta: Beta-distributed numbers."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Unpack

import numpy as np

from ... import types
from ..._core.context import HostContext
from ..._core.declaration import DType, OneOf, Range
from ..._core.graph import DataNode
from ..._core.operator_function import Input, OneOrMore, PerSample, SeededHints, operator_function
from ..._core.values import Value
from .._families.drawing import draw
from ._distribution import Distribution, add_distribution


class Beta(Distribution):
    """The Beta distribution: x / (x + y) of two gamma-distributed numbers, drawn by the method of Marsaglia and Tsang
    (2000).
    """

    name: ClassVar[str] = "random.beta"

    def run(self, ctx: HostContext, *values: Value):
        shapes = self._shapes(ctx, values)
        sizes = shapes.prod(axis=1, dtype=np.int64)
        a = self.arguments(ctx, values)
        x, y = (
            self._log_gamma(ctx, np.repeat(shape, sizes), sizes, part) for shape, part in ((a.alpha, 1), (a.beta, 2))
        )
        with np.errstate(over="ignore"):
            flat = 1 / (1 + np.exp(y - x))
        return self._emit(ctx, flat.astype(self.dtype), np.cumsum(sizes) - sizes, shapes, ctx.spec.shape)

    def _log_gamma(self, ctx: HostContext, shape: np.ndarray, sizes: np.ndarray, part: int) -> np.ndarray:
        """Logarithms of gamma-distributed numbers, where each has its own shape parameter."""
        d = shape + 1 - 1 / 3  # for shape + 1; a power of a uniform number turns it into `shape`
        found = np.full(len(shape), np.nan)
        while np.isnan(found).any():  # 95 of 100 are accepted
            n = draw(ctx, self.seed, sizes, normal=True, part=part)[0]
            u = 1 - draw(ctx, self.seed, sizes, part=part + 2)[0]
            part += 4
            with np.errstate(invalid="ignore", divide="ignore"):
                v = (1 + n / np.sqrt(9 * d)) ** 3
                log_v = np.log(v)
                accepted = (v > 0) & (np.log(u) < n * n / 2 + d * (1 - v + log_v)) & np.isnan(found)
            found[accepted] = np.log(d[accepted]) + log_v[accepted]
        return found + np.log(1 - draw(ctx, self.seed, sizes, part=part)[0]) / shape


@operator_function("random.beta")
def beta(
    shape_like: Input | None = None,
    /,
    *,
    alpha: Annotated[PerSample[float], Range(0, above=True)] = 1.0,
    beta: Annotated[PerSample[float], Range(0, above=True)] = 1.0,
    dtype: Annotated[DType, OneOf("float32", "float64")] = types.FLOAT,
    shape: Annotated[PerSample[OneOrMore[int]] | None, Range(0)] = None,
    seed: int = -1,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[SeededHints],
) -> DataNode:
    """Draws Beta-distributed numbers in ``[0, 1]``.

    Args:
      shape_like: a value; each sample of the result has the shape of its sample.
      alpha, beta: parameters of the distribution, above 0. May be per sample.
      dtype: element type of the result: `types.FLOAT`, the default, or `types.FLOAT64`.
      shape: shape of a sample, an integer or a list. Default: a sample is one number without dimensions. May be per
        sample.
      seed: fixes the random numbers regardless of the pipeline's seed and of the operator's place in the pipeline; a
        negative seed counts as not given.

    Raises:
      ValueError: a parameter is not above 0, or the shape is given twice.

    Example:
      >>> weight = fn.random.beta(alpha=0.2, beta=0.2)
    """
    arguments = {"alpha": alpha, "beta": beta, "shape": shape}
    return add_distribution(Beta, shape_like, arguments, seed=seed, dtype=dtype, device=device, name=name)
