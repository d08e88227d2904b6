"""The native threads that all functions of values share."""

from __future__ import annotations

import functools
import os
import threading

from .. import _cpu
from .._core.system import MAX_THREADS, available_cpus, fork_error, forked_from_jax, refuse_fork

# The id of the shared pool. It is the same in every process, as programs that are exported, or cached on disk, contain
# it. So there is a number of threads from the import on: such a program may run before any function is called.
SHARED = 0
_cpu.pool_share(available_cpus())

_lock = threading.Lock()  # guards the numbers below, and which pool is the shared one
_num_threads_set: int | None = None  # by `set_num_threads`
_pool_pid: int | None = None  # the process in which the first function was called


def set_num_threads(number: int) -> None:
    """Sets the number of native threads that all functions of values in a process share. Default: the number of CPUs
    that the process may use.

    Raises:
      ValueError: the number is below 1, or above 4096.
    """
    global _num_threads_set
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= MAX_THREADS:
        raise ValueError(f"set_num_threads takes a number of 1 to {MAX_THREADS}, got {number!r}")
    with _lock:
        _num_threads_set = number
        # The pool of a process that was forked has no threads which could end.
        if _pool_pid in (None, os.getpid()) and not forked_from_jax():
            _cpu.pool_share(number)


def set_default_num_threads(number: int) -> None:
    """Sets the number for a process whose user has set none."""
    if _num_threads_set is None:
        set_num_threads(number)


def get_num_threads() -> int:
    """The number of native threads that functions of values use."""
    return _num_threads_set or _default_num_threads()


@functools.cache
def _default_num_threads() -> int:
    """The number of CPUs when the first function is called.

    It is cached, as reading the limits of control groups takes a third of the time of a small call.
    """
    return available_cpus()


def check_pool() -> None:
    """Gives the shared pool its number of threads when the first function is called.

    Raises:
      RuntimeError: the process was forked from one in which functions, or JAX, had run.
    """
    global _pool_pid
    if _pool_pid == os.getpid():  # without the lock, which another thread may have held when this process was forked
        return
    if _pool_pid is not None:
        raise fork_error("called functions of jaxdali.dynamic")
    refuse_fork()
    with _lock:
        if _pool_pid is None:
            _cpu.pool_share(get_num_threads())
            _pool_pid = os.getpid()
