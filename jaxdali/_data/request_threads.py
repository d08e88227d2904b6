"""Threads for requests to servers."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from .._core.system import Thread

_IDLE = 10.0  # seconds after which an idle thread ends
_END_WAIT = 5.0  # seconds that `close` waits for running requests


class RequestThreads:
    """A pool of at most `max_threads` threads for requests. They are started when they are needed.

    They are daemon threads, so a request that hangs does not keep the process alive. Idle threads end after `_IDLE`
    seconds.
    """

    def __init__(self, max_threads: int):
        self._max_threads = max_threads
        # Requests (future, function, its argument); None ends a thread.
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._ended = threading.Event()
        self._lock = threading.Lock()  # guards `_threads` and `_unanswered`
        self._unanswered = 0  # requests that are not answered yet

    def submit(self, f: Callable[..., Any], x: Any) -> Future[Any]:
        """Calls ``f(x, ended)`` in one of the threads. `ended` is set when the result is no longer needed. After `close`
        the future is cancelled.
        """
        future: Future[Any] = Future()
        with self._lock:
            if self._ended.is_set():
                future.cancel()
                return future
            # Unless there is an idle thread, or there are as many as allowed.
            if len(self._threads) < min(self._unanswered + 1, self._max_threads):
                thread = Thread(target=self._work, name="jaxdali-storage", daemon=True)
                try:
                    # First: an interrupt may be raised in `start` when the thread runs already.
                    self._threads.append(thread)
                    thread.start()
                except BaseException as e:
                    if not thread.is_alive():
                        self._threads.remove(thread)
                    # Memory does not suffice for another thread: the existing ones do the work.
                    if not isinstance(e, (RuntimeError, MemoryError)) or not self._threads:
                        raise
            self._unanswered += 1
            self._queue.put((future, f, x))
        return future

    def _work(self):
        """Runs a thread: answers requests until `_next` has no more. After `close` it cancels them."""
        while (item := self._next()) is not None:
            future, f, x = item
            if self._ended.is_set():
                future.cancel()
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(f(x, self._ended))
                except BaseException as e:
                    future.set_exception(e)
            with self._lock:
                self._unanswered -= 1
            del item, future, f, x  # so that an idle thread keeps nothing alive

    def _next(self) -> Any:
        """The next request; None if this thread must end."""
        try:
            return self._queue.get(timeout=_IDLE)
        except queue.Empty:
            with self._lock:  # the same lock as in `submit`: either a request is there, or the next one starts a thread
                try:
                    return self._queue.get_nowait()
                except queue.Empty:
                    with contextlib.suppress(ValueError):  # its start was interrupted before it ran
                        self._threads.remove(threading.current_thread())
                    return None

    def close(self):
        """Ends the threads. Idle ones end at once, and the others after their request, for which this waits a limited
        time.
        """
        self._ended.set()
        with self._lock:
            threads = self.end()
        deadline = time.monotonic() + _END_WAIT
        for thread in threads:
            thread.join(max(deadline - time.monotonic(), 0))

    def end(self) -> list[threading.Thread]:
        """Lets the threads end when they have answered the requests so far. Returns them. It takes no lock, because the
        garbage collector may call it.
        """
        threads = list(self._threads)
        for _ in threads:
            self._queue.put(None)
        return threads

    def __enter__(self) -> RequestThreads:
        return self

    def __exit__(self, *_: object):
        self.close()
