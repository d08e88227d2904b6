"""The two threads that make batches ahead: *produce* (host pass, launch) and *check* (waits, repairs)."""

from __future__ import annotations

import atexit
import collections
import queue
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from .executor import Batch, Executor
from .host import SourceError, Work

# The producer starts this much after a slot of a full queue came free, so that the user's own step is dispatched first: both need the GIL.
HEAD_START = 0.002  # seconds

# At exit threads are waited for so long: one may be in a user's function that takes for ever.
EXIT_PATIENCE = 1.5  # seconds

_live: weakref.WeakSet[Prefetch] = weakref.WeakSet()
_thread = threading.local()  # .ours is True in the threads of this module


class Prefetch:
    """Makes batches ahead of `get`, `depth` finished ones at most and one launched.

    Exceptions travel to the caller of `get`, in order; one consumes its batch, the next `get` gives the batch after it.
    After a StopIteration the threads wait for `restart`.

    Attributes:
      state: the executor's, after the batch that `get` returned last, whatever was made ahead.
    """

    def __init__(self, executor: Executor, state: dict, depth: int):
        self._executor = executor
        self.state = state
        self._state = state  # after the batch that was read last
        self._stop = False
        self._slots = threading.Semaphore(depth + 1)
        self._launched: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._launch_room = threading.Semaphore(1)
        self._finished: collections.deque[Any] = collections.deque()
        self._ready = threading.Condition()
        self._resume = threading.Semaphore(0)
        self._threads = [
            threading.Thread(target=self._produce, name="jaxdali-produce", daemon=True),
            threading.Thread(target=self._check, name="jaxdali-check", daemon=True),
        ]
        self._closed = threading.RLock()  # garbage collected meanwhile may close this one again
        for t in self._threads:
            t.start()
        _live.add(self)

    def get(self) -> Batch:
        """The next batch. Raises what making it raised; StopIteration at the end of the data, again and again until `restart`."""
        with self._ready:
            kind, item, state = self._head()
            if kind != "end":
                self._finished.popleft()
                self.state = state
                self._slots.release()
        batch = _opened(kind, item)
        self._executor.taken(batch)
        return batch

    def peek(self) -> Batch:
        """What the next `get` gives or raises, without taking it."""
        with self._ready:
            kind, item, _ = self._head()
        return _opened(kind, item)

    def wait(self) -> bool:
        """Waits until the next `get` need not. Returns False when the data are at their end, True for a batch or an error."""
        with self._ready:
            return self._head()[0] != "end"

    def _head(self) -> tuple[str, Any, dict]:
        while not self._finished:
            if self._stop:
                raise RuntimeError("the iterator is closed")
            self._ready.wait()
        return self._finished[0]

    @property
    def at_end(self) -> bool:
        """Whether the next `get` raises StopIteration."""
        with self._ready:
            return bool(self._finished) and self._finished[0][0] == "end"

    @property
    def full(self) -> bool:
        """Whether all finished batches that fit are there (for benchmarks)."""
        return self._slots._value == 0 and self._launched.empty()

    def restart(self):
        """Goes on with the next epoch after the end of the data was reached by `get`."""
        with self._ready:
            if self._finished and self._finished[0][0] == "end":
                self.state = self._finished.popleft()[2]
                self._slots.release()
                self._resume.release()

    def close(self):
        """Stops and joins both threads. Safe to call twice, and from any thread but these."""
        with self._closed:
            self._stop = True
            for source in self._executor.sources.values():
                if source.fed:
                    source.close()  # a thread may wait for data there
            self._slots.release()
            self._resume.release()
            self._launch_room.release()
            with self._ready:
                self._ready.notify_all()
            for t in self._threads:
                t.join(_patience())
        self._finished.clear()

    @property
    def busy(self) -> bool:
        """Whether a thread still runs: after `close`, only when the interpreter exits and could not wait for it."""
        return any(t.is_alive() for t in self._threads)

    def _produce(self):
        _thread.ours = True
        with self._executor.contexts():
            while not self._stop:
                if not self._slots.acquire(blocking=False):
                    self._slots.acquire()
                    if not self._stop:
                        threading.Event().wait(HEAD_START)
                self._launch_room.acquire()
                if self._stop:
                    break
                item: tuple[str, Any]
                try:
                    work = self._executor.read(self._state)
                    self._state = work.after  # whatever becomes of this batch, the next is another
                    item = ("batch", self._executor.launch(work))
                except StopIteration:
                    self._state = self._executor.after_end(self._state)
                    item = ("end", None)
                except SourceError as e:
                    self._state = e.after
                    item = ("error", e.__cause__)
                except BaseException as e:
                    item = ("error", e)
                self._launched.put((*item, self._state))
                if item[0] == "end":
                    self._resume.acquire()
                del item
        self._launched.put(None)

    def _check(self):
        _thread.ours = True
        with self._executor.contexts():
            while (item := self._launched.get()) is not None:
                if isinstance(item[1], Work):
                    try:
                        item = ("batch", self._executor.check(item[1]), item[2])
                    except BaseException as e:
                        item = ("error", e, item[2])
                self._launch_room.release()
                with self._ready:
                    self._finished.append(item)
                    self._ready.notify_all()
                del item


