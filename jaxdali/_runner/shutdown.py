"""Waiting for threads that were told to stop, and might not."""

from __future__ import annotations

import ctypes
import logging
import os
import sys
import threading
import time
from collections.abc import Sequence

import jax

from .._batch.resources import RunResources

# Note [Exit]
# A daemon thread that is in XLA or Python while the interpreter goes down aborts the process, and a thread in a user's function may never
# come back. So threads are told to stop and waited for, but for a bounded time, which depends on who waits: a user who calls `close`, the
# garbage collector, or the exit of the process. At exit a thread in a user's function is interrupted, one in JAX is waited for longer. No
# thread may wait for itself: what is collected in one of ours is closed by another thread (`close_aside`).

# How long a thread is waited for, by why it stops.
PATIENCE = 5.0  # seconds
COLLECTED_PATIENCE = 1.5  # seconds: often the script ends there
EXIT_PATIENCE = 1.5  # seconds
# At exit a user's function is interrupted then; how long it is waited for since it was last seen in JAX.
INTERRUPT_PATIENCE = 0.5  # seconds
# How long, at exit, for a batch that is being made: a thread that still runs JAX when the interpreter is gone takes the process down.
BATCH_PATIENCE = 60.0  # seconds

_JAX = os.path.join(os.path.dirname(jax.__file__), "")
_log = logging.getLogger("jaxdali")
_deadline: float | None = None


def wait_for(threads: Sequence[threading.Thread], resources: RunResources, *, collected: bool):
    """Waits for threads to end, for a bounded time.

    Args:
      threads: those that make batches.
      resources: what they make batches with.
      collected: nobody uses what they make any more. If not, their user closes them, and is told where that takes too long.
    """
    if exiting():
        _leave(threads, resources)
        return
    patience = COLLECTED_PATIENCE if collected else PATIENCE
    join(threads, time.monotonic() + patience)
    if not collected and _any_alive(threads):
        node = resources.calling
        waits = f"{node.op.name} (created at {node.where}), which has not returned" if node is not None else "a batch in the making"
        _log.warning("close() gave up after %g s waiting for %s; its thread ends when that does", patience, waits)


def join(threads: Sequence[threading.Thread], deadline: float):
    """Waits until then for threads."""
    for t in threads:
        if t.ident is not None:  # one that could not be started can't be waited for
            t.join(max(0.0, deadline - time.monotonic()))


def exiting() -> bool:
    """Whether the interpreter is about to go."""
    return not threading.main_thread().is_alive()


def _leave(threads: Sequence[threading.Thread], resources: RunResources):
    deadline = _exit_deadline()
    join(threads, deadline)
    if resources.calling is not None:  # tracing, say, which may take long, and what comes of it is of no use any more
        for t in threads:
            if t.is_alive():
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(t.ident or 0), ctypes.py_object(SystemExit))
    last = deadline + INTERRUPT_PATIENCE
    while _any_alive(threads) and time.monotonic() < last:
        join(threads, time.monotonic() + 0.02)
        if resources.calling is None or _in_jax(threads):
            last = min(deadline + BATCH_PATIENCE, time.monotonic() + INTERRUPT_PATIENCE)


def _any_alive(threads: Sequence[threading.Thread]) -> bool:
    return any(t.is_alive() for t in threads)


def _in_jax(threads: Sequence[threading.Thread]) -> bool:
    """Whether a thread is in JAX, which compiles, say: that comes to an end, and can't be interrupted."""
    frames = sys._current_frames()
    return any(frames[t.ident].f_code.co_filename.startswith(_JAX) for t in threads if t.ident in frames)


def _exit_deadline() -> float:
    """Until when the exiting interpreter waits for threads: one moment for all of them."""
    global _deadline
    if _deadline is None:
        _deadline = time.monotonic() + EXIT_PATIENCE
    return _deadline
