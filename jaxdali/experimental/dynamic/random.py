"""DALI's random numbers: each thread has a default generator, which `set_seed` seeds."""

from __future__ import annotations

import copy
import json
import operator
import secrets
import threading
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from ... import dynamic as _dynamic
from ..._core.errors import quoted

_local = threading.local()


class RNG(_dynamic.random.RNG):
    """A generator, for functions that take ``rng=``.

    Args:
      seed: a number; None: a random one.
      state: a result of `get_state`.
    """

    def __init__(self, seed: int | None = None, state: Any = None):
        if seed is not None and state is not None:
            raise ValueError("RNG takes a seed or a state, got both")
        super().__init__(secrets.randbits(31) if seed is None else seed)
        if state is not None:
            self.set_state(state)

    def __call__(self) -> int:
        """The next number of 32 bits."""
        return int(jax.random.bits(self.key(), (), np.uint32))

    @property
    def seed(self) -> int:
        """The seed that was passed or drawn. Setting it restarts the generator."""
        return self._seed

    @seed.setter
    def seed(self, seed: int):
        self.set_state(json.dumps({"seed": seed, "taken": 0}))

    def clone(self) -> RNG:
        """Returns a generator that continues with the same keys."""
        return copy.copy(self)

    def advance(self, n: int) -> None:
        """Skips `n` keys."""
        self._take(n)

    def get_state(self) -> str:
        """The seed and the number of keys that were taken, as JSON."""
        return json.dumps({"seed": self._seed, "taken": self._num_taken})

    def set_state(self, state: Any) -> None:
        """Continues from a state. Raises ValueError if `state` is not a result of `get_state`."""
        try:
            content = json.loads(str(state))
            seed, num_taken = operator.index(content["seed"]), operator.index(content["taken"])
            if not (-(1 << 63) <= seed < 1 << 63 and 0 <= num_taken < 1 << 32):
                raise ValueError(f"seed {seed} and taken {num_taken} must fit 64 and 32 bits")
        except (ValueError, KeyError, TypeError, RecursionError) as e:
            raise ValueError(f"this is not the state of a generator: {quoted(state)}") from e
        self.__dict__.pop("_base", None)
        self._seed, self._num_taken = seed, num_taken

    state = property(get_state, set_state)

    def __reduce__(self) -> Any:
        return RNG, (None, self.get_state())


def set_seed(seed: int) -> None:
    """Reseeds this thread's default generator."""
    _local.rng = RNG(seed)


def get_default_rng() -> RNG:
    """The default generator of this thread."""
    if "rng" not in _local.__dict__:
        _local.rng = RNG()
    return _local.rng


if TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """The operators. `_functions` adds them to this module."""
        ...
