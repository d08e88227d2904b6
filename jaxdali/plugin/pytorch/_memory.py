"""Shares the memory of GPUs between JAX and PyTorch."""

from __future__ import annotations

import logging
import os

import jax

from ..._core.building import warn
from ..._core.ffi import is_cuda
from ..._core.jax_settings import devices_are_open

_log = logging.getLogger("jaxdali")
_PREALLOCATE = "XLA_PYTHON_CLIENT_PREALLOCATE"
_USER_VARIABLES = (
    _PREALLOCATE,
    "XLA_PYTHON_CLIENT_MEM_FRACTION",
    "XLA_CLIENT_MEM_FRACTION",
    "XLA_PYTHON_CLIENT_ALLOCATOR",
)


def disable_preallocation() -> bool:
    """Makes JAX take memory of GPUs as it needs it. By default it takes three quarters of each GPU when it opens them.

    It does nothing if the user has set one of XLA's variables for this.

    Returns:
      False if it is too late, as JAX has opened the GPUs already; else True.
    """
    if any(name in os.environ for name in _USER_VARIABLES):
        return True
    if devices_are_open():
        return False
    os.environ[_PREALLOCATE] = "false"
    _log.info(
        "%s=false: JAX takes memory of GPUs as it needs it, because PyTorch needs memory there, too", _PREALLOCATE
    )
    return True


_warned = False


def check_memory() -> None:
    """Calls `disable_preallocation` before an iterator is made. Warns once if JAX has taken the memory already."""
    global _warned
    if not disable_preallocation() and not _warned and any(map(is_cuda, jax.local_devices())):
        _warned = True
        warn(
            "JAX has taken three quarters of each GPU's memory, which PyTorch can't use: JAX was used before the first pipeline. "
            f"Set {_PREALLOCATE}=false before the program starts, or import jaxdali.plugin.pytorch and make a pipeline before JAX is used"
        )
