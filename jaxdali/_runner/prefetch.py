"""The two threads that make batches ahead: *produce* (host pass, launch) and *check* (waits, repairs)."""

from __future__ import annotations

import collections
import os
import queue
import threading
from typing import Any

from .._batch.batch import Batch, InFlightBatch, SourceError
from .._batch.executor import Executor
from .._core.settings import own_settings
from .._core.system import Thread
from . import shutdown
from .fork_guard import ExclusiveUse, result_of

# The producer starts this long after a full queue gets a free slot, so that the user's own step is dispatched first: both need the GIL.
HEAD_START = 0.002  # seconds


class Prefetch:
    """Makes batches ahead of `get`: at most `depth` finished ones, as many dispatched ones as the executor allows, and one that is read and
    prepared meanwhile; and no more than `depth` and one in all.

    The threads start when a batch is first requested. Sources that must be called in the thread that takes the batches are read there,
    `ahead` batches in all: before a batch is taken, as many are read as were taken since.

    Exceptions reach the caller of `get` in order. An exception consumes its batch, and the next `get` returns the batch after it. After a
    StopIteration the threads wait for `restart`. One thread at a time may take batches.

    Attributes:
      state: the executor's state after the batch that `get` returned last, regardless of batches made ahead.
    """

    def __init__(self, executor: Executor, state: dict, depth: int, ahead: int):
        self._executor = executor
        self.state = state
        self._state = state  # after the batch that was read last
        self._asked_state = state  # after the batch that was requested last
        self._asks = executor.reader.asks
        self._ahead = ahead
        self._asked = 0  # batches that were requested and not taken
        self._met_end = False  # the last request met the end of the data
        self._requested: queue.SimpleQueue[InFlightBatch | None] = queue.SimpleQueue()  # requested, not yet read
        self._unread: InFlightBatch | None = None  # taken from there when the thread was parked
        self._at_end_parked = False
        self._stop = self._closing = False
        self.depth = depth
        self._tuner = executor.tuner(depth)
        self._slots = threading.Semaphore(depth + 1)
        self._launched: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._launch_room = threading.Semaphore(executor.launches)
        self._finished: collections.deque[Any] = collections.deque()
        self._ready = threading.Condition()
        self._resume = threading.Semaphore(0)
        self._threads: list[threading.Thread] = []
        self._exclusive_use = ExclusiveUse("pipeline or iterator")
        self._closed = threading.RLock()  # the garbage collector may call `close` again in the same thread

    def ask(self):
        """Builds the executor and starts the threads, the first time. Reads the sources that belong to the caller's thread."""
        self._exclusive_use.check()
        if self._stop:
            raise RuntimeError("the iterator is closed")
        if not self._threads:
            self._executor.build()
            self._start()
        while self._asks and self._asked < self._ahead and not (self._met_end or self._stop):
            batch = self._executor.reader.ask(self._asked_state)
            self._asked_state, self._met_end = batch.after, batch.ended
            self._asked += 1
            self._requested.put(batch)

    def _start(self):
        shutdown.close_at_exit(self)
        try:
            for target, name in ((self._produce_all, "jaxdali-produce"), (self._check, "jaxdali-check")):
                thread = Thread(target=target, name=name, daemon=True)
                thread.start()
                self._threads.append(thread)
        except BaseException:  # no memory, for example: a single thread would wait for the other forever
            self._stop = True
            self._wake()
            raise

    def request(self, batches: int) -> int:
        """Starts the threads, the first time. They make batches ahead by themselves."""
        self.ask()
        return batches

    def get(self) -> Batch:
        """The next batch. Raises the error of making it; StopIteration at the end of the data, repeatedly until `restart`."""
        self.ask()
        with self._ready:
            kind, item, state = self._head()
            if kind != "end":
                self._finished.popleft()
                self._asked -= 1
                self.state = state
                self._slots.release()
        if self._tuner is not None and self._tuner.note_taken():
            self._executor.resources.use_threads(self._tuner.threads)
            self._deepen(self._tuner.depth)
        batch = result_of(kind, item)
        self._executor.note_taken(batch)
        return batch

    def _deepen(self, depth: int):
        """Makes more batches ahead from now on."""
        more = depth - self.depth
        self.depth, self._ahead = depth, self._ahead + more
        for _ in range(more):
            self._slots.release()

    def peek(self) -> Batch:
        """Returns or raises what the next `get` does, without taking it."""
        self.ask()
        with self._ready:
            kind, item, _ = self._head()
        return result_of(kind, item)

    def wait(self) -> bool:
        """Waits until the next `get` does not have to wait. Returns False at the end of the data, True for a batch or an error."""
        self.ask()
        with self._ready:
            return self._head()[0] != "end"

    def ended(self) -> bool:
        """Whether the next `get` raises StopIteration; waits until that is known."""
        self.wait()
        return self.at_end

    def _head(self) -> tuple[str, Any, dict]:
        if not self._finished:
            with self._executor.resources.meter.stage("wait", "for a batch", "user"):
                while not self._finished:
                    if self._stop:
                        raise RuntimeError("the iterator is closed")
                    self._ready.wait()
        if self._closing and self._finished[0][0] == "error":  # the error of a source that was closed while it was read
            raise RuntimeError("the iterator is closed")
        return self._finished[0]

    @property
    def at_end(self) -> bool:
        """Whether the next `get` raises StopIteration."""
        with self._ready:
            return bool(self._finished) and self._finished[0][0] == "end"

    @property
    def full(self) -> bool:
        """Whether the queue of finished batches is full (for benchmarks)."""
        return self._slots._value == 0 and self._launched.empty()

    def restart(self):
        """Continues with the next epoch after `get` has reached the end of the data."""
        if not self.at_end:
            return
        state = self._finished.popleft()[2]
        self._unread = None
        while not self._requested.empty():  # requested before the end of another source was known
            self._requested.get()
        # The producing thread waits to be resumed.
        self.state = self._state = self._asked_state = self._executor.reader.after_end(state)
        self._asked, self._met_end = 0, False
        self._slots.release()
        self._resume.release()

    def close(self, collected: bool = False):
        """Stops both threads and waits for them for a bounded time, because one may be in a user function. See Note [Exit].

        Safe to call twice, and from any thread but these. `collected`: because it was garbage-collected; otherwise the user closes it.
        """
        stopped, self._stop = self._stop, True
        if os.getpid() != self._exclusive_use.process:
            return
        with self._closed:
            self._closing = True
            for source in self._executor.sources.values():
                if source.ends_reads:
                    source.close()  # a thread may wait for data there
            self._wake()
            if not (collected and stopped) or shutdown.exiting():
                shutdown.wait_for(self._threads, self._executor.resources, collected=collected)
        self._finished.clear()

    def _wake(self):
        """Makes waiting threads notice that they must stop."""
        self._requested.put(None)
        self._slots.release()
        self._resume.release()
        self._launch_room.release()
        with self._ready:
            self._ready.notify_all()

    def park(self):
        """Ends the threads and keeps what was requested and made. They start again when a batch is requested.

        If the threads can't be waited for, because one is in a user function, this is the same as `close`.
        """
        if self._stop or not self._threads:
            return
        self._stop = True
        self._wake()
        shutdown.wait_for(self._threads, self._executor.resources, collected=True)
        if self.busy:
            self.close(collected=True)
            return
        with self._ready:
            for _ in range(self._requested.qsize()):  # removes only what woke the thread; the rest keeps its order
                batch = self._requested.get()
                if batch is not None:
                    self._requested.put(batch)
            self._at_end_parked = bool(self._finished) and self._finished[-1][0] == "end"
            self._slots = threading.Semaphore(self.depth + 1 - len(self._finished))
            self._launch_room, self._resume = threading.Semaphore(self._executor.launches), threading.Semaphore(0)
            self._threads, self._stop = [], False

    @property
    def busy(self) -> bool:
        """Whether a thread still runs after `close`, which could not wait for it."""
        return any(t.is_alive() for t in self._threads)

    def join(self):
        """Waits for the threads after `close`, without a time limit."""
        for t in self._threads:
            t.join()

    def _produce_all(self):
        try:
            self._produce()
        finally:  # it may be interrupted anywhere
            self._launched.put(None)

    def _produce(self):
        if self._at_end_parked:
            self._resume.acquire()
            self._at_end_parked = False
        with own_settings():
            while not self._stop:
                if not self._slots.acquire(blocking=False):
                    with self._executor.resources.meter.stage("wait", "for room", "queue"):
                        self._slots.acquire()
                    if not self._stop:
                        threading.Event().wait(HEAD_START)
                asked, self._unread = self._unread, None
                if asked is None and self._asks and not self._stop:
                    asked = self._requested.get()
                if self._stop:
                    self._unread = asked
                    break
                item = self._prepared(asked)
                self._launch_room.acquire()
                if self._closing:
                    break
                if item[0] == "batch":
                    try:
                        item = ("batch", self._executor.dispatch(item[1]))
                    except BaseException as e:
                        item = ("error", e)
                self._launched.put((*item, self._state))
                if item[0] == "end":
                    with self._executor.resources.meter.stage("wait", "for the next epoch", "queue"):
                        self._resume.acquire()
                del item, asked

    def _prepared(self, asked: InFlightBatch | None) -> tuple[str, Any]:
        """The next batch, read and prepared, or how that ended. Afterwards the state is that behind the batch."""
        try:
            batch = self._executor.reader.read(self._state, asked)
            self._state = batch.after  # the next batch is another one, even if this one fails
            self._executor.prepare(batch)
        except StopIteration:
            return "end", None
        except SourceError as e:
            self._state = e.after
            return "error", e.__cause__
        except BaseException as e:
            return "error", e
        return "batch", batch

    def _check(self):
        with own_settings():
            while (item := self._launched.get()) is not None:
                if isinstance(item[1], InFlightBatch):
                    try:
                        item = ("batch", self._executor.check(item[1]), item[2])
                    except BaseException as e:
                        item = ("error", e, item[2])
                self._launch_room.release()
                with self._ready:
                    self._finished.append(item)
                    self._ready.notify_all()
                del item
