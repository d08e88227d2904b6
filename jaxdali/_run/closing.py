"""Closing runners and their executors, from whatever thread."""

from __future__ import annotations

import atexit
import threading
import time
import weakref
from collections.abc import Callable, Sequence

from . import ending
from .executor import Executor
from .prefetch import Prefetch, close_all
from .synchronous import Synchronous

_closing: weakref.WeakSet[threading.Thread] = weakref.WeakSet()


def close_together(runners: Sequence[Prefetch | Synchronous], executors: Sequence[Executor], *, collected: bool):
    """Closes runners, then their executors. `collected`: because nobody uses them any more, not because their user says so."""

    def close():
        for r in runners:
            r.close(collected)
        when_idle(runners, executors)

    close_aside(close)


def when_idle(runners: Sequence[Prefetch | Synchronous], executors: Sequence[Executor]):
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


def _start(close: Callable[[], None], *, daemon: bool):
    thread = threading.Thread(target=close, name="jaxdali-close", daemon=daemon)
    try:
        thread.start()
    except RuntimeError:  # from Python 3.12 on functions of atexit can start none; what is left ends with the process
        if not ending.exiting():
            raise
        return
    if daemon:
        _closing.add(thread)


@atexit.register
def _at_exit():
    """Live daemon threads that run Python or XLA while the interpreter goes down abort it, and so do native ones that are being ended."""
    close_all()
    ending.join(list(_closing), time.monotonic() + ending.INTERRUPT_PATIENCE)
