"""`OutputReuse`: reuses the memory of outputs that users have dropped, for new outputs of programs on the CPU."""

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

MAX_FREE = 2  # unused arrays that are kept for each output


# Note [Output reuse]
# XLA allocates the memory of each result with malloc, which requests it from the system, and the system clears it page
# by page. That takes a tenth of the time of decoding. So users do not get a large result on the CPU itself, but an
# array that borrows its memory. The result is kept here and nowhere else. When the last reference to the memory is gone
# (of an array, a view in NumPy or another framework, a running program), the result is free, and is donated to the next
# run of its program, which writes into it. So no reference sees its memory overwritten, and no defensive copy is
# needed.
class OutputReuse:
    """Lets programs write results into the memory of earlier results. See Note [Output reuse]."""

    def __init__(self):
        self._free: dict[Ref, collections.deque[jax.Array]] = {}  # results that nothing refers to, by output

    def take(self, types: Mapping[Ref, jax.ShapeDtypeStruct], device: jax.Device) -> tuple[jax.Array, ...]:
        """Returns arrays of these shapes and types to donate to a program. Their contents are arbitrary. Only one
        thread may call this at a time.
        """
        donated = []
        for ref, array_type in types.items():
            free = self._free.setdefault(ref, collections.deque(maxlen=MAX_FREE))
            while free:  # arrays of another capacity are dropped
                candidate = free.pop()
                if (candidate.shape, candidate.dtype) == (array_type.shape, array_type.dtype):
                    donated.append(candidate)
                    break
            else:
                donated.append(_ffi.empty(array_type, device))
        return tuple(donated)

    def lend(self, ref: Ref, result: Any) -> Any:
        """Returns an array or a `Ragged` in the memory of a finished result, which users get in its place."""
        free = self._free.get(ref)
        if free is None:  # the program reuses no memory for this output
            return result
        if isinstance(result, Ragged):
            return dataclasses.replace(result, data=_lent(result.data, free))
        return _lent(result, free)

    def clear(self):
        """Drops all free results. Results that are lent out are freed when their users drop them."""
        self._free.clear()


def _lent(owner: jax.Array, free: collections.deque[jax.Array]) -> jax.Array:
    """Returns an array in the memory of `owner`. When nothing refers to that memory, `owner` is appended to `free`."""
    owner.block_until_ready()
    view = lend(owner, owner.unsafe_buffer_pointer(), owner.shape, np.dtype(owner.dtype), free)
    # This takes a third of the time of device_put.
    return jax.make_array_from_callback(view.shape, owner.sharding, lambda _: view)
