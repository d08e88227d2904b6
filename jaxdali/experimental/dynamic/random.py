"""DALI's random numbers: each thread has a default generator, which `set_seed` seeds."""

from __future__ import annotations

import copy
import json
import secrets
import threading
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from ... import dynamic as _dynamic

_local = threading.local()


class RNG(_dynamic.random.RNG):
    """A generator, for functions that take ``rng=``.

    Args:
      seed: a number; None: another one each time.
      state: what `get_state` returned.
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
        """As it was given, or drawn. If it is set, the generator begins anew."""
        return self._seed

    @seed.setter
    def seed(self, seed: int):
        self.set_state(json.dumps({"seed": seed, "taken": 0}))

    def clone(self) -> RNG:
        """Another one that gives the same keys from here on."""
        return copy.copy(self)

    def advance(self, n: int) -> None:
        """Leaves out `n` keys."""
        self._take(n)

    def get_state(self) -> str:
        """Where it is, as a text."""
        return json.dumps({"seed": self._seed, "taken": self._taken})

    def set_state(self, state: Any) -> None:
        """Goes on from there. ValueError: it is no state of a generator."""
        try:
            found = json.loads(str(state))
            seed, taken = int(found["seed"]), int(found["taken"])
        except (ValueError, KeyError, TypeError) as e:
            raise ValueError(f"this is not the state of a generator: {state!r}") from e
        self.__dict__.pop("_base", None)
        self._seed, self._taken = seed, taken

    state = property(get_state, set_state)

    def __reduce__(self) -> Any:
        return RNG, (None, self.get_state())


def set_seed(seed: int) -> None:
    """Has the default generator of this thread begin anew with a seed."""
    _local.rng = RNG(seed)


def get_default_rng() -> RNG:
    """The default generator of this thread."""
    if "rng" not in _local.__dict__:
        _local.rng = RNG()
    return _local.rng


if TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """The operators; `_functions` puts them here."""
        ...
