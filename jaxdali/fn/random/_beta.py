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
    """The Beta distribution: x / (x + y) of two gamma-distributed numbers, which are drawn by the method of Marsaglia
    and Tsang (2000).
    """

    name: ClassVar[str] = "random.beta"

    def run(self, ctx: HostContext, *values: Value):
        """Draws x and y as logarithms of gamma-distributed numbers: x / (x + y) is ``1 / (1 + exp(log y - log x))``."""
        shapes = self._shapes(ctx, values)
        sizes = shapes.prod(axis=1, dtype=np.int64)
        a = self.arguments(ctx, values)
        # The odd streams of the generator are for x, and the even ones for y: see `_log_gamma`.
        x, y = (
            self._log_gamma(ctx, np.repeat(shape, sizes), sizes, substream)
            for shape, substream in ((a.alpha, 1), (a.beta, 2))
        )
        with np.errstate(over="ignore"):
            flat = 1 / (1 + np.exp(y - x))
        return self._output(ctx, flat.astype(self.dtype), np.cumsum(sizes) - sizes, shapes, ctx.spec.shape)

    def _log_gamma(self, ctx: HostContext, shape: np.ndarray, sizes: np.ndarray, substream: int) -> np.ndarray:
        """Logarithms of gamma-distributed numbers.

        Args:
          shape: the shape parameter of each number.
          sizes: the number of numbers of each sample.
          substream: the first stream of the generator. A round of rejection takes this stream for normal numbers, the
            second one after it for uniform numbers, and the fourth for a last one of the numbers that it accepts. The
            next round begins at the sixth.
        """
        # Marsaglia and Tsang's method needs a shape of at least 1, so it draws for shape + 1. Multiplied by U ** (1 /
        # shape), with U uniform, the result has the wanted shape. Logarithms, because small shapes would underflow.
        d = shape + 1 - 1 / 3
        log_gamma = np.full(len(shape), np.nan)
        while np.isnan(log_gamma).any():  # About 95 % are accepted in each round.
            n, _ = draw(ctx, self.seed, sizes, normal=True, part=substream)
            u = 1 - draw(ctx, self.seed, sizes, part=substream + 2)[0]  # in (0, 1], for the logarithm
            with np.errstate(invalid="ignore", divide="ignore"):
                v = (1 + n / np.sqrt(9 * d)) ** 3
                log_v = np.log(v)
                accepted = (v > 0) & (np.log(u) < n * n / 2 + d * (1 - v + log_v)) & np.isnan(log_gamma)
            log_u = np.log(1 - draw(ctx, self.seed, sizes, part=substream + 4)[0])
            log_gamma[accepted] = (np.log(d) + log_v + log_u / shape)[accepted]
            substream += 6
        return log_gamma


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
