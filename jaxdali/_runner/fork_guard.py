"""`ExclusiveUse`: a lock that refuses forked processes."""

from __future__ import annotations

import os
import threading
from typing import Any


class ExclusiveUse:
    """A lock for objects that several threads may use, one at a time, see Note [Shared by threads].

    A forked process lacks our threads, so there it raises an error.

    Args:
      what: a word for the object, for messages.

    Attributes:
      process: the id of the process that made the object.
    """

    def __init__(self, what: str):
        self._what = what
        self._lock = threading.RLock()
        self.process = os.getpid()

    def check(self):
        """Raises RuntimeError in another process than the one that made this object."""
        if os.getpid() != self.process:
            raise RuntimeError(
                f"this {self._what} was made in process {self.process}, and this process ({os.getpid()}) is a fork of it, in which its "
                "threads and JAX's don't run: make it in the process that uses it, or start that with the method 'spawn'"
            )

    def __enter__(self):
        self.check()  # first, because a thread may have held the lock when the process was forked
        self._lock.acquire()

    def __exit__(self, *exc: Any):
        self._lock.release()
