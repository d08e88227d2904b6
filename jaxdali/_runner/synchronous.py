"""Makes batches in the thread that takes them."""

from __future__ import annotations

import collections
from typing import Any

from .._batch.batch import FinishedBatch, InFlightBatch, SourceError
from .._batch.executor import Executor
from .._core.jax_settings import own_settings
from . import shutdown
from .fork_guard import ExclusiveUse
from .runner import result_of


class Synchronous:
    """Makes batches in the caller's thread: each is launched when it is requested, and waited for when it is taken."""

    def __init__(self, executor: Executor, state: dict, *, depth: int):
        self._executor = executor
        self.depth = depth
        self.state = state
        self._launched_state = state  # after the batch that was launched last
        self._exclusive_use = ExclusiveUse("pipeline")
        # Requested and not taken: "batch", "error" or "end"; the batch or the error; the executor's state after it.
        self._items: collections.deque[tuple[str, Any, dict]] = collections.deque()
        self._closed = False

    @property
    def at_end(self) -> bool:
        """Whether the next `get` raises StopIteration."""
        kind = self._items[0][0] if self._items else ""
        return kind == "end"

    busy = False  # it has no thread

    def join(self):
        """Has no effect: there is no thread."""

    def ended(self) -> bool:
        """Whether the next `get` raises StopIteration."""
        return self.at_end

    @property
    def _end_is_queued(self) -> bool:
        """Whether the newest item is the end of the data. Then nothing can be requested before `restart`."""
        kind = self._items[-1][0] if self._items else ""
        return kind == "end"

    def request(self, batches: int) -> int:
        """Launches more batches. Errors are raised when they are taken. Returns how many of them can be taken, see
        `Runner.request`.
        """
        self._exclusive_use.check()
        for num_launched in range(batches):  # the batches launched by this call so far
            if not self._end_is_queued:
                self._items.append((*self._launch(), self._launched_state))
            if self._end_is_queued:
                return num_launched
        return batches

    def begin_batches(self):
        """Builds the executor. Nothing is made ahead."""
        self._exclusive_use.check()
        if self._closed:
            shutdown.refuse("iterator")
        self._executor.build()

    def get(self) -> FinishedBatch:
        """The batch that was requested first, or a new one. Raises the error of making it; StopIteration at the end of
        the data.
        """
        kind, content, state = self._head()
        if kind != "end":
            self._items.popleft()
            self.state = state
        batch = result_of(kind, content)
        self._executor.note_taken(batch)
        return batch

    def peek(self) -> FinishedBatch:
        """Returns or raises what the next `get` does, without taking it."""
        kind, content, _ = self._head()
        return result_of(kind, content)

    def wait(self) -> bool:
        """Waits for the next batch. Returns False at the end of the data, True for a batch or an error."""
        kind, _, _ = self._head()
        return kind != "end"

    def _head(self) -> tuple[str, Any, dict]:
        """Waits for the item that was requested first, and leaves it in the queue: its kind, the finished batch or the
        error, and the state after it. Requests one if there is none.
        """
        if self._closed:
            shutdown.refuse("pipeline")
        if not self._items:
            self.request(1)
        kind, content, state = self._items[0]
        if isinstance(content, InFlightBatch):  # launched, but not waited for yet
            try:
                with own_settings():
                    content = self._executor.check(content)
            except Exception as e:
                kind, content = "error", e
            self._items[0] = kind, content, state
        return self._items[0]

    def park(self):
        """Has no effect: there is no thread."""

    def restart(self):
        """Continues with the next epoch after `get` has reached the end of the data."""
        if self.at_end:
            _, _, state_at_end = self._items[0]
            self.state = self._launched_state = self._executor.reader.after_end(state_at_end)
            self._items.clear()

    def close(self, collected: bool = False):
        """Drops what was requested. Nothing can be taken afterwards. There is nothing to wait for."""
        self._closed = True
        self._items.clear()

    def _launch(self) -> tuple[str, Any]:
        """Reads and launches the next batch. Returns the kind and the content of its item in the queue."""
        try:
            self._executor.build()  # not earlier, because fed data determine the types
            request = self._executor.reader.begin_batch(self._launched_state)
            with own_settings():
                batch = self._executor.reader.read(self._launched_state, request)
                self._launched_state = batch.after  # the next batch is another one, even if this one fails
                return "batch", self._executor.launch(batch)
        except StopIteration:
            return "end", None
        except SourceError as e:
            self._launched_state = e.after
            return "error", e.__cause__
        except Exception as e:
            return "error", e
