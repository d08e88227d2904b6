"""The native threads that all functions of values share."""

from __future__ import annotations

import os
import threading

from .. import _cpu

_lock = threading.Lock()
_made: tuple[int, int, int] | None = None  # number of threads, id of the pool, process
_number: int | None = None


def set_num_threads(number: int) -> None:
    """Has functions of values use so many native threads, all calls of a process together. Default: the CPUs that the process may use.

    Raises:
      ValueError: it is below 1.
    """
    global _number, _made
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise ValueError(f"set_num_threads takes a number of 1 or more, got {number!r}")
    with _lock:
        _number, _made = number, None


def get_num_threads() -> int:
    """The number of native threads that functions of values use."""
    return _number or len(os.sched_getaffinity(0))


def pool() -> tuple[int, int]:
    """The number of threads, and the id of their pool.

    Raises:
      RuntimeError: the process was forked from one in which functions had run.
    """
    global _made
    with _lock:
        if _made is not None and _made[2] != os.getpid():
            raise RuntimeError(
                "this process was forked from one that had called functions of jaxdali.dynamic, whose threads a fork does not have: "
                'start it by "spawn" or "forkserver" (multiprocessing.set_start_method, DataLoader(multiprocessing_context="spawn")), '
                "or fork before the first call"
            )
        if _made is None:
            number = get_num_threads()
            _made = number, _cpu.pool_create(number), os.getpid()
        return _made[:2]
