"""The native threads that all functions of values share."""

from __future__ import annotations

import os
import threading

from .. import _cpu
from .._core.threads import available_cpus

SHARED = 0  # id of the pool, in every process: programs that are kept on disk hold it

_lock = threading.Lock()
_number: int | None = None
_process: int | None = None  # in which the pool was made


def set_num_threads(number: int) -> None:
    """Has functions of values use so many native threads, all calls of a process together. Default: the CPUs that the process may use.

    Raises:
      ValueError: it is below 1.
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
    return _number or available_cpus()


def check_pool() -> None:
    """Makes the pool, the first time.

    Raises:
      RuntimeError: the process was forked from one in which functions had run.
    """
    global _process
    with _lock:
        if _process is None:
            _cpu.pool_share(get_num_threads())
            _process = os.getpid()
        elif _process != os.getpid():
            raise RuntimeError(
                "this process was forked from one that had called functions of jaxdali.dynamic, whose threads a fork does not have: "
                'start it by "spawn" or "forkserver" (multiprocessing.set_start_method, DataLoader(multiprocessing_context="spawn")), '
                "or fork before the first call"
            )