def _opened(kind: str, item: Any) -> Batch:
    if kind == "end":
        raise StopIteration
    if kind == "error":
        raise item
    return item


def close_together(runners: Sequence[Prefetch | Synchronous], executors: Sequence[Executor]):
    """Closes runners, then their executors."""

    def close():
        for r in runners:
            r.close()
        if not any(r.busy for r in runners):
            for e in executors:
                e.close()

    close_aside(close)


def close_aside(close: Callable[[], None]):
    """Calls a function that closes runners, which pipelines and iterators do when they are closed or collected.

    Garbage is collected in whatever thread happens to allocate. A thread of a runner can't wait for itself, nor for another
    that may be waiting for it, so there the work is left to a thread of its own.
    """
    if getattr(_thread, "ours", False):
        threading.Thread(target=close, name="jaxdali-close").start()
    else:
        close()


def _patience() -> float | None:
    """Seconds that a thread is waited for; None: until it ends."""
    global _deadline
    if threading.main_thread().is_alive():
        return None
    if _deadline is None:  # the interpreter exits: the first one that is waited for
        _deadline = time.monotonic() + EXIT_PATIENCE
    return max(0.0, _deadline - time.monotonic())


_deadline: float | None = None


@atexit.register
def _close_all():
    """A live daemon thread that runs Python or XLA while the interpreter goes down aborts it: join them all before."""
    for p in list(_live):
        p.close()


class Synchronous:
    """Makes batches in the caller's thread: each is launched when it is requested, and waited for when it is taken."""

    def __init__(self, executor: Executor, state: dict, depth: int):
        del depth
        self._executor = executor
        self.state = state
        self._state = state
        self._items: collections.deque[tuple[str, Any, dict]] = collections.deque()
        self._closed = False

    @property
    def at_end(self) -> bool:
        """Whether the next `get` raises StopIteration."""
        return bool(self._items) and self._items[0][0] == "end"

    busy = False  # it has no thread

    @property
    def no_more(self) -> bool:
        """Whether the end of the data was met: nothing more can be requested before `restart`."""
        return bool(self._items) and self._items[-1][0] == "end"

    def request(self):
        """Launches one more batch. What goes wrong is raised when the batch is taken."""
        if not self.no_more:
            self._items.append((*self._launch(), self._state))

    def get(self) -> Batch:
        """The batch requested first, or a new one. Raises what making it raised; StopIteration at the end of the data."""
        if self._closed:
            raise RuntimeError("the pipeline is closed")
        if not self._items:
            self.request()
        kind, item, state = self._items[0]
        if kind != "end":
            self._items.popleft()
            self.state = state
        if not isinstance(item, Work):
            return _opened(kind, item)
        with self._executor.contexts():
            batch = self._executor.check(item)
        self._executor.taken(batch)
        return batch

    def restart(self):
        """Goes on with the next epoch after the end of the data was reached by `get`."""
        if self.at_end:
            self.state = self._items[0][2]
            self._items.clear()

    def close(self):
        """Lets go of what was requested. Nothing can be taken afterwards."""
        self._closed = True
        self._items.clear()

    def _launch(self) -> tuple[str, Any]:
        with self._executor.contexts():
            try:
                self._executor.build()  # not before: what was fed tells the types
                work = self._executor.read(self._state)
                self._state = work.after  # whatever becomes of this batch, the next is another
                return "batch", self._executor.launch(work)
            except StopIteration:
                self._state = self._executor.after_end(self._state)
                return "end", None
            except SourceError as e:
                self._state = e.after
                return "error", e.__cause__
            except Exception as e:
                return "error", e
