"""Shot noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Unpack

import jax
import jax.numpy as jnp
import numpy as np

from ..._core.context import HostContext
from ..._core.declaration import Range
from ..._core.graph import DataNode
from ..._core.operator_function import Input, PerSample, SeededHints, operator_function
from ..._core.values import Value
from .._families.conversion import convert
from ._noise import Noise, normal, uniform

# Means below the first are drawn by inversion, and means above the second from the normal distribution.
_FEW, _MANY = 16, 1e6


class Shot(Noise):
    """Replaces each element by a Poisson-distributed number with this mean."""

    name = "noise.shot"

    def numbers(self, ctx: HostContext, values: Sequence[Value]) -> Mapping[str, np.ndarray]:
        return {"factor": self.arguments(ctx, values).factor.astype(np.float32)}

    def element(self, x: Any, keys: Any, factor: Any) -> Any:
        """Draws the number of events of each element. Elements that are infinite or NaN, or whose factor is 0, do not
        change.
        """
        step = jnp.where(factor > 0, factor, jnp.float32(1))
        mean = x.astype(jnp.float32) / step
        has_mean = jnp.isfinite(mean) & (factor > 0)
        events = poisson(keys, jnp.maximum(jnp.where(has_mean, mean, jnp.float32(0)), jnp.float32(0)))
        return jnp.where(has_mean, convert(jnp, events * step, np.dtype(x.dtype)), x)


def poisson(keys: Any, mean: Any) -> Any:
    """Poisson-distributed numbers, f32, for finite means of at least 0."""
    # Masks of the elements that inversion draws, and of those from the normal distribution.
    few, many = mean < jnp.float32(_FEW), mean > jnp.float32(_MANY)
    u, _ = uniform(keys)
    rate = jnp.where(few, mean, jnp.float32(0))

    # Inversion: the result is the number of values k at which the distribution function is below u. It ends when all
    # functions have reached u, when terms have become 0, or at k = 80, far above the largest mean.
    def is_unfinished(state: Any) -> Any:
        k, term, total, _ = state
        return jnp.any((total < u) & (term > 0)) & (k < 80)

    def add_term(state: Any) -> Any:
        # `term` is the probability of k, and `total` that of at most k.
        k, term, total, count = state
        return k + 1, term * rate / (k + 1), total + term * rate / (k + 1), count + (total < u).astype(jnp.float32)

    first = jnp.exp(-rate)
    state = (jnp.float32(0), first, first, jnp.zeros_like(rate))
    *_, events = jax.lax.while_loop(is_unfinished, add_term, state)

    # For larger means: JAX's rejection method, or, for many events, the rounded normal distribution.
    def rejection(_: Any) -> Any:
        # Elements that the other two methods draw get a rate that JAX's method accepts; their result is not used.
        rates = jnp.where(few, jnp.float32(_FEW), jnp.minimum(mean, jnp.float32(_MANY)))
        numbers = jax.vmap(jax.vmap(lambda key, rate: jax.random.poisson(key, rate, dtype=jnp.int32)))(keys, rates)
        normal_events = jnp.floor(mean + jnp.sqrt(mean) * normal(keys) + jnp.float32(0.5))
        return jnp.where(few, events, jnp.where(many, normal_events, numbers.astype(jnp.float32)))

    return jax.lax.cond(jnp.all(few), lambda _: events, rejection, None)


@operator_function(Shot)
def shot(
    input: Input,
    /,
    *,
    factor: Annotated[PerSample[float], Range(0)] = 20.0,
    seed: int = -1,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[SeededHints],
) -> DataNode:
    """Adds shot noise: an element becomes `factor` times a Poisson number of mean ``max(0, element / factor)``.

    Args:
      input: any tensor of integers or floats. Results are computed in float32; integers are rounded and saturated.
        Elements that are not finite do not change.
      factor: how much one event adds to an element; a larger factor gives more noise, 0 gives none. May be per sample.
      seed: a seed for this operator only. Default: the pipeline's seed. The same seed gives other noise in DALI.

    Returns:
      The input's shape, type and layout.

    Raises:
      TypeError: the input is bool.

    Example:
      >>> fn.noise.shot(images, factor=fn.random.uniform(range=(1.0, 40.0)))
    """
    ...
