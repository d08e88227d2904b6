"""`Prefetch`: makes batches ahead in two or three threads, see Note [Threads and queues]."""

from __future__ import annotations

import collections
import contextlib
import os
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, TypeAlias

from .._batch.batch import FinishedBatch, InFlightBatch, SourceError
from .._batch.executor import Executor
from .._core.jax_settings import own_settings
from .._core.system import Thread
from . import shutdown
from .fork_guard import ExclusiveUse
from .runner import result_of

# An item of the queues: its kind ("batch", "error" or "end"), the batch or the error, and the state after it.
_Item: TypeAlias = tuple[str, Any, dict]

# The producer starts this long after a full queue gets a free slot, so that the user's own step is dispatched first:
# both need the GIL.
HEAD_START = 0.002  # seconds


# Note [Threads and queues]
# A batch passes through three or four threads. Each queue has one thread that puts items and one that takes them, so
# batches stay in order. An error or the end of the data travels through the queues like a batch.
#
#     user's thread                 sources that must be read there        jaxdali-read      only if the executor
#          | begin_batches          (`reader.begins_in_caller`)                 |           `uses_reader_thread`
#          v                                                                    v
#      _requests                                                           _read_items       at most one item
#          |                                                                    |
#          +------------------------------+  one of the two, or neither  +------+
#                                         v                              v
#                                    jaxdali-produce    reads, unless jaxdali-read does; prepares; dispatches
#                                         |
#                                         v
#                                  _dispatched_items
#                                         |
#                                         v
#                                    jaxdali-check      waits for the programs; repairs samples
#                                         |
#                                         v
#                                   _finished_items     guarded by the condition _item_finished
#                                         |
#                                         v
#                                    user's thread      get
#
# The queues have no limits of their own. Semaphores limit what is in them, and are released downstream:
#
#     semaphore         acquired by, before         released by, after
#     _read_slot        read, reading an item       produce, taking it from _read_items (the first: dispatching it)
#     _free_slots       produce, taking up an item  the user: `get` of the batch, `restart` after the end
#     _dispatch_slots   produce, dispatching        check, finishing
#     _epoch_started    read (or produce, where     the user: `restart`
#                       it reads), after the end
#
# An end: the thread that reads passes on an item "end", and waits for `_epoch_started`. `restart` removes the item.
#
# To stop, `close` and `park` set `_stopping` and wake every thread: they release each semaphore once, notify the
# condition, and put None into the first two queues. None ends the thread that takes it. Read and produce put None into
# the queue behind them in a `finally`, because an exception may be raised in them anywhere (SystemExit, see Note
# [Exit]). So check ends after produce, when it has finished all that was dispatched.
#   * `park` keeps everything: produce dispatches the batch that it has, and check finishes it. What was requested or
#     read stays in its queue, without None. The semaphores are made anew, and `begin_batches` starts new threads.
#   * `close` also sets `_closing`. A source that waits for data is closed first, and nothing more is dispatched. If a
#     thread has not ended within the time limit, `join` waits for it later.
#   * A forked process has none of the threads. There no batch can be taken (RuntimeError), and `close` does nothing.
#   * An interrupt (KeyboardInterrupt) is raised in the user's thread: while `begin_batches` reads a source, which
#     leaves the batch unrequested, or while `get` waits, which leaves the item in the queue. So the next call continues
#     with the same batch. Only one that is raised while `get` returns loses that batch. One that is raised while the
#     threads start tells those that run to stop; then later calls say that the iterator is closed.
class Prefetch:
    """Makes batches ahead of `get`, see Note [Threads and queues].

    Up to `executor.max_dispatched` batches are dispatched and unfinished, while one more is read and prepared. At most
    ``depth + 1`` batches are made and not taken. If the executor `uses_reader_thread`, at most
    ``depth + max(1, max_dispatched - 1)`` are, and one more is read.

    The threads start when a batch is first requested. Sources that must be called in the thread that takes the batches
    are read there, `ahead` batches before they are taken. Each later call reads as many batches as were taken since.

    Exceptions reach the caller of `get` in order. An exception consumes its batch, and the next `get` returns the batch
    after it. After a StopIteration the threads wait for `restart`. One thread at a time may take batches.

    Attributes:
      state: the executor's state after the batch that `get` returned last, regardless of batches made ahead.
      depth: number of finished batches to keep ready.

    Args:
      executor: makes the batches.
      state: the state before the first batch.
      depth: the initial number of finished batches to keep ready.
      ahead: number of batches whose sources are read ahead, for sources that belong to the caller's thread.
    """

    def __init__(self, executor: Executor, state: dict, depth: int, ahead: int):
        self._executor = executor
        self.state = state
        self.depth = depth
        self._tuner = executor.tuner(depth)  # None: the numbers of threads and of batches made ahead are fixed
        self._exclusive_use = ExclusiveUse("pipeline or iterator")

        # Requests: batches whose sources in the user's thread have been read, for jaxdali-produce.
        self._begins_in_caller = executor.reader.begins_in_caller
        self._requests: queue.SimpleQueue[InFlightBatch | None] = queue.SimpleQueue()
        self._parked_request: InFlightBatch | None = None  # was taken from the queue, but not read, before parking
        self._max_requests = ahead
        self._num_requests = 0  # batches that were requested and not taken
        self._requested_state = state  # after the batch that was requested last
        self._end_requested = False  # the last request met the end of the data

        # Reading: in jaxdali-read if there is such a thread, otherwise in jaxdali-produce.
        self._has_reader_thread = executor.uses_reader_thread
        self._read_items: queue.SimpleQueue[_Item | None] = queue.SimpleQueue()  # of jaxdali-read alone
        self._read_slot = threading.Semaphore(1)
        self._read_state = state  # after the batch that was read last
        self._end_read = False  # the last read met the end of the data: the next one waits for `restart`
        self._epoch_started = threading.Semaphore(0)

        # Dispatch, by jaxdali-produce.
        self._before_first_dispatch = True
        self._dispatched_items: queue.SimpleQueue[_Item | None] = queue.SimpleQueue()
        self._dispatch_slots = threading.Semaphore(executor.max_dispatched)

        # Results, from jaxdali-check to the user's thread. `_capacity` limits the batches that jaxdali-produce has begun
        # and the user has not taken: `depth` finished ones, and one in the making; with jaxdali-read, `max_dispatched`
        # - 1 in the making, and at least one. For depth=2 and max_dispatched=3 these are 3; with jaxdali-read 4, and
        # one more is read.
        self._capacity = depth + max(1, executor.max_dispatched - 1 if self._has_reader_thread else 0)
        self._free_slots = threading.Semaphore(self._capacity)
        self._finished_items: collections.deque[_Item] = collections.deque()
        self._item_finished = threading.Condition()

        # The life of the threads.
        self._threads: list[threading.Thread] = []
        self._stopping = False  # the threads must end: they are parked or closed
        self._closing = False  # for good
        self._close_lock = threading.RLock()  # the garbage collector may call `close` again in the same thread

    def begin_batches(self):
        """Builds the executor and starts the threads, the first time. Reads the sources that belong to the caller's
        thread, and requests the rest of these batches from the threads.
        """
        self._exclusive_use.check()
        if self._stopping:
            shutdown.refuse("iterator")
        if not self._threads:
            self._executor.build()
            self._start()
        while (
            self._begins_in_caller
            and self._num_requests < self._max_requests
            and not (self._end_requested or self._stopping)
        ):
            batch = self._executor.reader.begin_batch(self._requested_state)
            self._requested_state, self._end_requested = batch.after, batch.ended
            self._num_requests += 1
            self._requests.put(batch)

    def _start(self):
        """Starts the two or three threads. If one can't start, those that run are told to stop, and the error is
        raised.
        """
        shutdown.close_at_exit(self)
        try:
            targets = [(self._run_producer, "jaxdali-produce"), (self._run_checker, "jaxdali-check")]
            if self._has_reader_thread:
                targets.insert(0, (self._run_reader, "jaxdali-read"))
            for target, name in targets:
                thread = Thread(target=target, name=name, daemon=True)
                # First: an interrupt may be raised in `start` when the thread runs already.
                self._threads.append(thread)
                thread.start()
        except BaseException:  # no memory, or an interrupt: one thread would wait for another forever
            self._stopping = True
            self._wake()
            raise

    def request(self, batches: int) -> int:
        """Starts the threads, the first time. They make batches ahead without requests, so the number has no effect."""
        self.begin_batches()
        return batches

    def get(self) -> FinishedBatch:
        """The next batch. Raises the error of making it; StopIteration at the end of the data, repeatedly until
        `restart`.
        """
        self.begin_batches()
        with self._item_finished:
            kind, content, state = self._first_finished()
            if kind != "end":  # an end stays until `restart`
                self._finished_items.popleft()
                self._num_requests -= 1
                self.state = state
                self._free_slots.release()
        # True: the tuner has changed the number of threads or of batches made ahead.
        if self._tuner is not None and self._tuner.note_taken():
            self._executor.resources.use_threads(self._tuner.threads)
            self._increase_depth(self._tuner.depth)
        batch = result_of(kind, content)
        self._executor.note_taken(batch)
        return batch

    def _increase_depth(self, depth: int):
        """Makes more batches ahead from now on."""
        added = depth - self.depth  # the tuner never lowers the depth
        self.depth, self._max_requests, self._capacity = depth, self._max_requests + added, self._capacity + added
        for _ in range(added):
            self._free_slots.release()

    def peek(self) -> FinishedBatch:
        """Returns or raises what the next `get` does, without taking it."""
        self.begin_batches()
        with self._item_finished:
            kind, content, _ = self._first_finished()
        return result_of(kind, content)

    def wait(self) -> bool:
        """Waits until the next `get` does not have to wait. Returns False at the end of the data, True for a batch or
        an error.
        """
        self.begin_batches()
        with self._item_finished:
            kind, _, _ = self._first_finished()
            return kind != "end"

    def ended(self) -> bool:
        """Whether the next `get` raises StopIteration; waits until that is known."""
        self.wait()
        return self.at_end

    def _first_finished(self) -> tuple[str, Any, dict]:
        """Waits for the first finished item, and leaves it in the queue. The caller holds `_item_finished`."""
        if not self._finished_items:
            with self._executor.resources.meter.stage("wait", "for a batch", "user"):
                while not self._finished_items:
                    if self._stopping:
                        shutdown.refuse("iterator")
                    self._item_finished.wait()
        first_item = self._finished_items[0]
        kind, _, _ = first_item
        # While closing, the error is probably that of a source that was closed while it was read.
        if self._closing and kind == "error":
            shutdown.refuse("iterator")
        return first_item

    @property
    def at_end(self) -> bool:
        """Whether the next `get` raises StopIteration."""
        with self._item_finished:
            kind = self._finished_items[0][0] if self._finished_items else ""
            return kind == "end"

    def restart(self):
        """Continues with the next epoch after `get` has reached the end of the data."""
        with self._item_finished:
            if not self.at_end:
                return
            _, _, state = self._finished_items.popleft()  # the item "end"
        self._parked_request = None  # it was requested for the epoch that has ended
        while not self._requests.empty():  # requested before the end of another source was known
            self._requests.get()
        # The thread that reads waits for `_epoch_started`, or has yet to look at `_end_read`. So the states come first.
        self.state = self._read_state = self._requested_state = self._executor.reader.after_end(state)
        self._num_requests, self._end_requested, self._end_read = 0, False, False
        self._free_slots.release()
        self._epoch_started.release()

    def close(self, collected: bool = False):
        """Stops the threads and waits for them for a bounded time, because one may be in a user function. See Note
        [Exit].

        It may be called twice, and from any thread but these.

        Args:
          collected: whether the runner was garbage-collected; otherwise the user closes it.
        """
        was_stopping, self._stopping = self._stopping, True
        if os.getpid() != self._exclusive_use.process:  # a fork has none of the threads
            return
        with self._close_lock:
            self._closing = True
            self._end_reads()
            self._executor.cancel()
            self._wake()
            # After a wait in vain, by `park` or an earlier `close`, the garbage collector does not wait again. The exit
            # always waits: a thread that is then in JAX would abort the process.
            if not (collected and was_stopping) or shutdown.exiting():
                shutdown.wait_for(
                    self._threads, self._executor.resources, collected=collected, end_reads=self._end_reads
                )
        with self._item_finished:  # another thread may be in `get`
            self._finished_items.clear()

    def _end_reads(self):
        """Closes the sources in which a thread may wait for data."""
        for source in self._executor.sources.values():
            if source.ends_reads:
                source.close()

    def _wake(self):
        """Makes waiting threads notice that they must stop: releases everything that a thread may wait for."""
        self._requests.put(None)
        self._read_items.put(None)
        self._free_slots.release()
        self._read_slot.release()
        self._epoch_started.release()
        self._dispatch_slots.release()
        with self._item_finished:
            self._item_finished.notify_all()

    def park(self):
        """Ends the threads and keeps what was requested and made. New threads start when a batch is requested.

        If the threads can't be waited for, because one is in a user function, this is the same as `close`.
        """
        if self._stopping or not self._threads:
            return
        self._stopping = True
        self._wake()
        shutdown.wait_for(self._threads, self._executor.resources, collected=True)
        if self.busy:
            self.close(collected=True)
            return
        # All threads have ended, so what they passed on is in `_requests`, `_read_items` and `_finished_items`. The
        # semaphores get the values that belong to these, without the releases that woke the threads.
        with self._item_finished:
            _drop_wakes(self._requests)
            _drop_wakes(self._read_items)
            self._read_slot = threading.Semaphore(int(self._read_items.empty()))
            self._free_slots = threading.Semaphore(self._capacity - len(self._finished_items))
            self._dispatch_slots = threading.Semaphore(self._executor.max_dispatched)
            self._epoch_started = threading.Semaphore(0)
            self._threads = []
            self._stopping = self._closing  # another thread may have called `close` meanwhile

    @property
    def busy(self) -> bool:
        """Whether a thread still runs after `close`, which could not wait for it."""
        return any(t.is_alive() for t in self._threads)

    def join(self):
        """Waits for the threads after `close`, without a time limit."""
        shutdown.join(self._threads)

    def _run_reader(self):
        """The thread jaxdali-read: reads one batch after the other into `_read_items`, each when the one before was
        taken. At the end of the data it waits for the next epoch. It ends when the threads must stop.
        """
        try:
            with own_settings():
                while not self._stopping:
                    self._read_slot.acquire()
                    if self._wait_for_epoch():
                        self._read_items.put(self._read_next(None))
        finally:  # it may be interrupted anywhere
            self._read_items.put(None)

    def _wait_for_epoch(self) -> bool:
        """Waits at the end of the data until the next epoch begins. Returns whether to read, False if the thread must
        stop.
        """
        while self._end_read and not self._stopping:
            self._epoch_started.acquire()
        return not self._stopping

    def _read_next(self, request: InFlightBatch | None) -> _Item:
        """Reads the next batch. `request`: the batch with the sources that were read in the user's thread, if any."""
        try:
            batch = self._executor.reader.read(self._read_state, request)
            self._read_state = batch.after  # the next batch is another one, even if this one fails
            return "batch", batch, self._read_state
        except StopIteration:
            self._end_read = True
            return "end", None, self._read_state
        except SourceError as e:
            self._read_state = e.after
            return "error", e.__cause__, self._read_state
        except BaseException as e:  # a fault of ours: the batch is not consumed, so it is read again
            return "error", e, self._read_state

    def _run_producer(self):
        """The thread jaxdali-produce: reads each batch, or takes it from jaxdali-read, prepares it, dispatches its
        programs, and passes it on in `_dispatched_items`. It ends when the threads must stop, with None.
        """
        try:
            with own_settings():
                while not self._stopping and self._wait_for_slot() and (item := self._next_item()) is not None:
                    # Prepared before it waits, so that it can be dispatched at once.
                    item = _apply_step(item, self._executor.prepare)
                    self._dispatch_slots.acquire()
                    # Closed for good: the batch is dropped. Parked (only `_stopping`), it is dispatched and kept.
                    if self._closing:
                        break
                    self._dispatched_items.put(_apply_step(item, self._executor.dispatch))
                    del item  # this thread must not keep the batch's memory while it waits
                    if self._before_first_dispatch:
                        self._before_first_dispatch = False
                        self._read_slot.release()  # of the first item, see `_next_item`
        finally:  # it may be interrupted anywhere
            self._dispatched_items.put(None)

    def _wait_for_slot(self) -> bool:
        """Waits for a free slot for a batch. Returns whether there is one, False if the thread must stop."""
        if not self._free_slots.acquire(blocking=False):
            with self._executor.resources.meter.stage("wait", "for room", "queue"):
                self._free_slots.acquire()
            if not self._stopping:
                time.sleep(HEAD_START)
        return not self._stopping

    def _next_item(self) -> _Item | None:
        """The next item: from jaxdali-read, or read here. None: the thread must stop."""
        waits = self._end_read and self._read_items.empty()  # there is no item before the next epoch
        meter = self._executor.resources.meter
        stage = meter.stage("wait", "for the next epoch", "queue") if waits else contextlib.nullcontext()
        if self._has_reader_thread:
            with stage:
                item = self._read_items.get()
            # The second batch is read only after the first dispatch (`_run_producer`), which shows how large the
            # buffers are that later batches are read into.
            if not self._before_first_dispatch:
                self._read_slot.release()
            return item
        with stage:
            may_read = self._wait_for_epoch()
        if not may_read:
            return None
        request, self._parked_request = self._parked_request, None
        if request is None and self._begins_in_caller:
            request = self._requests.get()
        if self._stopping:  # the request may be None, which only woke this thread
            self._parked_request = request
            return None
        return self._read_next(request)

    def _run_checker(self):
        """The thread jaxdali-check: waits for the programs of each dispatched batch, repairs its samples, and adds it to
        `_finished_items`. It ends with the None that jaxdali-produce puts last.
        """
        with own_settings():
            while (item := self._dispatched_items.get()) is not None:
                item = _apply_step(item, self._executor.check)
                self._dispatch_slots.release()
                with self._item_finished:
                    self._finished_items.append(item)
                    self._item_finished.notify_all()
                del item  # this thread must not keep the batch's memory while it waits


def _apply_step(item: _Item, step: Callable[[Any], Any]) -> _Item:
    """Applies a step to the batch of an item. An exception of the step makes it an error; errors and ends stay."""
    kind, batch, state = item
    if kind != "batch":
        return item
    try:
        return "batch", step(batch), state
    except BaseException as e:
        return "error", e, state


def _drop_wakes(items: queue.SimpleQueue[Any]):
    """Removes each None from a queue, which only woke a thread. The rest keeps its order."""
    for _ in range(items.qsize()):
        if (item := items.get()) is not None:
            items.put(item)
