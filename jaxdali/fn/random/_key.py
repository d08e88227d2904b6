"""random.key: JAX random keys."""

from __future__ import annotations

from typing import ClassVar, Literal, Unpack

import numpy as np

from ..._core.building import add
from ..._core.context import HostContext
from ..._core.graph import DataNode
from ..._core.operator import HostOperator
from ..._core.operator_function import SeededHints, operator_function
from ..._core.values import Spec
from .._families.drawing import uniforms


class Key(HostOperator):
    """The key data of JAX's generator threefry2x32."""

    name: ClassVar[str] = "random.key"
    random: ClassVar[bool] = True

    seed: int

    def infer(self) -> tuple[Spec, ...]:
        return (Spec(np.dtype(np.uint32), 1, (2,), keys=True),)

    def run(self, ctx: HostContext):
        return ((uniforms(ctx, self.seed, 2) * 2**32).astype(np.uint32),)  # the upper 32 of 53 random bits


@operator_function("random.key")
def key(
    *,
    seed: int = -1,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[SeededHints],
) -> DataNode:
    """Makes a JAX random key for each sample, for your own random functions. Not in DALI.

    A `jax_function` gets the keys of a batch as typed keys, ``key<fry>[batch]``, as `jax.random.split` returns them;
    with `jax.vmap`, each sample has its own. The key of a sample depends only on the pipeline's seed, the operator's
    number among the random operators, and the sample's epoch and position. Batch size, number of shards, and device do
    not change it, and a resumed pipeline gives the same keys.

    Everywhere else, for example as an output of the pipeline, a key is its data: ``uint32[2]`` per sample, an ordinary
    array that can be sharded, stored and passed to `jax.jit`. There, ``jax.random.wrap_key_data(batch["key"],
    impl="threefry2x32")`` turns it into keys.

    Args:
      seed: fixes the keys regardless of the pipeline's seed and of the operator's place in the pipeline; a negative
        seed counts as not given.
      device: with "gpu", the result is moved to the accelerator. The keys are the same.
      name: the name of the node.

    Returns:
      Key data of the generator threefry2x32, ``uint32[2]`` per sample.

    Example:
      >>> @jax_function
      ... def add_noise(images, keys):
      ...     return jax.vmap(lambda image, key: image + jax.random.normal(key, image.shape))(images, keys)
      >>> noisy = add_noise(images, fn.random.key())
    """
    return add(Key(seed=seed), device=device, name=name)
