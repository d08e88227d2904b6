"""Threads that call a user function for several samples at the same time."""

from __future__ import annotations

import collections
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any

from ..._core.jax_settings import UserSettings
from ..._core.system import Thread


class WorkerThreads:
    """A pool of threads, which run under the JAX settings of the user's thread. They are daemons: one that never
    returns does not keep the process alive.

    Each thread calls its own copy of a callable object (see `Copies`). It gets the same positions of every batch and
    sees every epoch. So copies that derive the order of an epoch from that of the epoch before agree. A callable
    without copies is called by any free thread. Its first call of an epoch runs alone, after all calls of the epoch
    before.
    """

    def __init__(self, number: int, settings: UserSettings):
        self._tasks: list[queue.SimpleQueue[collections.deque[_Call] | None]] = [
            queue.SimpleQueue() for _ in range(number)
        ]
        # For a shared callable, by its id: the epoch, and the calls that may still run.
        self._last: dict[int, tuple[int, list[_Call]]] = {}
        try:
            for tasks in self._tasks:
                Thread(target=_work, args=(tasks, settings), name="jaxdali-source", daemon=True).start()
        except BaseException:  # for example, if there is no memory for more
            self.close()
            raise

    def map(
        self,
        copies: Sequence[Callable[[Any], Any]],
        arguments: Sequence[Any],
        batch_size: int,
        convert: Callable[[Any], Any],
    ) -> list[Callable[[], Any]]:
        """Schedules a call for each `SampleInfo` of a batch.

        Args:
          copies: the callable of each thread: copies of one callable, or the same callable for all.
          arguments: the arguments of the calls.
          batch_size: number of samples of a whole batch.
          convert: what a thread makes of the result of a call, before its next call.

        Returns:
          For each argument a function that waits for the converted result, and returns or raises it.
        """
        number, function = len(self._tasks), copies[0]
        # The first and the last callable differ if each thread has a copy.
        if copies[-1] is not function:
            # A thread gets the same range of positions in every batch.
            calls = [_Call(copies[a.idx_in_batch * number // batch_size], a, convert) for a in arguments]
            for copied, tasks in zip(copies, self._tasks, strict=True):
                tasks.put(collections.deque(c for c in calls if c.function is copied))
            return [call.result for call in calls]
        calls = [_Call(function, a, convert) for a in arguments]
        remaining = collections.deque(calls)
        # All threads take calls from the one queue `remaining`; the first call of an epoch runs before them.
        if self._begins_epoch(function, calls):
            self._tasks[0].put(collections.deque([remaining.popleft()]))
            calls[0].done.wait()
        for tasks in self._tasks:
            tasks.put(remaining)
        return [call.result for call in calls]

    def _begins_epoch(self, function: Callable[[Any], Any], calls: list[_Call]) -> bool:
        """Whether these calls of a shared function begin an epoch.

        If so, it first waits for the calls of the epoch before.
        """
        if not calls:
            return False
        epoch = calls[0].argument.epoch_idx
        last, running = self._last.get(id(function), (None, []))
        if last != epoch:
            for call in running:
                call.done.wait()
            running = []
        self._last[id(function)] = epoch, [c for c in running if not c.done.is_set()] + calls
        return last != epoch

    def close(self):
        """Ends the threads after their current calls."""
        for tasks in self._tasks:
            tasks.put(None)


class _Call:
    """A scheduled call of a function, and its converted result once it is done."""

    def __init__(self, function: Callable[[Any], Any], argument: Any, convert: Callable[[Any], Any]):
        self.function = function
        self.argument = argument
        self._convert = convert
        self.done = threading.Event()
        self._value: Any = None
        self._error: BaseException | None = None

    def run(self):
        try:
            self._value = self._convert(self.function(self.argument))
        except BaseException as e:
            self._error = e
        self.done.set()

    def result(self) -> Any:
        self.done.wait()
        if self._error is not None:
            raise self._error
        return self._value


def _work(tasks: queue.SimpleQueue[collections.deque[_Call] | None], settings: UserSettings):
    """Runs the calls of each task until the task None, or until the process exits. Several threads may have the same
    task.
    """
    thread = threading.current_thread()
    assert isinstance(thread, Thread)
    with settings.contexts(settings.mesh):
        while (calls := tasks.get()) is not None:
            while calls:
                try:
                    call = calls.popleft()
                except IndexError:  # another thread took it
                    break
                thread.in_call = True
                if thread.stopping:
                    return
                call.run()
                thread.in_call = False
