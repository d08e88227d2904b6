"""The family of noise operators: functions of elements and random keys. A key depends on seed, operator, epoch,
position and element.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from ..._core.context import HostContext, LowerContext
from ..._core.operator import ProgramOperator, Setup
from ..._core.ragged import ALIGNMENT, Ragged
from ..._core.values import Spec, Value
from ...types import is_number
from .._families.drawing import uniforms
from .._families.ragged import fit, samples_of_blocks, shapes_of


class Noise(ProgramOperator):
    """Noise that the program draws from one key per sample. The host draws the keys like the numbers of `fn.random`."""

    random: ClassVar[bool] = True
    seed: int

    def element(self, x: Any, keys: Any, **numbers: Any) -> Any:
        """The elements with noise.

        Args:
          x: ``[R, C]``: the samples of a dense batch, or the blocks of a ragged one.
          keys: a JAX key for each element.
          numbers: the arrays that `numbers` returns, ``[R, 1]``.
        """
        raise NotImplementedError(self.name)

    def numbers(self, ctx: HostContext, values: Sequence[Value]) -> Mapping[str, np.ndarray]:
        """Parameters of the noise by name, one number per sample, ``[N]`` each."""
        raise NotImplementedError(self.name)

    def key_index(self, index: Any, **numbers: Any) -> Any:
        """The number of an element's key, by its index in the sample. Elements with one number get the same noise."""
        return index

    def infer(self, x: Spec, *arguments: Spec) -> tuple[Spec, ...]:
        if not is_number(x.dtype):
            raise TypeError(f"the input must be of integers or floats, got {x.dtype}")
        return (x,)

    def setup_reads(self, i: int) -> bool:
        return i > 0

    def setup(self, ctx: HostContext, *values: Value) -> Setup:
        # Two 32-bit words for each sample are a key of JAX's generator threefry2x32.
        keys = (uniforms(ctx, self.seed, 2) * 2.0**32).astype(np.uint32)
        return Setup((shapes_of(values[0]),), {"keys": keys, **self.numbers(ctx, values)})

    def lower(self, ctx: LowerContext, *arrays: Any) -> tuple[Any, ...]:
        """Makes a key for each element, and passes elements, keys and parameters to `element`."""
        x, out, params = arrays[0], ctx.out[0], dict(ctx.params)
        # The elements as rows, the parameters of each row, and the index of each element in its sample.
        if out is None:
            flat, rows = x.reshape(ctx.B, -1), {n: p[:, None] for n, p in params.items()}
            index = jnp.arange(flat.shape[1], dtype=jnp.int32)[None]
        else:
            # A block is ALIGNMENT elements of one sample of the ragged buffer.
            sample = samples_of_blocks(out.offsets, out.capacity)
            flat, rows = fit(x, out).data.reshape(-1, ALIGNMENT), {n: p[sample][:, None] for n, p in params.items()}
            first = jnp.arange(len(flat), dtype=jnp.int32) - out.offsets[sample]
            index = first[:, None] * ALIGNMENT + jnp.arange(ALIGNMENT, dtype=jnp.int32)
        key_indices = jnp.broadcast_to(self.key_index(index, **rows), flat.shape).astype(jnp.uint32)
        # Each element gets a key of its own: the sample's key, with the element's number folded in.
        words = jnp.broadcast_to(rows.pop("keys"), (*flat.shape, 2))
        keys = jax.vmap(jax.vmap(jax.random.fold_in))(jax.random.wrap_key_data(words, impl="threefry2x32"), key_indices)
        result = self.element(flat, keys, **rows)
        return (result.reshape(x.shape) if out is None else Ragged(result.reshape(-1), out.offsets, out.shapes),)


def uniform(keys: Any) -> tuple[Any, Any]:
    """Two random numbers from a key, f32 in (0, 1]."""
    bits = jax.random.key_data(keys).astype(jnp.float32)
    numbers = (bits + jnp.float32(1)) * jnp.float32(2.0**-32)
    return numbers[..., 0], numbers[..., 1]


def normal(keys: Any) -> Any:
    """A normally distributed number from a key: f32, mean 0, deviation 1 (Box-Muller)."""
    radius, turn = uniform(keys)
    return jnp.sqrt(jnp.float32(-2) * jnp.log(radius)) * jnp.cos(jnp.float32(2 * np.pi) * turn)
