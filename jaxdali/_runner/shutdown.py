"""Ends runners, their threads and their executors: when they are closed, when they are garbage-collected, and at exit.
See Note [Exit].
"""

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
from typing import NoReturn

import jax

from .._batch.executor import Executor
from .._batch.resources import RunResources
from .._core.system import Thread, despite_interrupts, exiting, members, threads_named
from .runner import Runner

# Note [Exit]
# A daemon thread that is in XLA or Python when the interpreter shuts down aborts the process, and a thread in a user's
# function may never return. So threads are told to stop and waited for, but only for a limited time, which depends on
# who waits: a user who calls `close`, the garbage collector, or the exit of the process. At exit a thread in a user's
# function is interrupted, and one in JAX is waited for longer. No thread may wait for itself, so another thread closes
# what is collected in one of ours (`close_aside`).
#
# An interrupt (KeyboardInterrupt) may be raised in the main thread wherever it is: while a thread starts, which then
# runs already, or while the main thread waits for one. So a thread is noted before it starts, by its runner or its pool,
# and by `Thread`; and at exit an interrupt does not end the wait, which is limited anyway. A noted thread may have been
# prevented from starting, or not have begun yet: it is not alive, so nobody waits for it. It is told to stop like the
# others, before it begins.
#
# A daemon thread of the user that takes batches while the process exits ends without a message (`refuse`).

# Time limits for waiting for a thread, by the reason for stopping.
PATIENCE = 5.0  # seconds
COLLECTED_PATIENCE = 1.5  # seconds: often the script ends afterwards
EXIT_PATIENCE = 1.5  # seconds
# At exit: the time before a user's function is interrupted, counted from when the thread was last seen in JAX.
INTERRUPT_PATIENCE = 0.5  # seconds
# At exit: the time for a batch that is being made. A thread that still runs JAX when the interpreter is gone crashes
# the process.
BATCH_PATIENCE = 60.0  # seconds

# Python closes the iterator of a `yield from` together with the generator, of which users know nothing.
CLOSED_ITERATOR = (
    "the iterator is closed: by close(), a `with` block, or a generator that ended in `yield from` it; "
    "`for batch in iterator: yield batch` leaves it open"
)

_END_READS = 0.1  # seconds until sources are closed again
# The time until an interrupt is sent again. By then the finalizer has returned, and so has JAX's own finalizer at the
# end of a garbage collection.
_INTERRUPT_DELAY = 0.25  # seconds

_JAX = os.path.join(os.path.dirname(jax.__file__), "")  # the folder of JAX's modules
_log = logging.getLogger("jaxdali")
_deadline: float | None = None  # of `_exit_deadline`, on the monotonic clock; None: it was not called yet
_live: weakref.WeakSet[Runner] = weakref.WeakSet()  # runners that have threads


def close_together(runners: Sequence[Runner], executors: Sequence[Executor], *, collected: bool):
    """Closes runners, then their executors: at once, or when the runners' last thread has ended. If the caller is one of
    our own threads, which can't wait for itself, a new thread does it.

    Args:
      collected: whether they were garbage-collected; otherwise the user closes them.
    """

    def close():
        try:
            for r in runners:
                r.close(collected)
        finally:  # also after an interrupt
            close_executors_when_idle(runners, executors)

    (close_collected if collected else close_aside)(close)


def close_executors_when_idle(runners: Sequence[Runner], executors: Sequence[Executor]):
    """Closes the executors of closed runners: at once, or when the last of their threads has ended."""

    def close():
        for r in runners:
            r.join()
        for e in executors:
            e.close()

    # A thread may be in a user's function that never returns, so the exit of the process must not wait for it.
    if any(r.busy for r in runners):
        _start(close, daemon=True)
    else:
        close()


def close_aside(close: Callable[[], None]):
    """Calls a function that closes runners. Pipelines and iterators use it when they are closed or collected.

    Garbage is collected in whatever thread happens to allocate. A thread of a runner or source can't wait for itself,
    nor for another thread that may be waiting for it. So if the caller is such a thread, a new thread calls the
    function. Our threads are recognized by their names.
    """
    if threading.current_thread().name.startswith("jaxdali-"):
        _start(close, daemon=False)
    else:
        close()


def close_collected(close: Callable[[], None]):
    """Like `close_aside`, for finalizers. Python prints and drops the exceptions of finalizers, so a KeyboardInterrupt
    is raised again after them.
    """
    try:
        close_aside(close)
    except KeyboardInterrupt:
        if not exiting():  # then `_at_exit` goes on
            _start(functools.partial(_close_and_interrupt, close), daemon=False)


def _close_and_interrupt(close: Callable[[], None]):
    """Raises KeyboardInterrupt in the main thread, after the finalizer has returned there, and calls `close`."""
    time.sleep(_INTERRUPT_DELAY)
    if not exiting():
        # This also wakes the main thread. Its `ident` is None only before it starts (0 is for the type checker).
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    close()


