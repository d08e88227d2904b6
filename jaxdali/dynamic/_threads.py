"""The native threads that all functions of values share."""

from __future__ import annotations

import functools
import os
import threading

from .. import _cpu
from .._core.system import available_cpus, names_of_threads

SHARED = 0  # id of the pool, in every process: programs that are kept on disk hold it

_lock = threading.Lock()  # guards the numbers below, and which pool is the shared one
_number: int | None = None
_process: int | None = None  # in which the pool was made
_ran_jax: int | None = None  # the process that forked, and had run JAX before


def set_num_threads(number: int) -> None:
    """Sets the number of native threads that all functions of values in a process share. Default: the number of CPUs
    that the process may use.

    Raises:
      ValueError: the number is below 1.
    """
    global _number
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise ValueError(f"set_num_threads takes a number of 1 or more, got {number!r}")
    with _lock:
        _number = number
        if _process == os.getpid():
            _cpu.pool_share(number)


def get_num_threads() -> int:
    """The number of native threads that functions of values use."""
    return _number or _default_number()


@functools.cache
def _default_number() -> int:
    """As the first call finds it, which makes the pool: to read the limits of control groups takes a third of the time
    of a small call.
    """
    return available_cpus()


def check_pool() -> None:
    """Makes the pool, the first time.

    Raises:
      RuntimeError: the process was forked from one in which functions, or JAX, had run.
    """
    global _process
    if _process == os.getpid():  # without the lock, which another thread may have held when this process was forked
        return
    if _process is not None or _ran_jax not in (None, os.getpid()):
        had = "called functions of jaxdali.dynamic" if _process is not None else "run JAX"
        raise RuntimeError(
            f"this process was forked from one that had {had}, whose threads a fork does not have: "
            'start it by "spawn" or "forkserver" (multiprocessing.set_start_method, DataLoader(multiprocessing_context="spawn")), '
            "or fork before the first call"
        )
    with _lock:
        if _process is None:
            _cpu.pool_share(get_num_threads())
            _process = os.getpid()


def _before_fork() -> None:
    """Remembers whether this process runs threads of JAX: a forked child that calls JAX would wait for them forever.

    JAX does not tell whether it has begun to run, but its threads have names.
    """
    global _ran_jax
    if _ran_jax is None and any(name.startswith("tf_XLA") for name in names_of_threads()):
        _ran_jax = os.getpid()


os.register_at_fork(before=_before_fork)
