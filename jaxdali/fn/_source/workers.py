"""Threads that call a user's function for several samples at the same time."""

from __future__ import annotations

import copy
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any

from ..._core.settings import UserSettings
from ..._core.threads import Thread


class Workers:
    """A pool of threads, which run under a user's JAX settings. They are daemons: one that never returns does not keep the process.

    As in DALI, whose workers are processes, each thread has its own copy of a callable object, so that state which one call leaves for
    the next (an order that is drawn anew when the epoch changes) is never seen half changed. Functions have no copies, nor has an object
    that can't be copied or whose state is asked for: these are shared. Their first call of an epoch runs alone, when all calls of the
    epoch before are over.
    """

    def __init__(self, number: int, settings: UserSettings):
        self._tasks: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._number = number
        self._copies: dict[int, tuple[Any, list[Callable[[Any], Any]]]] = {}  # by the id of a callable, which is kept with them
        self._last: dict[int, tuple[int, list[_Call]]] = {}  # of a shared callable: the epoch, and the calls that may still run
        try:
            for i in range(number):
                Thread(target=_work, args=(self._tasks, settings, i), name="jaxdali-source", daemon=True).start()
        except BaseException:  # there is no memory for more of them, say
            self.close()
            raise

    def map(self, function: Callable[[Any], Any], arguments: Sequence[Any]) -> list[Callable[[], Any]]:
        """Has the function called with each `SampleInfo`. Returns functions that wait for a result, and return or raise it."""
        if id(function) not in self._copies:
            self._copies[id(function)] = function, _copies(function, self._number)
        copies = self._copies[id(function)][1]
        calls = [_Call(copies, a) for a in arguments]
        alone = self._begins_epoch(function, calls) if copies[0] is function else False
        for i, call in enumerate(calls):
            self._tasks.put(call)
            if alone and i == 0:
                call.done.wait()
        return [call.result for call in calls]

    def _begins_epoch(self, function: Callable[[Any], Any], calls: list[_Call]) -> bool:
        """Whether the first of these calls of a shared function begins an epoch; waits then for those of the epoch before."""
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
        """The threads end after the calls they are in."""
        for _ in range(self._number):
            self._tasks.put(None)


def _copies(function: Callable[[Any], Any], number: int) -> list[Callable[[Any], Any]]:
    """The callable for each thread: copies, or the one that they share."""
    owner = getattr(function, "__self__", function)
    if callable(getattr(owner, "get_state", None)) and callable(getattr(owner, "set_state", None)):
        return [function] * number  # a checkpoint asks it for its state
    try:
        return [copy.deepcopy(function) for _ in range(number)]  # a function is its own copy
    except Exception:  # whatever a user's object says to that: locks, files and generators can't be copied
        return [function] * number


class _Call:
    def __init__(self, functions: Sequence[Callable[[Any], Any]], argument: Any):
        self._functions = functions  # of the threads
        self.argument = argument
        self.done = threading.Event()
        self._value: Any = None
        self._error: BaseException | None = None

    def run(self, thread: int):
        try:
            self._value = self._functions[thread](self.argument)
        except BaseException as e:
            self._error = e
        self.done.set()

    def result(self) -> Any:
        self.done.wait()
        if self._error is not None:
            raise self._error
        return self._value


def _work(tasks: queue.SimpleQueue[_Call | None], settings: UserSettings, number: int):
    with settings.contexts():
        while (call := tasks.get()) is not None:
            call.run(number)
