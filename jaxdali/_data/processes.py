"""Processes that read items of a user's data set, for data sets that hold the interpreter's lock."""

from __future__ import annotations

import collections
import contextlib
import errno
import importlib
import math
import mmap
import multiprocessing
import multiprocessing.connection
import os
import pickle
import runpy
import signal
import socket
import sys
import threading
import time
import weakref
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

import numpy as np

from . import source_worker

_MAX_REQUESTS = 3  # requests that a process has at a time: the one that it answers, and the next ones
_GRACE = 0.5  # seconds that processes have to end by themselves
_MODULE_ADVICE = "define its class and functions in a module that is imported, or pip install cloudpickle"


Item = tuple[int, int]  # (number of the data set, index in it)


class Row:
    """An item that was read: the result of `source_worker.leaves`, or an error.

    Attributes:
      keys: the names of the arrays if the item is a dictionary, their number if it is a tuple, None for a single value.
      arrays: the values.
      objects: the values that are returned unchanged, as metadata.
      error: the reason why it could not be read, of an exception with its traceback; "" if it was read.
    """

    def __init__(self, keys: Any, arrays: Sequence[np.ndarray], objects: Sequence[Any], error: str = ""):
        self.keys, self.arrays, self.objects, self.error = keys, arrays, objects, error


