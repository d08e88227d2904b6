"""Copies tensors to the memory at a pointer."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from .._core.ffi import is_cuda
from .cuda_driver import copy_to_pointer


def copy_out(arrays: Sequence[np.ndarray], ptr: Any):
    """Copies arrays, one after the other, to host memory at `ptr`."""
    address = _address(ptr)
    for a in arrays:
        a = np.ascontiguousarray(a)
        ctypes.memmove(address, a.ctypes.data, a.nbytes)
        address += a.nbytes


def copy_from_device(arrays: Sequence[Any], ptr: Any, stream: Any):
    """Copies arrays on the accelerator, one after the other, to memory of the accelerator or the host at `ptr`.

    Args:
      stream: orders the copy: an address of a ``cudaStream_t``, a stream of PyTorch, or None for the default stream.
    """
    if not any(is_cuda(d) for a in arrays if isinstance(a, jax.Array) for d in a.devices()):
        copy_out([np.asarray(a) for a in arrays], ptr)
        return
    stream = getattr(stream, "cuda_stream", stream)  # a stream of PyTorch
    copy_to_pointer(arrays, _address(ptr), (stream.value if isinstance(stream, ctypes.c_void_p) else stream) or 0)


def _address(ptr: Any) -> int:
    """The address of a pointer. Raises an error if it is no pointer, or null."""
    address = ptr.value if isinstance(ptr, ctypes.c_void_p) else ptr
    if address is not None and not isinstance(address, int):
        raise TypeError(f"copy_to_external: expected a ctypes.c_void_p or an int, got {type(ptr).__name__}")
    if not address:
        raise ValueError("copy_to_external: the pointer is null")
    return address
