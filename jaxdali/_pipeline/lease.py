"""What iterators over the same pipelines hand on to each other."""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .._data.epoch import EpochCounter
from .._run.executor import Executor
from .._run.prefetch import Prefetch, close_aside, close_together

if TYPE_CHECKING:
    from .pipeline import Pipeline


class Lease:
    """Pipelines that iterators use, one after the other: the next one goes on where the one before it stopped.

    An iterator's end stops the threads and keeps what they made; it all goes when the pipelines do.

    Attributes:
      runners: they and their executors may hold sources of the user's, which may hold the pipelines: so no thread and no finalizer
        holds a lease without an iterator.
      counter: of the epochs, where these are counted.
      user: the iterator that uses it, as a weak reference.
      released: whether `Pipeline.reset` allows another iterator, though this one is there.
    """

    def __init__(self, pipelines: Sequence[Pipeline], executors: list[Executor], key: Any):
        self._pipelines = [weakref.ref(p) for p in pipelines]
        self.executors = executors
        self.runners: list[Prefetch] = []
        self.counter: EpochCounter | None = None
        self.key = key
        self.user: weakref.ref[Any] | None = None
        self.released = False
        self._closed = False
        for p in pipelines:
            p._lease = self

    @staticmethod
    def of(pipelines: Sequence[Pipeline], key: Any) -> Lease | None:
        """The one that an iterator with these pipelines and arguments can take over; None: they had no iterator yet.

        Raises:
          RuntimeError: another iterator uses them, or was closed, or had other arguments.
        """
        leases = [p._lease for p in pipelines]
        lease = leases[0]
        if not any(leases):
            return None
        if lease is None or any(x is not lease for x in leases) or [r() for r in lease._pipelines] != list(pipelines):
            raise RuntimeError("these pipelines are in use already, by iterators over others: make one for each")
        if lease._closed:
            raise RuntimeError("this pipeline is in use already, by an iterator that was closed, and its data with it: make one for each")
        if lease.key != key:
            raise RuntimeError("this pipeline is in use already, by an iterator with other arguments: make one for each")
        user = lease.user() if lease.user is not None else None
        if user is not None and not lease.released and not lease.at_end:
            raise RuntimeError(
                "this pipeline is in use already, by another iterator, which is not at the end of its epoch: make one for each, or let go "
                "of that with reset() of the pipeline"
            )
        return lease

    @property
    def at_end(self) -> bool:
        """Whether the epoch is over."""
        return any(r.at_end for r in self.runners) or (self.counter is not None and self.counter.is_over)

    def lend(self, iterator: Any) -> weakref.finalize:
        """Gives it to an iterator; returns what ends that."""
        before = self.user() if self.user is not None else None
        if before is not None:
            before._finalizer.detach()
        self.user, self.released = weakref.ref(iterator), False
        return weakref.finalize(iterator, close_aside, self._park)

    def _park(self):
        if threading.main_thread().is_alive() and any(r() is not None for r in self._pipelines):
            for r in self.runners:
                r.park()
        else:
            self.close()

    def close(self):
        """Ends everything."""
        if not self._closed:
            self._closed = True
            close_together(self.runners, self.executors)

    def __del__(self):
        if not sys.is_finalizing():
            self.close()