class Processes:
    """A pool of processes, each with a copy of the data sets. Any process may read an item: the result is the same.

    The first request starts the processes by `spawn`, because threads and JAX forbid `fork`. Arrays are returned in
    unnamed shared memory, which is freed however the processes end. Only one thread may use the pool at a time; `close`
    may be called from any thread.

    Processes import modules and the script that runs. What they can't import, such as classes typed into a notebook or
    defined in a function, cloudpickle sends by value, if it is installed.

    Args:
      datasets: the data sets, which are pickled once.
      number: number of processes.
      name: name of the data sets in messages.
      metadata: keys of items (then dictionaries) whose values are returned unchanged, as Python objects.
    """

    def __init__(self, datasets: Sequence[Any], number: int, name: str, metadata: Sequence[str] = ()):
        self._datasets, self._number, self._name, self._metadata = datasets, number, name, tuple(metadata)
        self._workers: list[_Worker] = []
        self._waiting: collections.deque[list[Item]] = collections.deque()  # requests that no process has yet
        self._requested: set[Item] = set()  # items in `_waiting`, and in requests that a process has
        self._rows: dict[Item, Row] = {}  # items that were read, and may be taken
        self._by_value = False  # whether the data sets are pickled by cloudpickle
        self._failure = ""  # the reason why no process can start
        self._closing = threading.Event()
        self._finalizer: weakref.finalize | None = None

    def ahead(self, items: Iterable[Item], request_size: int):
        """Requests items that are taken soon, in this order. Drops items that were read and are not among them.

        Args:
          request_size: number of items in one request to a process.
        """
        self._reopen()
        announced = dict.fromkeys(items)
        self._waiting.clear()
        self._requested = {i for w in self._workers for request in w.requests for i in request}
        self._rows = {i: row for i, row in self._rows.items() if i in announced}
        new = [i for i in announced if i not in self._requested and i not in self._rows]
        self._waiting.extend(new[k : k + request_size] for k in range(0, len(new), request_size))
        self._requested.update(new)
        self._send_requests()

    def take(self, items: Sequence[Item]) -> list[Row]:
        """The rows of items, in their order. Waits for items that were not read yet.

        Raises:
          RuntimeError: a process ended, or could not start.
          OSError: the pool was closed while waiting.
        """
        self._reopen()
        missing = {i for i in items if i not in self._rows}
        new = [i for i in missing if i not in self._requested]
        if new:
            # About two requests for each process, before all that were announced.
            request_size = max(1, -(-len(new) // (2 * self._number)))
            self._waiting.extendleft(reversed([new[k : k + request_size] for k in range(0, len(new), request_size)]))
            self._requested.update(new)
        while missing := {i for i in missing if i not in self._rows}:
            self._send_requests()
            self._receive()
        return [self._rows[i] for i in items]

    def close(self):
        """Ends the processes. The pool may be used again."""
        self._closing.set()
        if self._finalizer is not None:
            self._finalizer()

    def _reopen(self):
        """Prepares a closed pool for further use. Raises RuntimeError if no process can start."""
        if self._failure:
            raise RuntimeError(self._failure)
        if self._closing.is_set():
            self._reset()
            self._closing.clear()

    # --- requests -----------------------------------------------------------------------------------------------

    def _send_requests(self):
        """Sends waiting requests to the processes that have the fewest, as long as one has less than
        `_MAX_REQUESTS`.
        """
        self._check_open()
        self._start()
        while self._waiting:
            worker = min(self._workers, key=lambda w: len(w.requests))
            if len(worker.requests) >= _MAX_REQUESTS:
                return
            try:
                worker.request(self._waiting[0])
            except OSError:
                self._raise_ended(worker)
            self._waiting.popleft()

    def _start(self):
        """Starts the processes, if there are none, and sends them the data sets. Raises OSError if `close` is called
        meanwhile, and RuntimeError if one ends at once.
        """
        if self._workers:
            return
        data = self._pickled()
        workers: list[_Worker] = []
        # Called by `close`, when the pool is no longer used, or at exit. It must not refer to the pool.
        self._finalizer = weakref.finalize(self, _end_workers, workers)
        try:
            for _ in range(self._number):
                workers.append(_Worker())
                # If `close` was called while this process was started, it has not ended this one.
                if self._closing.is_set():
                    _end_workers(workers)
                    self._check_open()
            for worker in workers:
                worker.begin(data)
        except OSError:
            self._check_open()
            dead = next((w for w in workers if not w.process.is_alive()), None)
            if dead is None:
                raise
            self._workers = workers
            self._raise_ended(dead)
        self._workers = workers

    def _pickled(self) -> bytes:
        """The data sets and the names of metadata, pickled. Uses cloudpickle if that is needed and installed."""
        payload, cloudpickle = (self._datasets, self._metadata), _cloudpickle()
        try:
            if cloudpickle is None:
                return pickle.dumps(payload)  # the process answers whether it can load them
            if not self._by_value:
                # Classes of a main module that is no file can't be imported by other processes.
                with contextlib.suppress(Exception):
                    data = pickle.dumps(payload)
                    if _main_is_a_file() or b"__main__" not in data:
                        return data
            self._by_value = True
            return cloudpickle.dumps(payload)
        except Exception as e:
            advice = _MODULE_ADVICE if cloudpickle is None else ""
            if isinstance(e, TypeError):  # raised by Python for locks, connections, generators and the like
                advice = "leave out in __getstate__ what can't be pickled, and make it in __setstate__, or when it is first used"
            self._fail(
                f"num_workers={self._number} needs {self._name} to be pickled for its processes, and it can't be: "
                f"{type(e).__name__}: {e}{'; ' if advice else ''}{advice}",
                lasting=True,
            )

    def _load_by_value(self):
        """Starts the processes again, with data sets that cloudpickle has pickled, and repeats their requests."""
        requests = [request for w in self._workers for request in w.requests]
        _end_workers(self._workers)
        self._workers, self._by_value = [], True
        self._waiting.extendleft(reversed(requests))
        self._send_requests()

    def _receive(self):
        """Waits until a process answers or ends, and stores the rows of the answers."""
        busy = [w for w in self._workers if w.requests or not w.ready]  # those that owe an answer
        connections: dict[Any, _Worker] = {w.connection: w for w in busy}
        worker_of_sentinel = {w.process.sentinel: w for w in self._workers}
        for ready in multiprocessing.connection.wait([*connections, *worker_of_sentinel]):
            self._check_open()
            if isinstance(ready, int):  # a sentinel: the process has ended
                self._raise_ended(worker_of_sentinel[ready])
            worker = connections[ready]
            try:
                # The answers of `source_worker.main`. With "failed", `rows` is the text of a traceback.
                kind, rows = worker.connection.recv()
                if kind == "file":
                    rows = _mapped(worker.descriptor(), rows)
            except (EOFError, OSError):
                self._raise_ended(worker)
                raise AssertionError from None  # for type checkers: `_raise_ended` always raises
            if kind == "failed":
                # "__main__", or "__mp_main__", which is the script's name in other processes.
                is_from_main = "main__" in rows
                if is_from_main and not self._by_value and _cloudpickle() is not None:
                    self._load_by_value()
                    return
                advice = f" ({_MODULE_ADVICE})" if is_from_main and not self._by_value else ""
                self._fail(
                    f"{self._name} can't be loaded in another process, for num_workers={self._number}{advice}:\n{rows}",
                    lasting=True,
                )
            elif kind == "ready":
                worker.ready = True
            else:
                items = worker.requests.popleft()
                self._requested.difference_update(items)
                self._rows.update(
                    zip(
                        items,
                        (
                            Row(keys=None, arrays=(), objects=(), error=row) if isinstance(row, str) else Row(*row)
                            for row in rows
                        ),
                        strict=True,
                    )
                )

    def _raise_ended(self, worker: _Worker):
        """Raises RuntimeError for a process that ended by itself, with the cause and the phase in which it ended."""
        worker.process.join(timeout=5)
        code = worker.process.exitcode
        self._check_open()
        if code is not None and code < 0:
            signal_name = signal.Signals(-code).name if -code in {*signal.Signals} else f"signal {-code}"
            cause = f"by {signal_name}" + (
                ": it may have needed more memory than there is" if signal_name == "SIGKILL" else ""
            )
        else:
            cause = f"with exit code {code}"
        if worker.ready:
            items = worker.requests[0] if worker.requests else []
            # An item is (number of the data set, index in it).
            phase = f"while it read item {items[0][1]}" if items else ""
            if len(items) > 1:
                phase += f" or one of the {len(items) - 1} after it"
        else:
            phase = "before it was ready; its error is above"
            if _main_is_a_file():
                phase += '. A script that is run directly must do its work under `if __name__ == "__main__":`, as each process imports it'
        text = f"a process that reads {self._name} (num_workers={self._number}) ended {cause} {phase}".rstrip()
        self._fail(text, lasting=not worker.ready)

    def _fail(self, text: str, *, lasting: bool = False) -> NoReturn:
        """Ends the processes, and raises RuntimeError.

        Args:
          lasting: whether new processes would fail, too. Then none are started.
        """
        if lasting:
            self._failure = text
        self.close()
        self._reset()
        raise RuntimeError(text)

    def _check_open(self):
        """Raises OSError if the pool was closed meanwhile."""
        if self._closing.is_set():
            raise OSError(errno.ECANCELED, "the reader was closed")

    def _reset(self):
        self._workers = []
        self._waiting.clear()
        self._requested.clear()
        self._rows.clear()


class _Worker:
    """One process.

    Attributes:
      process: the process.
      connection: the pipe to it.
      requests: the requests that it has not answered; each is a list of items.
      ready: whether it has loaded the data sets.
    """

    def __init__(self):
        """Starts the process. `begin` sends it the data sets."""
        context = multiprocessing.get_context("spawn")
        self.connection, child_connection = context.Pipe()
        self.requests: collections.deque[list[Item]] = collections.deque()
        self.ready = False
        # Run by path, so that the process does not import this package and, with it, JAX.
        run = {"init_globals": {"connection": child_connection}, "run_name": "jaxdali source worker"}
        self.process = context.Process(
            target=runpy.run_path, args=(source_worker.__file__,), kwargs=run, daemon=True, name="jaxdali-source-worker"
        )
        with _without_main_file():
            self.process.start()
        child_connection.close()  # otherwise the connection would stay open when the process ends

    def begin(self, data: bytes):
        """Sends the pickled data sets."""
        self.connection.send_bytes(data)

    def request(self, items: list[Item]):
        """Sends a request for items. Raises OSError if the process has ended."""
        self.requests.append(items)
        # Not by `send`, whose view of a BytesIO the traceback of an error keeps: Python 3.12.1 crashes where it
        # collects a cycle with one.
        self.connection.send_bytes(pickle.dumps(items))

    def descriptor(self) -> int:
        """Receives the file descriptor that follows an answer. Raises OSError if there is none."""
        # The socket object closes its descriptor at the end, hence `dup`.
        with socket.socket(fileno=os.dup(self.connection.fileno())) as connection:
            # It comes with one byte, which has no meaning.
            _, descriptors, *_ = socket.recv_fds(connection, bufsize=1, maxfds=1)
        if not descriptors:
            raise OSError(errno.EPIPE, "the process ended before it sent its arrays")
        return descriptors[0]

    def hang_up(self):
        """Closes the connection, so that the process sees the end of its requests. It also wakes a thread that waits
        for an answer.
        """
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(self.connection.fileno())) as connection:
            connection.shutdown(socket.SHUT_RDWR)


def _main_is_a_file() -> bool:
    """Whether another process can import the main module: it is a script or a module, and not a notebook, an
    interactive interpreter, or standard input.
    """
    main = sys.modules["__main__"]
    return getattr(main, "__spec__", None) is not None or os.path.exists(getattr(main, "__file__", None) or "")


@contextlib.contextmanager
def _without_main_file():
    """Keeps new processes from running a main module that is no file. Python gives standard input the name
    "<stdin>".
    """
    main = sys.modules["__main__"].__dict__
    if "__file__" not in main or _main_is_a_file():
        yield
        return
    name = main.pop("__file__")
    try:
        yield
    finally:
        main["__file__"] = name


def _cloudpickle() -> Any:
    """The module cloudpickle; None if it is not installed."""
    try:
        return importlib.import_module("cloudpickle")
    except ImportError:
        return None


def _mapped(descriptor: int, rows: Sequence[Any]) -> list[Any]:
    """The rows of an answer whose arrays are in a file, with arrays that are views of the mapped file.

    Args:
      rows: (keys, (dtype, shape, offset in the file) of each array, objects), or the text of an error.
    """
    with open(descriptor, "rb") as f:
        data = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_COPY)  # the mapping exists as long as an array uses it

    def with_arrays(keys: Any, places: Sequence[Any], objects: Sequence[Any]) -> tuple[Any, ...]:
        arrays = [np.frombuffer(data, dtype, math.prod(shape), start).reshape(shape) for dtype, shape, start in places]
        return keys, arrays, objects

    return [row if isinstance(row, str) else with_arrays(*row) for row in rows]


def _end_workers(workers: list[_Worker]):
    """Ends processes. Those that are ready get `_GRACE` seconds to end by themselves, so that their modules can release
    resources.
    """
    for worker in workers:
        worker.hang_up()
        if not worker.ready:
            worker.process.kill()
    limit = time.monotonic() + _GRACE
    for worker in workers:
        worker.process.join(max(0.0, limit - time.monotonic()))
        if worker.process.exitcode is None:
            worker.process.terminate()
    for worker in workers:
        worker.process.join(timeout=5)
        if worker.process.exitcode is None:
            worker.process.kill()
            worker.process.join()
