"""Gaussian noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Unpack

import jax.numpy as jnp
import numpy as np

from ..._core.context import HostContext
from ..._core.graph import DataNode
from ..._core.operator_function import Input, PerSample, SeededHints, operator_function
from ..._core.values import Value
from .._families.conversion import convert
from ._noise import Key, Noise, normal


class Gaussian(Noise):
    """Adds normally distributed numbers."""

    name = "noise.gaussian"

    def numbers(self, ctx: HostContext, values: Sequence[Value]) -> Mapping[str, np.ndarray]:
        a = self.arguments(ctx, values)
        return {"mean": a.mean.astype(np.float32), "stddev": a.stddev.astype(np.float32)}

    def element(self, x: Any, keys: Key, mean: Any, stddev: Any) -> Any:
        return convert(jnp, x.astype(jnp.float32) + (mean + stddev * normal(keys)), np.dtype(x.dtype))


@operator_function(Gaussian)
def gaussian(
    input: Input,
    /,
    *,
    mean: PerSample[float] = 0.0,
    stddev: PerSample[float] = 1.0,
    seed: int = -1,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[SeededHints],
) -> DataNode:
    """Adds Gaussian noise, independent for each element.

    Args:
      input: any tensor of integers or floats. Sums are computed in float32; integers are rounded and saturated.
      mean: the mean of the noise. May be per sample.
      stddev: standard deviation of the noise; a negative one mirrors the noise, as in DALI. May be per sample.
      seed: a seed for this operator only. Default: the pipeline's seed. The same seed gives other noise in DALI.

    Returns:
      The input's shape, type and layout.

    Raises:
      TypeError: the input is bool.

    Example:
      >>> fn.noise.gaussian(images, stddev=fn.random.uniform(range=(0.0, 10.0)))
    """
    ...
