"""Copies of device memory to pointers of other libraries, with CUDA's driver: JAX has no function for that."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from typing import Any

import jax

_DEVICE_OF_POINTER = 9  # CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL


def copy_to_pointer(arrays: Sequence[jax.Array], address: int, stream: int):
    """Copies arrays on one CUDA device, one after the other, to `address`, which may be on a device or on the host.

    Returns when the copy is complete, because afterwards the arrays' memory may be reused.

    Args:
      arrays: contiguous in C order.
      address: the target.
      stream: the CUDA stream (an address) that the copy is ordered on; 0: the default one.

    Raises:
      RuntimeError: there is no CUDA driver, or it reports an error.
    """
    driver = _driver()
    jax.block_until_ready(arrays)  # XLA's own streams may still write to the arrays
    for a in arrays:
        if not a.nbytes:
            continue
        source = ctypes.c_uint64(a.unsafe_buffer_pointer())
        device, context = ctypes.c_int(), ctypes.c_void_p()
        # The primary context of the device, which XLA uses. The context of the pointer can't be asked for: memory of
        # XLA's stream-ordered allocators has none.
        _check(driver.cuPointerGetAttribute(ctypes.byref(device), _DEVICE_OF_POINTER, source), "cuPointerGetAttribute")
        _check(driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), "cuDevicePrimaryCtxRetain")
        _check(driver.cuCtxPushCurrent_v2(context), "cuCtxPushCurrent")
        try:
            stream_handle = ctypes.c_void_p(stream)
            _check(
                driver.cuMemcpyAsync(ctypes.c_uint64(address), source, ctypes.c_size_t(a.nbytes), stream_handle),
                "cuMemcpyAsync",
            )
            _check(driver.cuStreamSynchronize(stream_handle), "cuStreamSynchronize")
        finally:
            driver.cuCtxPopCurrent_v2(ctypes.byref(context))
            driver.cuDevicePrimaryCtxRelease_v2(device)
        address += a.nbytes


@functools.cache
def _driver() -> Any:
    try:
        return ctypes.CDLL("libcuda.so.1")  # JAX has loaded and initialized it
    except OSError as e:
        raise RuntimeError(f"copying to a pointer needs CUDA's driver: {e}") from e


def _check(code: int, function: str):
    if code:
        raise RuntimeError(f"copy_to_external: {function} failed with CUDA error {code}")
