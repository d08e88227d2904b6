"""Closing runners and their executors, from whatever thread; see Note [Exit]."""

from __future__ import annotations

import atexit
import functools
import signal
import threading
import time
import weakref
from collections.abc import Callable, Sequence

from .._batch.executor import Executor
from .._core.threads import Thread
from . import shutdown as ending
from .prefetch import close_all
from .runner import Runner

_AGAIN = 0.25  # seconds after which an interrupt is sent again: the finalizer has returned then, and JAX's own at the end of a collection
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
    if not ending.exiting():
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


@atexit.register
def _at_exit():
    """Live daemon threads that run Python or XLA while the interpreter goes down abort it, and so do native ones that are being ended."""
    close_all()
    ending.join(list(_closing), time.monotonic() + ending.INTERRUPT_PATIENCE)
