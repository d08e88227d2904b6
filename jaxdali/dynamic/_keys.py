"""The keys of random numbers in functions of values."""

from __future__ import annotations

import dataclasses
import functools
import operator
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ._threads import check_pool
from ._tracing import run_untraced

_lock = threading.Lock()  # guards the number of keys that each generator has given


class RNG:
    """A sequence of keys for functions with ``rng=``: each such call takes the next key.

    Args:
      seed: a number; generators with the same seed give the same keys. A copy of a generator in another process
        continues with the same keys.
    """

    def __init__(self, seed: int):
        if is_key(seed):
            raise TypeError(
                "RNG: seed must be a number, got a key of jax.random: pass it to functions as key=, or a number as RNG(0)"
            )
        self._seed, self._num_taken = operator.index(seed), 0

    def key(self) -> jax.Array:
        """The next key."""
        check_pool()
        return jax.random.fold_in(self._base, self._take(1))

    def _take(self, keys: int) -> int:
        """Counts `keys` keys as taken. Returns the number of the first of them."""
        with _lock:
            number, self._num_taken = self._num_taken, self._num_taken + keys
        return number

    @functools.cached_property
    def _base(self) -> jax.Array:
        """The key that the others are folded from.

        It is made late, so that a process may be forked before it runs JAX.
        """
        return run_untraced(lambda: jax.random.key(self._seed))

    def __reduce__(self) -> Any:
        return RNG._at, (self._seed, self._num_taken)

    @staticmethod
    def _at(seed: int, taken: int) -> RNG:
        rng = RNG(seed)
        rng._num_taken = taken
        return rng

    def __repr__(self) -> str:
        return f"RNG({self._num_taken} keys taken)"


def is_key(x: Any) -> bool:
    """Whether `x` is a JAX key, or an array of keys: typed keys, or raw ones, which are 2 or 4 words."""
    if isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        return True
    return (
        isinstance(x, (jax.Array, np.ndarray)) and x.dtype == np.uint32 and x.ndim in (1, 2) and x.shape[-1] in (2, 4)
    )


def number_of_keys(key: Any) -> int | None:
    """The number of keys in an array; None for a single key.

    Raises:
      TypeError: `key` is no key.
    """
    if not is_key(key):
        raise TypeError(f"key must be a jax.random.key, or one for each sample, got {type(key).__name__}")
    axes = key.ndim if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else key.ndim - 1
    if axes > 1:
        raise ValueError(f"key must be one key or an array of N keys, got an array of shape {key.shape}")
    return key.shape[0] if axes else None


@dataclasses.dataclass(frozen=True)
class TracedKey:
    """A key inside a traced function: one that the function was called with, or one derived from it.

    Attributes:
      index: position among the keys of the call.
      path: the steps that derive this key: ("split", num), ("fold_in", data) or ("item", i).
      count: number of keys in the array; None: it is a single key.
      single: whether all samples use the key of sample 0.
    """

    index: int
    count: int | None
    path: tuple[tuple[str, int], ...] = ()
    single: bool = False

    def derived(self, step: str, number: int, count: int | None) -> TracedKey:
        """Returns the key after one more step."""
        return dataclasses.replace(self, path=(*self.path, (step, number)), count=count)

    def resolve(self, keys: Sequence[Any]) -> Any:
        """Computes the key from the keys of a call."""
        key = keys[self.index]
        for step, number in self.path:
            key = key[number] if step == "item" else split(key, number) if step == "split" else fold_in(key, number)
        return key

    def words(self, keys: Sequence[Any], N: int) -> jax.Array:
        """Computes the key data of N samples, ``u32[N, words]``, from the keys of a call."""
        return words_of(self.resolve(keys), N, self.single)

    def __len__(self) -> int:
        if self.count is None:
            raise TypeError("len() of a single key")
        return self.count

    def __getitem__(self, i: int) -> TracedKey:
        if not -len(self) <= operator.index(i) < len(self):
            raise IndexError(f"key {i} of {len(self)}")
        return self.derived("item", operator.index(i) % len(self), count=None)

    def __iter__(self) -> Iterator[TracedKey]:
        return (self[i] for i in range(len(self)))


