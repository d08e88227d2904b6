"""The threads that make batches ahead: *produce* (host pass, launch), *check* (waits, repairs), for many native threads
*read* (lists).
"""

from __future__ import annotations

import collections
import contextlib
import os
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeAlias

from .._batch.batch import Batch, InFlightBatch, SourceError
from .._batch.executor import Executor
from .._core.jax_settings import own_settings
from .._core.system import Thread
from . import shutdown
from .fork_guard import ExclusiveUse, result_of

# What stands for a batch in the queues: "batch", "error" or "end", the batch or the error, and the executor's state
# after it.
_Item: TypeAlias = tuple[str, Any, dict]

# The producer starts this long after a full queue gets a free slot, so that the user's own step is dispatched first:
# both need the GIL.
HEAD_START = 0.002  # seconds


class Prefetch:
    """Makes batches ahead of `get`: as many dispatched ones as the executor allows, and one that is read and prepared
    meanwhile; and no more than `depth` and one in all. If the executor reads aside, one more is read in a thread of its
    own, and there are as many more in all as it dispatches more than two at a time.

    The threads start when a batch is first requested. Sources that must be called in the thread that takes the batches
    are read there, `ahead` batches in all: before a batch is taken, as many are read as were taken since.

    Exceptions reach the caller of `get` in order. An exception consumes its batch, and the next `get` returns the batch
    after it. After a StopIteration the threads wait for `restart`. One thread at a time may take batches.

    Attributes:
      state: the executor's state after the batch that `get` returned last, regardless of batches made ahead.
    """

    def __init__(self, executor: Executor, state: dict, depth: int, ahead: int):
        self._executor = executor
        self.state = state
        self._state = state  # after the batch that was read last
        self._asked_state = state  # after the batch that was requested last
        self._asks = executor.reader.begins_in_caller
        self._ahead = ahead
        self._asked = 0  # batches that were requested and not taken
        self._met_end = False  # the last request met the end of the data
        self._requested: queue.SimpleQueue[InFlightBatch | None] = queue.SimpleQueue()  # requested, not yet read
        self._unread: InFlightBatch | None = None  # taken from there when the thread was parked
        self._reads_aside = executor.uses_reader_thread
        self._read: queue.SimpleQueue[_Item | None] = queue.SimpleQueue()  # read aside, not yet prepared
        self._read_room = threading.Semaphore(1)
        self._first = True  # no batch has been dispatched yet
        # The last batch to be read met the end of the data: the next one is read after `restart`
        self._read_end = False
        self._stop = self._closing = False
        self.depth = depth
        self._tuner = executor.tuner(depth)
        # For batches that are made and not taken.
        self._room = depth + max(1, executor.max_dispatched - 1 if self._reads_aside else 0)
        self._slots = threading.Semaphore(self._room)
        self._launched: queue.SimpleQueue[_Item | None] = queue.SimpleQueue()
        self._launch_room = threading.Semaphore(executor.max_dispatched)
        self._finished: collections.deque[_Item] = collections.deque()
        self._ready = threading.Condition()
        self._resume = threading.Semaphore(0)
        self._threads: list[threading.Thread] = []
        self._exclusive_use = ExclusiveUse("pipeline or iterator")
        self._closed = threading.RLock()  # the garbage collector may call `close` again in the same thread

    def begin_batches(self):
        """Builds the executor and starts the threads, the first time. Reads the sources that belong to the caller's
        thread.
        """
        self._exclusive_use.check()
        if self._stop:
            raise RuntimeError("the iterator is closed")
        if not self._threads:
            self._executor.build()
            self._start()
        while self._asks and self._asked < self._ahead and not (self._met_end or self._stop):
            batch = self._executor.reader.begin_batch(self._asked_state)
            self._asked_state, self._met_end = batch.after, batch.ended
            self._asked += 1
            self._requested.put(batch)

    def _start(self):
        shutdown.close_at_exit(self)
        try:
            targets = [(self._produce_all, "jaxdali-produce"), (self._check, "jaxdali-check")]
            for target, name in [(self._read_all, "jaxdali-read")] * self._reads_aside + targets:
                thread = Thread(target=target, name=name, daemon=True)
                thread.start()
                self._threads.append(thread)
        except BaseException:  # no memory, for example: one thread would wait for another forever
            self._stop = True
            self._wake()
            raise

    def request(self, batches: int) -> int:
        """Starts the threads, the first time. They make batches ahead by themselves."""
        self.begin_batches()
        return batches

    def get(self) -> Batch:
        """The next batch. Raises the error of making it; StopIteration at the end of the data, repeatedly until
        `restart`.
        """
        self.begin_batches()
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
        self.depth, self._ahead, self._room = depth, self._ahead + more, self._room + more
        for _ in range(more):
            self._slots.release()

    def peek(self) -> Batch:
        """Returns or raises what the next `get` does, without taking it."""
        self.begin_batches()
        with self._ready:
            kind, item, _ = self._head()
        return result_of(kind, item)

    def wait(self) -> bool:
        """Waits until the next `get` does not have to wait. Returns False at the end of the data, True for a batch or
        an error.
        """
        self.begin_batches()
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
        # The thread that reads waits to be resumed.
        self.state = self._state = self._asked_state = self._executor.reader.after_end(state)
        self._asked, self._met_end, self._read_end = 0, False, False
        self._slots.release()
        self._resume.release()

    def close(self, collected: bool = False):
        """Stops the threads and waits for them for a bounded time, because one may be in a user function. See Note
        [Exit].

        Safe to call twice, and from any thread but these. `collected`: because it was garbage-collected; otherwise the
        user closes it.
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
        self._read.put(None)
        self._slots.release()
        self._read_room.release()
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
            _without_wakes(self._requested)
            _without_wakes(self._read)
            self._read_room = threading.Semaphore(int(self._read.empty()))
            self._slots = threading.Semaphore(self._room - len(self._finished))
            self._launch_room, self._resume = threading.Semaphore(self._executor.max_dispatched), threading.Semaphore(0)
            self._threads, self._stop = [], False

    @property
    def busy(self) -> bool:
        """Whether a thread still runs after `close`, which could not wait for it."""
        return any(t.is_alive() for t in self._threads)

    def join(self):
        """Waits for the threads after `close`, without a time limit."""
        for t in self._threads:
            t.join()

    def _read_all(self):
        try:
            with own_settings():
                while not self._stop:
                    self._read_room.acquire()
                    if self._may_read():
                        self._read.put(self._next_read(None))
        finally:  # it may be interrupted anywhere
            self._read.put(None)

    def _may_read(self) -> bool:
        """Waits at the end of the data until the next epoch begins. Returns False if the thread must stop."""
        while self._read_end and not self._stop:
            self._resume.acquire()
        return not self._stop

    def _next_read(self, asked: InFlightBatch | None) -> _Item:
        """Reads the next batch."""
        try:
            batch = self._executor.reader.read(self._state, asked)
            self._state = batch.after  # the next batch is another one, even if this one fails
            return "batch", batch, self._state
        except StopIteration:
            self._read_end = True
            return "end", None, self._state
        except SourceError as e:
            self._state = e.after
            return "error", e.__cause__, self._state
        except BaseException as e:
            return "error", e, self._state

    def _produce_all(self):
        try:
            with own_settings():
                while not self._stop and self._has_slot() and (item := self._taken_up()) is not None:
                    item = _after(item, self._executor.prepare)
                    self._launch_room.acquire()
                    if self._closing:
                        break
                    self._launched.put(_after(item, self._executor.dispatch))
                    del item
                    if self._first:
                        self._first = False
                        self._read_room.release()
        finally:  # it may be interrupted anywhere
            self._launched.put(None)

    def _has_slot(self) -> bool:
        """Waits for room for a batch. Returns False if the thread must stop."""
        if not self._slots.acquire(blocking=False):
            with self._executor.resources.meter.stage("wait", "for room", "queue"):
                self._slots.acquire()
            if not self._stop:
                threading.Event().wait(HEAD_START)
        return not self._stop

    def _taken_up(self) -> _Item | None:
        """The next batch, which is read now or was read aside. None: the thread must stop."""
        waits = self._read_end and self._read.empty()
        with (
            self._executor.resources.meter.stage("wait", "for the next epoch", "queue")
            if waits
            else contextlib.nullcontext()
        ):
            if self._reads_aside:
                item = self._read.get()
                if not self._first:  # it tells how large the buffers are that the next ones are read into
                    self._read_room.release()
                return item
            if not self._may_read():
                return None
        asked, self._unread = self._unread, None
        if asked is None and self._asks:
            asked = self._requested.get()
        if self._stop:
            self._unread = asked
            return None
        return self._next_read(asked)

    def _check(self):
        with own_settings():
            while (item := self._launched.get()) is not None:
                item = _after(item, self._executor.check)
                self._launch_room.release()
                with self._ready:
                    self._finished.append(item)
                    self._ready.notify_all()
                del item


def _after(item: _Item, step: Callable[[Any], Any]) -> _Item:
    """The item after another step of making it, if it is a batch."""
    kind, batch, state = item
    if kind != "batch":
        return item
    try:
        return "batch", step(batch), state
    except BaseException as e:
        return "error", e, state


def _without_wakes(waiting: queue.SimpleQueue[Any]):
    """Removes from a queue what only woke a thread; the rest keeps its order."""
    for _ in range(waiting.qsize()):
        if (item := waiting.get()) is not None:
            waiting.put(item)
