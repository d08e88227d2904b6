"""The family of noise operators: functions of elements and random keys. A key depends on seed, operator, epoch,
position and element.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np

from ..._core.context import HostContext, LowerContext
from ..._core.operator import ProgramOperator, Setup
from ..._core.ragged import ALIGNMENT, Ragged
from ..._core.values import Spec, Value
from ...types import is_number
from .._families.drawing import uniforms
from .._families.ragged import fit, samples_of_blocks, shapes_of

# A key of JAX's generator threefry2x32: two arrays u32, its words.
Key = tuple[Any, Any]

# By how many bits the rounds of threefry2x32 rotate: groups of four rounds take turns.
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


class Noise(ProgramOperator):
    """Noise that the program draws from one key per sample. The host draws the keys like the numbers of `fn.random`."""

    random: ClassVar[bool] = True
    seed: int

    def element(self, x: Any, keys: Key, **numbers: Any) -> Any:
        """The elements with noise.

        Args:
          x: ``[R, C]``: the samples of a dense batch, or the blocks of a ragged one.
          keys: a key for each element.
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
        # Two 32-bit words for each sample are its key.
        keys = (uniforms(ctx, self.seed, 2) * 2.0**32).astype(np.uint32)
        return Setup((shapes_of(values[0]),), {"keys": keys, **self.numbers(ctx, values)})

    def lower(self, ctx: LowerContext, *arrays: Any) -> tuple[Any, ...]:
        """Makes a key for each element, and passes elements, keys and parameters to `element`."""
        x, out, params = arrays[0], ctx.out[0], dict(ctx.params)
        # The elements as rows, the parameters of each row, and the index of each element in its sample.
        if out is None:
            # They end at a whole block: XLA's loops over an odd number of elements are not vectorized on CPUs.
            flat = x.reshape(ctx.B, -1)
            size = flat.shape[1]
            flat, rows = jnp.pad(flat, ((0, 0), (0, -size % ALIGNMENT))), {n: p[:, None] for n, p in params.items()}
            index = jnp.arange(flat.shape[1], dtype=jnp.int32)[None]
        else:
            # A block is ALIGNMENT elements of one sample of the ragged buffer.
            sample = samples_of_blocks(out.offsets, out.capacity)
            flat, rows = fit(x, out).data.reshape(-1, ALIGNMENT), {n: p[sample][:, None] for n, p in params.items()}
            first = jnp.arange(len(flat), dtype=jnp.int32) - out.offsets[sample]
            index = first[:, None] * ALIGNMENT + jnp.arange(ALIGNMENT, dtype=jnp.int32)
        # Each element gets a key of its own: the sample's key, with the element's number folded in.
        words = rows.pop("keys")
        keys = fold_in((words[..., 0], words[..., 1]), self.key_index(index, **rows).astype(jnp.uint32))
        result = self.element(flat, keys, **rows)
        if out is None:
            return (result[:, :size].reshape(x.shape),)
        return (Ragged(result.reshape(-1), out.offsets, out.shapes),)


def fold_in(key: Key, number: Any) -> Key:
    """The key that `jax.random.fold_in` makes of a key and a number, u32, for each element.

    `number` i also gives key i of `jax.random.split`. JAX's own function loops over the rounds on CPUs and stores all
    arrays after each; written out, XLA makes one pass over the elements of all rounds and of what follows.
    """
    first, second = key
    words = (first, second, first ^ second ^ np.uint32(0x1BD11BDA))
    x, y = first, second + number
    for i in range(5):
        for bits in _ROTATIONS[i % 2]:
            x = x + y
            y = x ^ (y << np.uint32(bits) | y >> np.uint32(32 - bits))
        x, y = x + words[(i + 1) % 3], y + words[(i + 2) % 3] + np.uint32(i + 1)
    return x, y


def uniform(key: Key) -> tuple[Any, Any]:
    """Two random numbers from a key, f32 in (0, 1]."""
    first, second = ((word.astype(jnp.float32) + jnp.float32(1)) * jnp.float32(2.0**-32) for word in key)
    return first, second


def normal(key: Key) -> Any:
    """A normally distributed number from a key: f32, mean 0, deviation 1 (Box-Muller)."""
    radius, turn = uniform(key)
    return jnp.sqrt(jnp.float32(-2) * jnp.log(radius)) * jnp.cos(jnp.float32(2 * np.pi) * turn)
