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
from ..._core.ragged import ALIGNMENT
from ..._core.values import Value
from .._families.conversion import convert
from ._noise import Key, Noise, fold_in, normal, uniform

# Means below the first are drawn by inversion, and means above the second from the normal distribution.
_FEW, _MANY = 16, 1e6
# So many terms of a distribution function are added in one pass over the elements.
_TERMS = 4


class Shot(Noise):
    """Replaces each element by a Poisson-distributed number with this mean."""

    name = "noise.shot"

    def numbers(self, ctx: HostContext, values: Sequence[Value]) -> Mapping[str, np.ndarray]:
        return {"factor": self.arguments(ctx, values).factor.astype(np.float32)}

    def element(self, x: Any, keys: Key, factor: Any) -> Any:
        """Draws the number of events of each element. Elements that are infinite or NaN, or whose factor is 0, do not
        change.
        """
        step = jnp.where(factor > 0, factor, jnp.float32(1))
        mean = x.astype(jnp.float32) / step
        has_mean = jnp.isfinite(mean) & (factor > 0)
        events = poisson(keys, jnp.maximum(jnp.where(has_mean, mean, jnp.float32(0)), jnp.float32(0)))
        return jnp.where(has_mean, convert(jnp, events * step, np.dtype(x.dtype)), x)


def poisson(keys: Key, mean: Any) -> Any:
    """Poisson-distributed numbers, f32, for finite means of at least 0."""
    # Masks of the elements that inversion draws, and of those from the normal distribution.
    few, many = mean < jnp.float32(_FEW), mean > jnp.float32(_MANY)
    u, _ = uniform(keys)
    rate = jnp.where(few, mean, jnp.float32(0))

    # Inversion: the result is the number of values k at which the distribution function is below u. It ends when all
    # functions have reached u, when terms have become 0, or at k = 80, far above the largest mean.
    def is_below(term: Any, total: Any) -> Any:
        return (total < u) & (term > 0)

    def is_unfinished(state: Any) -> Any:
        k, term, total, _ = state
        return jnp.any(is_below(term, total)) & (k < 80)

    def add_terms(state: Any) -> Any:
        # `term` is the probability of k, and `total` that of at most k.
        k, term, total, count = state
        for _ in range(_TERMS):
            count = count + is_below(term, total).astype(jnp.float32)
            k = k + 1
            term = term * rate / k
            total = total + term
        return k, term, total, count

    first = jnp.exp(-rate)
    state = (jnp.float32(0), first, first, jnp.zeros_like(rate))
    *_, events = jax.lax.while_loop(is_unfinished, add_terms, state)

    # For larger means: rejection, or, for many events, the rounded normal distribution.
    def with_larger(events: Any) -> Any:
        events = jnp.where(few, events, jnp.float32(-1))
        return rejection(keys, mean, jax.lax.cond(jnp.any(many), with_many, lambda events: events, events))

    def with_many(events: Any) -> Any:
        return jnp.where(many, jnp.floor(mean + jnp.sqrt(mean) * normal(keys) + jnp.float32(0.5)), events)

    return jax.lax.cond(jnp.all(few), lambda events: events, with_larger, events)


def rejection(keys: Key, mean: Any, events: Any) -> Any:
    """Replaces negative `events` by Poisson-distributed numbers, f32, for means of at least 10.

    The numbers are those of `jax.random.poisson`, which would store the arrays of all keys again and again.
    """
    if not events.size:  # XLA gathers nothing from an empty array
        return events

    def redraw(state: Any) -> Any:
        events, keys, mean = state
        return jnp.where(events < 0, _candidate(keys, mean), events), fold_in(keys, np.uint32(0)), mean

    def redraw_while_more(limit: int, state: Any) -> Any:
        """Draws until at most `limit` elements are negative."""
        return jax.lax.while_loop(lambda state: jnp.sum(state[0] < 0, dtype=jnp.int32) > limit, redraw, state)

    # All elements are drawn together until at most an eighth of them is left, and these alone then, so that the last
    # ones don't take passes over all. They are whole blocks, so that the loop is vectorized.
    limit = events.size // 8 // ALIGNMENT * ALIGNMENT + ALIGNMENT
    state = jax.tree.map(jnp.ravel, redraw_while_more(limit, (events, keys, mean)))
    is_negative = state[0] < 0
    rank = jnp.where(is_negative, jnp.cumsum(is_negative, dtype=jnp.int32) - 1, limit)
    index = jnp.full(limit, events.size, jnp.int32).at[rank].set(jnp.arange(events.size, dtype=jnp.int32), mode="drop")
    # Indices behind the last element give 0, which needs no drawing.
    remainder = jax.tree.map(lambda x: x.at[index].get(mode="fill", fill_value=0), state)
    numbers = redraw_while_more(0, remainder)[0]
    return state[0].at[index].set(numbers, mode="drop").reshape(events.shape)


def _candidate(keys: Key, mean: Any) -> Any:
    """A number for each element, or -1 where it is rejected: one step of the method PTRS of W. Hörmann, "The
    transformed rejection method for generating Poisson random variables", 1993.
    """
    b = jnp.float32(0.931) + jnp.float32(2.53) * jnp.sqrt(mean)
    a = jnp.float32(-0.059) + jnp.float32(0.02483) * b
    inv_alpha = jnp.float32(1.1239) + jnp.float32(1.1328) / (b - jnp.float32(3.4))
    v_r = jnp.float32(0.9277) - jnp.float32(3.6224) / (b - jnp.float32(2))
    u, v = (_uniform_of_jax(fold_in(keys, np.uint32(i))) for i in (1, 2))
    u = u - jnp.float32(0.5)
    us = jnp.float32(0.5) - abs(u)
    k = jnp.floor((2 * a / us + b) * u + mean + jnp.float32(0.43))
    is_inside = (us >= jnp.float32(0.07)) & (v <= v_r)
    is_outside = (k < 0) | (us < jnp.float32(0.013)) & (v > us)
    ratio = jnp.log(v * inv_alpha / (a / (us * us) + b))
    is_below = ratio <= -mean + k * jnp.log(mean) - jax.lax.lgamma(k + jnp.float32(1))
    return jnp.where(is_inside | ~is_outside & is_below, k, jnp.float32(-1))


def _uniform_of_jax(key: Key) -> Any:
    """The number that `jax.random.uniform` draws from a key, f32 in [0, 1)."""
    first, second = fold_in(key, np.uint32(0))
    # The bits become the fraction of a number in [1, 2).
    bits = (first ^ second) >> np.uint32(9) | np.float32(1).view(np.uint32)
    return jax.lax.bitcast_convert_type(bits, jnp.float32) - jnp.float32(1)


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
