"""Closing runners and their executors, from whatever thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from .executor import Executor
from .prefetch import Prefetch
from .synchronous import Synchronous


def close_together(runners: Sequence[Prefetch | Synchronous], executors: Sequence[Executor]):
    """Closes runners, then their executors."""

    def close():
        for r in runners:
            r.close()
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
        threading.Thread(target=close, name="jaxdali-close", daemon=True).start()
    else:
        close()


def close_aside(close: Callable[[], None]):
    """Calls a function that closes runners, which pipelines and iterators do when they are closed or collected.

    Garbage is collected in whatever thread happens to allocate. A thread of a runner or source can't wait for itself, nor for
    another that may be waiting for it, so there the work is left to a thread of its own. Threads of ours are known by their names.
    """
    if threading.current_thread().name.startswith("jaxdali-"):
        threading.Thread(target=close, name="jaxdali-close").start()
    else:
        close()
