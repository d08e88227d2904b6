"""Threads that call a user's function for several samples at the same time."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable
from typing import Any

from ..._core.settings import UserSettings


class Workers:
    """A pool of threads, which run under a user's JAX settings. They are daemons: one that never returns does not keep the process."""

    def __init__(self, number: int, settings: UserSettings):
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._number = number
        for _ in range(number):
            threading.Thread(target=_work, args=(self._tasks, settings), name="jaxdali-source", daemon=True).start()

    def map(self, function: Callable[[Any], Any], arguments: Iterable[Any]) -> list[Callable[[], Any]]:
        """Has the function called with each argument. Returns functions that wait for a result, and return or raise it."""
        calls = [_Call(function, a) for a in arguments]
        for call in calls:
            self._tasks.put(call.run)
        return [call.result for call in calls]

    def close(self):
        """The threads end after the calls they are in."""
        for _ in range(self._number):
            self._tasks.put(None)


class _Call:
    def __init__(self, function: Callable[[Any], Any], argument: Any):
        self._function, self._argument = function, argument
        self._done = threading.Event()
        self._value: Any = None
        self._error: BaseException | None = None

    def run(self):
        try:
            self._value = self._function(self._argument)
        except BaseException as e:
            self._error = e
        self._done.set()

    def result(self) -> Any:
        self._done.wait()
        if self._error is not None:
            raise self._error
        return self._value


def _work(tasks: queue.SimpleQueue[Callable[[], None] | None], settings: UserSettings):
    with settings.contexts():
        while (task := tasks.get()) is not None:
            task()