def _start(close: Callable[[], None], *, daemon: bool):
    """Calls a function in a new thread. If no thread can be started, it is not called.

    Args:
      daemon: whether the process may exit while the thread runs. It then waits for a short time only, see `_at_exit`.
    """
    thread = Thread(target=close, name="jaxdali-close", daemon=daemon)
    try:
        thread.start()
    except (RuntimeError, MemoryError):
        # From Python 3.12 on functions of atexit can't start threads, and without memory nothing can. The rest ends
        # with the process; an error here would hide the original one.
        return


def close_at_exit(runner: Runner):
    """Closes a runner when the process exits, if it still exists."""
    _live.add(runner)


def refuse(what: str) -> NoReturn:
    """Raises RuntimeError, as `what` is closed. In a daemon thread of an exiting process, where the user has closed
    nothing, it raises SystemExit, which ends the thread without a message.
    """
    if exiting() and threading.current_thread().daemon:
        raise SystemExit
    raise RuntimeError(CLOSED_ITERATOR if what == "iterator" else f"the {what} is closed")


@atexit.register
def _at_exit():
    """Stops live daemon threads. If they run Python or XLA while the interpreter shuts down they abort it, and so do
    native threads that end then.
    """
    despite_interrupts(_end_threads)


def _end_threads():
    """Closes the live runners, and waits for a limited time for the threads of ours that work."""
    for r in members(_live):
        r.close(collected=True)
    _end_sources()
    # These end when the runners are closed.
    join([*threads_named("jaxdali-close"), *threads_named("jaxdali-peek")], time.monotonic() + INTERRUPT_PATIENCE)


def wait_for(
    threads: Sequence[threading.Thread],
    resources: RunResources,
    *,
    collected: bool,
    end_reads: Callable[[], None] = lambda: None,
):
    """Waits for threads to end, for a limited time.

    Args:
      threads: the threads of a runner.
      resources: the resources that they use.
      collected: whether the runner was garbage-collected. If not, the user closes it, and is told if it takes too long.
      end_reads: closes the sources. It is called again and again: a thread that has looked for a reason to stop before
        its source was closed reads on, which opens the source anew.
    """
    if exiting():
        _wait_at_exit(threads, _exit_deadline(), lambda: resources.called_node is not None)
        return
    patience = COLLECTED_PATIENCE if collected else PATIENCE
    deadline = time.monotonic() + patience
    join(threads, min(deadline, time.monotonic() + _END_READS))
    while _any_alive(threads) and time.monotonic() < deadline:
        end_reads()
        join(threads, min(deadline, time.monotonic() + _END_READS))
    if not collected and _any_alive(threads):
        node = resources.called_node
        awaited = (
            f"{node.op.name} (created at {node.where}), which has not returned"
            if node is not None
            else "a batch in the making"
        )
        _log.warning("close() gave up after %g s of waiting for %s; the thread ends when it returns", patience, awaited)


def join(threads: Sequence[threading.Thread], deadline: float | None = None):
    """Waits for threads until the deadline; None: until they end."""
    for t in threads:
        if t.is_alive():  # one that did not start, or has not begun to run, can't be waited for
            t.join(None if deadline is None else max(0.0, deadline - time.monotonic()))


def _wait_at_exit(threads: Sequence[threading.Thread], deadline: float, in_call: Callable[[], bool]):
    """Waits for threads while the process exits, and interrupts a thread in a user's function.

    Args:
      deadline: the time until which such a thread is not interrupted.
      in_call: returns whether a thread is in a user's function.
    """
    join(threads, deadline)
    # A thread is in a user's function. That may be traced, for example, which takes long, and the result is no longer
    # needed.
    if in_call():
        for t in threads:
            if t.is_alive():  # raises SystemExit in the thread
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(t.ident or 0), ctypes.py_object(SystemExit))
    # An interrupted function gets a little time. While no thread is in a user's function, or while one is in JAX, the
    # limit is put off, up to `BATCH_PATIENCE`.
    last = deadline + INTERRUPT_PATIENCE
    while _any_alive(threads) and time.monotonic() < last:
        join(threads, time.monotonic() + 0.02)
        if not in_call() or _in_jax(threads):
            last = min(deadline + BATCH_PATIENCE, time.monotonic() + INTERRUPT_PATIENCE)


def _end_sources():
    """Ends the threads that call a user's source, after their present call."""
    threads = threads_named("jaxdali-source")
    for t in threads:
        t.stopping = True
    _wait_at_exit([t for t in threads if t.in_call], time.monotonic(), lambda: True)


def _any_alive(threads: Sequence[threading.Thread]) -> bool:
    return any(t.is_alive() for t in threads)


def _in_jax(threads: Sequence[threading.Thread]) -> bool:
    """Whether a thread is in JAX, for example compiling: that will end, and can't be interrupted."""
    frames = sys._current_frames()  # the innermost frame of each thread, by its id
    return any(frames[t.ident].f_code.co_filename.startswith(_JAX) for t in threads if t.ident in frames)


def _exit_deadline() -> float:
    """The time until which the exiting interpreter waits for threads, the same for all of them."""
    global _deadline
    if _deadline is None:
        _deadline = time.monotonic() + EXIT_PATIENCE
    return _deadline
