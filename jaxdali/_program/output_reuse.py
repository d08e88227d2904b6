"""Reuses the memory of earlier outputs for new outputs of programs on the CPU, after users have dropped them."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from .._core import ffi as _ffi
from .._core.ragged import Ragged, lend
from .._plan.plan import Ref

MAX_FREE = 2  # unused arrays per output that are kept


# Note [Output reuse]
# The system clears fresh memory page by page, which takes a tenth of the time of decoding. So a large result on the CPU
# is lent to the user. When the last reference to its memory is gone, it is donated to the next run of its program,
# which writes into it. Anyone who holds an array, a view of it, or a tensor of another framework over the same memory
# therefore keeps it from being overwritten; no defensive copy is needed.
class OutputReuse:
    """Lets programs write results into the memory of earlier results.

    XLA allocates the memory of each result with malloc, which requests it from the system, and the system clears it
    page by page: a tenth of the time of decoding. So users get arrays that borrow their memory from the result, which
    is kept here and nowhere else. When the last reference to the memory is gone (an array's, a view's in NumPy or
    another framework, a running program's), the result is free, and is donated to the program that makes the next one.
    """

    def __init__(self):
        self._free: dict[Ref, collections.deque[jax.Array]] = {}

    def take(self, wanted: Mapping[Ref, jax.ShapeDtypeStruct], device: jax.Device) -> tuple[jax.Array, ...]:
        """Arrays to donate to a program; their contents are not needed. Only one thread may call this at a time."""
        donated = []
        for ref, of in wanted.items():
            free = self._free.setdefault(ref, collections.deque(maxlen=MAX_FREE))
            while free:  # arrays of another capacity are dropped
                candidate = free.pop()
                if (candidate.shape, candidate.dtype) == (of.shape, of.dtype):
                    donated.append(candidate)
                    break
            else:
                donated.append(_ffi.empty(of, device))
        return tuple(donated)

    def lend(self, ref: Ref, result: Any) -> Any:
        """What users get in place of a finished result: an array or a `Ragged` in the same memory."""
        free = self._free.get(ref)
        if free is None:
            return result
        if isinstance(result, Ragged):
            return dataclasses.replace(result, data=_lent(result.data, free))
        return _lent(result, free)

    def clear(self):
        """Drops all free results. Results that are lent out are freed when their users drop them."""
        self._free.clear()


def _lent(owner: jax.Array, free: collections.deque[jax.Array]) -> jax.Array:
    owner.block_until_ready()
    view = lend(owner, owner.unsafe_buffer_pointer(), owner.shape, np.dtype(owner.dtype), free)
    # Takes a third of the time of device_put.
    return jax.make_array_from_callback(view.shape, owner.sharding, lambda _: view)
