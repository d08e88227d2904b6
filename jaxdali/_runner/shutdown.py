"""How runners, their threads and their executors end: when they are closed, when they are collected, and at exit. See Note [Exit]."""

from __future__ import annotations

import atexit
import ctypes
import functools
import logging
import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Sequence

import jax

from .._batch.executor import Executor
from .._batch.resources import RunResources
from .._core.threads import Thread
from .runner import Runner

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

_AGAIN = 0.25  # seconds after which an interrupt is sent again: the finalizer has returned then, and JAX's own at the end of a collection

_JAX = os.path.join(os.path.dirname(jax.__file__), "")
_log = logging.getLogger("jaxdali")
_deadline: float | None = None
_live: weakref.WeakSet[Runner] = weakref.WeakSet()  # that have threads
_closing: weakref.WeakSet[threading.Thread] = weakref.WeakSet()


def close_together(runners: Sequence[Runner], executors: Sequence[Executor], *, collected: bool):
    """Closes runners, then their executors. `collected`: because nobody uses them any more, not because their user says so."""

    def close():
        for r in runners:
            r.close(collected)
        when_idle(runners, executors)

    (close_collected if collected else close_aside)(close)


def when_idle(runners: Sequence[Runner], executors: Sequence[Executor]):
    """Closes the executors of runners that were closed: at once, or when the last of their threads has ended."""

    def close():
        for r in runners:
            r.join()
        for e in executors:
            e.close()

    if any(r.busy for r in runners):
        _start(close, daemon=True)
    else:
        close()


def close_aside(close: Callable[[], None]):
    """Calls a function that closes runners, which pipelines and iterators do when they are closed or collected.

    Garbage is collected in whatever thread happens to allocate. A thread of a runner or source can't wait for itself, nor for
    another that may be waiting for it, so there the work is left to a thread of its own. Threads of ours are known by their names.
    """
    if threading.current_thread().name.startswith("jaxdali-"):
        _start(close, daemon=False)
    else:
        close()


def close_collected(close: Callable[[], None]):
    """`close_aside` for finalizers, whose exceptions Python prints and forgets: an interrupt comes again when they are over."""
    try:
        close_aside(close)
    except KeyboardInterrupt:
        _start(functools.partial(_close_and_interrupt, close), daemon=False)


def _close_and_interrupt(close: Callable[[], None]):
    time.sleep(_AGAIN)
    if not exiting():
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)  # which also wakes it where it waits
    close()


def _start(close: Callable[[], None], *, daemon: bool):
    thread = Thread(target=close, name="jaxdali-close", daemon=daemon)
    try:
        thread.start()
    except (RuntimeError, MemoryError):
        # From Python 3.12 on functions of atexit can start none, and with too little memory nobody can. What is left ends with the
        # process; an error here would hide the one for which this is closed.
        return
    if daemon:
        _closing.add(thread)


def close_at_exit(runner: Runner):
    """Has a runner closed when the process exits, if it is still there."""
    _live.add(runner)


@atexit.register
def _at_exit():
    """Live daemon threads that run Python or XLA while the interpreter goes down abort it, and so do native ones that are being ended."""
    for r in list(_live):
        r.close(collected=True)
    join(list(_closing), time.monotonic() + INTERRUPT_PATIENCE)


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