@dataclasses.dataclass(frozen=True)
class TracedKeys:
    """A list of keys in a traced function, one for each sample."""

    keys: tuple[TracedKey, ...]
    single = False

    @property
    def count(self) -> int:
        return len(self.keys)

    def words(self, keys: Sequence[Any], N: int) -> jax.Array:
        """Computes the key data of N samples, ``u32[N, words]``, from the keys of a call."""
        return words_of(listed([k.resolve(keys) for k in self.keys]), N)


def listed(key: Any) -> Any:
    """Stacks a list or tuple of keys into one array of keys; returns anything else unchanged."""
    if not isinstance(key, (list, tuple)) or not key:
        return key
    if all(isinstance(k, TracedKey) and k.count is None for k in key):
        return TracedKeys(tuple(key))
    return jnp.stack([_typed(k) for k in key]) if all(map(is_key, key)) else key


def split(key: Any, num: int = 2) -> Any:
    """Like `jax.random.split`, and also for a key inside a function of `jit`. An array of N keys, one for each sample,
    is split key by key.

    Returns:
      `num` keys, or a list of `num` arrays of N keys.
    """
    if isinstance(key, TracedKey):
        if key.count is None:
            return key.derived("split", num, num)
        return [key.derived("split", num, num).derived("item", i, key.count) for i in range(num)]
    if number_of_keys(key) is None:
        return jax.random.split(key, num)
    keys = jax.vmap(lambda k: jax.random.split(k, num))(_typed(key))
    return [keys[:, i] for i in range(num)]


def fold_in(key: Any, data: int) -> Any:
    """Like `jax.random.fold_in`, and also for a key inside a function of `jit`.

    `data` is folded into each of N keys.
    """
    if isinstance(key, TracedKey):
        return key.derived("fold_in", int(data), key.count)
    if number_of_keys(key) is None:
        return jax.random.fold_in(key, data)
    return jax.vmap(lambda k: jax.random.fold_in(k, data))(_typed(key))


def _typed(key: Any) -> jax.Array:
    """Converts raw keys into typed ones; returns typed keys unchanged."""
    if jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        return key
    # A raw key has no type. Its number of words tells which generator it is for: threefry has 2, rbg 4. If the default
    # implementation of JAX has that number, impl=None selects it, as it may also be "unsafe_rbg".
    expects_four_words = "rbg" in getattr(jax.config, "jax_default_prng_impl")  # noqa: B009  no attribute that a type checker knows
    impl = None if expects_four_words == (key.shape[-1] == 4) else "threefry2x32" if expects_four_words else "rbg"
    return jax.random.wrap_key_data(jnp.asarray(key), impl=impl)


def key_halves(words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Two numbers ``i64[N]`` that key the random numbers of N samples, from key data ``u32[N, words]``.

    Keys of threefry have 2 words, those of rbg 4: the last two are then the numbers' high halves.
    """
    words = words.astype(np.int64)
    high = words[:, 2:].T if words.shape[1] == 4 else (0, 0)
    return words[:, 0] | (high[0] << 32), words[:, 1] | (high[1] << 32)


def words_of(key: Any, N: int, single: bool = False) -> jax.Array:
    """Key data of N samples, ``u32[N, words]``. From one key, sample i gets ``jax.random.fold_in(key, i)``.

    Args:
      key: one key, or N keys.
      N: number of samples.
      single: whether all samples use the key of sample 0.

    Raises:
      ValueError: there are several keys, but not N.
    """
    count = number_of_keys(key)
    if count not in (None, N):
        raise ValueError(f"there are {count} keys for {N} samples: pass one for each, or one key for all")
    return _words(_typed(key), N if count is None else None, single)


@functools.partial(jax.jit, static_argnums=(1, 2))
def _words(key: jax.Array, N: int | None, single: bool) -> jax.Array:
    """Computes the result of `words_of`; `N` is None if there is a key for each sample."""
    keys = (
        key
        if N is None
        else jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.zeros(N, int) if single else jnp.arange(N))
    )
    return jax.random.key_data(keys)
