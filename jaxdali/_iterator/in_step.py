"""`InStep`: several runners as one."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from .._run.prefetch import Prefetch
from .._run.synchronous import Synchronous
from .._run.work import Batch


class InStep:
    """Runners whose batches are taken together: the n-th of one with the n-th of all others, whatever becomes of them.

    Args:
      runners: one for each executor; who made the list may put others into it.
    """

    def __init__(self, runners: Sequence[Prefetch | Synchronous]):
        self._runners = runners

    def ask(self):
        """Asks the sources that the caller's thread must read, of every one first, so that their pipelines work at the same time."""
        for r in self._runners:
            r.ask()

    def wait(self) -> bool:
        """Waits until the next batch, or its error, is there for every one; False: the data are at their end. Takes nothing."""
        return all(r.wait() for r in self._runners)

    def get(self) -> list[Batch]:
        """Takes a batch of each, also when one fails."""
        batches: list[Batch] = []
        error: BaseException | None = None
        for r in self._runners:
            try:
                batches.append(r.get())
            except BaseException as e:
                error = error or e
        if error is not None:
            try:
                raise error
            finally:
                del error  # it refers to this frame
        return batches

    def drop(self):
        """Takes a batch of each that nobody gets; what was wrong with it concerns nobody either."""
        for r in self._runners:
            with contextlib.suppress(Exception):
                r.get()

    def peek(self) -> list[Batch]:
        """The batches that `get` takes or raises next."""
        return [r.peek() for r in self._runners]

    @property
    def at_end(self) -> list[bool]:
        """Which are at the end of their data."""
        return [r.at_end for r in self._runners]

    def restart(self):
        """Goes on after the end of the data."""
        for r in self._runners:
            r.restart()

    def stop(self):
        """Ends the threads, which others are to take over from."""
        for r in self._runners:
            r.close()
        for r in self._runners:
            r.join()
