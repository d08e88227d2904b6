"""The keys of random numbers in functions of values."""

from __future__ import annotations

import dataclasses
import functools
import operator
import threading
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ._threads import check_pool

_lock = threading.Lock()  # guards how many keys each generator has given


class RNG:
    """A sequence of keys for functions with ``rng=``: each such call takes the next key.

    Args:
      seed: a number; generators with the same seed give the same keys. A copy of a generator in another process continues with the same
        keys.
    """

    def __init__(self, seed: int):
        if is_key(seed):
            raise TypeError("RNG: seed must be a number, got a key of jax.random: pass it to functions as key=, or a number as RNG(0)")
        self._seed, self._taken = operator.index(seed), 0

    def key(self) -> jax.Array:
        """The next key."""
        check_pool()
        return jax.random.fold_in(self._base, self._take(1))

    def _take(self, keys: int) -> int:
        """Counts keys as taken. Returns the number of the first."""
        with _lock:
            number, self._taken = self._taken, self._taken + keys
        return number

    @functools.cached_property
    def _base(self) -> jax.Array:
        """Made with the first call, so that a process with a generator may be forked before it runs JAX."""
        return jax.random.key(self._seed)

    def __reduce__(self) -> Any:
        return RNG._at, (self._seed, self._taken)

    @staticmethod
    def _at(seed: int, taken: int) -> RNG:
        made = RNG(seed)
        made._taken = taken
        return made

    def __repr__(self) -> str:
        return f"RNG({self._taken} keys taken)"


def is_key(x: Any) -> bool:
    """Whether `x` is a JAX key, or an array of keys."""
    if isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        return True
    return isinstance(x, (jax.Array, np.ndarray)) and x.dtype == np.uint32 and x.ndim in (1, 2) and x.shape[-1] in (2, 4)


def number_of_keys(key: Any) -> int | None:
    """The number of keys in an array; None for a single key.

    Raises:
      TypeError: it is none.
    """
    if not is_key(key):
        raise TypeError(f"key must be a jax.random.key, or one for each sample, got {type(key).__name__}")
    axes = key.ndim if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else key.ndim - 1
    if axes > 1:
        raise ValueError(f"key must be one key or an array of N keys, got an array of shape {key.shape}")
    return key.shape[0] if axes else None


@dataclasses.dataclass(frozen=True)
class KeyOf:
    """A key that a traced function was called with, or a key derived from it.

    Attributes:
      index: the number of the key; path: how it is derived, see `split` and `fold_in`.
    """

    index: int
    path: tuple[tuple[str, int, int], ...] = ()

    def words(self, keys: Sequence[Any], N: int) -> jax.Array:
        """``u32[N, words]``, of the keys of a call."""
        key = keys[self.index]
        for how, a, b in self.path:
            key = split(key, a)[b] if how == "split" else fold_in(key, a)
        return words_of(key, N)


def split(key: Any, num: int = 2) -> Any:
    """Like `jax.random.split`, and also for a key of a function of `jit`. Of N keys, one for each sample, each is split.

    Returns:
      `num` keys.
    """
    if isinstance(key, KeyOf):
        return [dataclasses.replace(key, path=(*key.path, ("split", num, i))) for i in range(num)]
    if number_of_keys(key) is None:
        return jax.random.split(key, num)
    keys = jax.vmap(lambda k: jax.random.split(k, num))(_typed(key))
    return [keys[:, i] for i in range(num)]


def fold_in(key: Any, data: int) -> Any:
    """Like `jax.random.fold_in`, and also for a key of a function of `jit`. With N keys, one for each sample, it applies to each."""
    if isinstance(key, KeyOf):
        return dataclasses.replace(key, path=(*key.path, ("fold_in", int(data), 0)))
    if number_of_keys(key) is None:
        return jax.random.fold_in(key, data)
    return jax.vmap(lambda k: jax.random.fold_in(k, data))(_typed(key))


def _typed(key: Any) -> jax.Array:
    return key if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else jax.random.wrap_key_data(jnp.asarray(key))


def numbers_of(words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What the random numbers of N samples are keyed by, two ``i64[N]``, of ``u32[N, words]``."""
    words = words.astype(np.int64)
    high = words[:, 2:].T if words.shape[1] == 4 else (0, 0)
    return words[:, 0] | (high[0] << 32), words[:, 1] | (high[1] << 32)


def words_of(key: Any, N: int) -> jax.Array:
    """``u32[N, words]``: the keys of N samples, of which sample i uses ``jax.random.fold_in(key, i)`` where there is one key.

    Raises:
      ValueError: there are several, but not N.
    """
    count = number_of_keys(key)
    if count not in (None, N):
        raise ValueError(f"there are {count} keys for {N} samples: pass one for each, or one key for all")
    return _words(_typed(key), N if count is None else None)


@functools.partial(jax.jit, static_argnums=1)
def _words(key: jax.Array, N: int | None) -> jax.Array:
    keys = key if N is None else jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(N))
    return jax.random.key_data(keys)
