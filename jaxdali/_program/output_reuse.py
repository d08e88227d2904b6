"""Memory for the outputs of programs on the CPU: that of earlier batches, when their users have dropped them."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from .._core import ffi as _ffi
from .._core.ragged import Ragged, lent
from .._plan.plan import Ref

MAX_FREE = 2  # arrays of each output that wait to be reused


# Note [Output reuse]
# Fresh memory has to be cleared by the system, page by page, which takes a tenth of the time of decoding. So a large result on the CPU is
# lent to the user, and when the last reference to its memory is gone, it is donated to the next run of its program, which writes into it.
# Whoever holds an array, a view of it, or a tensor of another framework over the same memory therefore keeps it from being written again;
# no copy is made to be safe.
class OutputReuse:
    """Has results written where results of earlier batches were.

    XLA asks malloc for the memory of each result, which asks the system, and the system clears page after page: a tenth of the time of
    decoding. So users get arrays that lend their memory from the result itself, which stays here and is nobody else's; when the last
    reference to the memory is gone (an array's, a view's in NumPy or another framework, a running program's), the result is free, and is
    donated to the program that makes the next one.
    """

    def __init__(self):
        self._free: dict[Ref, collections.deque[jax.Array]] = {}

    def take(self, wanted: Mapping[Ref, jax.ShapeDtypeStruct], device: jax.Device) -> tuple[jax.Array, ...]:
        """Arrays to be donated to a program, whose contents nobody needs. One thread at a time takes."""
        donated = []
        for ref, of in wanted.items():
            free = self._free.setdefault(ref, collections.deque(maxlen=MAX_FREE))
            while free:  # those of another capacity are let go
                candidate = free.pop()
                if (candidate.shape, candidate.dtype) == (of.shape, of.dtype):
                    donated.append(candidate)
                    break
            else:
                donated.append(_ffi.empty(of, device))
        return tuple(donated)

    def lend(self, ref: Ref, result: Any) -> Any:
        """What users get in place of a finished result: an array, or that of a `Ragged`, in the same memory."""
        free = self._free.get(ref)
        if free is None:
            return result
        if isinstance(result, Ragged):
            return dataclasses.replace(result, data=_lent(result.data, free))
        return _lent(result, free)

    def clear(self):
        """Lets go of all; what is still lent goes when its users let go of it."""
        self._free.clear()


def _lent(owner: jax.Array, free: collections.deque[jax.Array]) -> jax.Array:
    owner.block_until_ready()
    view = lent(owner, owner.unsafe_buffer_pointer(), owner.shape, np.dtype(owner.dtype), free)
    return jax.device_put(view, owner.sharding)
