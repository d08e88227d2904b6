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

_AHEAD = 3  # requests that a process has at a time: the current one and the next ones
_GRACE = 0.5  # seconds that a process has to end by itself
_IN_A_MODULE = "define its class and functions in a module that is imported, or pip install cloudpickle"


Item = tuple[int, int]


class Row:
    """An item that was read: `keys`, `arrays` and `objects` as returned by `source_worker.leaves`, or an `error`."""

    def __init__(self, keys: Any, arrays: Sequence[np.ndarray], objects: Sequence[Any], error: str = ""):
        self.keys, self.arrays, self.objects, self.error = keys, arrays, objects, error


class Processes:
    """A pool of processes, each with a copy of the data sets. The results do not depend on which process reads an item.

    An item is (number of the data set, index in it).

    The first request starts the processes by `spawn`, because threads and JAX forbid `fork`. Arrays are returned in
    unnamed shared memory, which is freed however the processes end. Only one thread may use the pool at a time; `close`
    may be called from any thread.

    Processes import modules and the script that runs. What they can't import, such as classes typed into a notebook or
    defined in a function, cloudpickle sends by value, if it is installed.

    Args:
      datasets: pickled once.
      number: of processes.
      what: name of the data sets in messages.
      metadata: keys of items whose values are given as they are; see `source_worker.leaves`.
    """

    def __init__(self, datasets: Sequence[Any], number: int, what: str, metadata: Sequence[str] = ()):
        self._datasets, self._number, self._what, self._metadata = datasets, number, what, tuple(metadata)
        self._workers: list[_Worker] = []
        self._waiting: collections.deque[list[Item]] = collections.deque()  # requests that no process has yet
        self._asked: set[Item] = set()  # items in `_waiting`, and those that a process has
        self._rows: dict[Item, Row] = {}  # items that were read and not taken
        self._by_value = False  # whether cloudpickle is needed
        self._failure = ""  # why no process can start
        self._closing = threading.Event()
        self._finalizer: weakref.finalize | None = None

    def ahead(self, items: Iterable[Item], each: int):
        """Requests items that are taken soon, in this order, `each` at a time. Drops items that were read and are not
        among them.
        """
        self._reopen()
        wanted = dict.fromkeys(items)
        self._waiting.clear()
        self._asked = {i for w in self._workers for request in w.requests for i in request}
        self._rows = {i: row for i, row in self._rows.items() if i in wanted}
        new = [i for i in wanted if i not in self._asked and i not in self._rows]
        self._waiting.extend(new[k : k + each] for k in range(0, len(new), each))
        self._asked.update(new)
        self._hand_out()

    def take(self, items: Sequence[Item]) -> list[Row]:
        """The rows of items, in their order.

        Raises:
          RuntimeError: a process ended, or could not start.
          OSError: the pool was closed while waiting.
        """
        self._reopen()
        missing = {i for i in items if i not in self._rows}
        new = [i for i in missing if i not in self._asked]
        if new:
            each = max(1, -(-len(new) // (2 * self._number)))
            self._waiting.extendleft(reversed([new[k : k + each] for k in range(0, len(new), each)]))
            self._asked.update(new)
        while missing := {i for i in missing if i not in self._rows}:
            self._hand_out()
            self._receive()
        return [self._rows[i] for i in items]

    def close(self):
        """Ends the processes. The pool may be used again."""
        self._closing.set()
        if self._finalizer is not None:
            self._finalizer()

    def _reopen(self):
        if self._failure:
            raise RuntimeError(self._failure)
        if self._closing.is_set():
            self._forget()
            self._closing.clear()

    # --- requests -----------------------------------------------------------------------------------------------

    def _hand_out(self):
        self._check_open()
        self._start()
        while self._waiting:
            worker = min(self._workers, key=lambda w: len(w.requests))
            if len(worker.requests) >= _AHEAD:
                return
            try:
                worker.request(self._waiting[0])
            except OSError:
                self._ended(worker)
            self._waiting.popleft()

    def _start(self):
        if self._workers:
            return
        data = self._pickled()
        workers: list[_Worker] = []
        self._finalizer = weakref.finalize(self, _end, workers)
        try:
            for _ in range(self._number):
                workers.append(_Worker())
                if self._closing.is_set():  # while one was started, which is not among those that were ended
                    _end(workers)
                    self._check_open()
            for worker in workers:
                worker.begin(data)
        except OSError:
            self._check_open()
            dead = next((w for w in workers if not w.process.is_alive()), None)
            if dead is None:
                raise
            self._workers = workers
            self._ended(dead)
        self._workers = workers

    def _pickled(self) -> bytes:
        """The data sets, and the names of metadata."""
        whole, by_value = (self._datasets, self._metadata), _cloudpickle()
        try:
            if by_value is None:
                return pickle.dumps(whole)  # a process says whether it can load it
            if not self._by_value:
                with contextlib.suppress(Exception):
                    data = pickle.dumps(whole)
                    if _main_is_a_file() or b"__main__" not in data:
                        return data
            self._by_value = True
            return by_value.dumps(whole)
        except Exception as e:
            advice = _IN_A_MODULE if by_value is None else ""
            if isinstance(e, TypeError):  # Python's about locks, connections, generators and the like
                advice = "leave out in __getstate__ what can't be pickled, and make it in __setstate__, or when it is first used"
            self._fail(
                f"num_workers={self._number} needs {self._what} to be pickled for its processes, and it can't be: "
                f"{type(e).__name__}: {e}{'; ' if advice else ''}{advice}",
                lasting=True,
            )

    def _load_by_value(self):
        """Starts the processes again, with what cloudpickle makes of the data sets."""
        requests = [request for w in self._workers for request in w.requests]
        _end(self._workers)
        self._workers, self._by_value = [], True
        self._waiting.extendleft(reversed(requests))
        self._hand_out()

    def _receive(self):
        """Waits until a process answers or ends."""
        busy = [w for w in self._workers if w.requests or not w.ready]
        connections: dict[Any, _Worker] = {w.connection: w for w in busy}
        ends = {w.process.sentinel: w for w in self._workers}
        for x in multiprocessing.connection.wait([*connections, *ends]):
            self._check_open()
            if isinstance(x, int):
                self._ended(ends[x])
            worker = connections[x]
            try:
                kind, rows = worker.connection.recv()
                if kind == "file":
                    rows = _mapped(worker.descriptor(), rows)
            except (EOFError, OSError):
                self._ended(worker)
                raise AssertionError from None
            if kind == "failed":
                # "__main__", or "__mp_main__", which is the script's name in other processes.
                of_main = "main__" in rows
                if of_main and not self._by_value and _cloudpickle() is not None:
                    self._load_by_value()
                    return
                advice = f" ({_IN_A_MODULE})" if of_main and not self._by_value else ""
                self._fail(
                    f"{self._what} can't be loaded in another process, for num_workers={self._number}{advice}:\n{rows}",
                    lasting=True,
                )
            elif kind == "ready":
                worker.ready = True
            else:
                items = worker.requests.popleft()
                self._asked.difference_update(items)
                self._rows.update(
                    zip(items, (Row(None, (), (), x) if isinstance(x, str) else Row(*x) for x in rows), strict=True)
                )

    def _ended(self, worker: _Worker):
        """Raises for a process that ended by itself."""
        worker.process.join(5)
        code = worker.process.exitcode
        self._check_open()
        if code is not None and code < 0:
            name = signal.Signals(-code).name if -code in {*signal.Signals} else f"signal {-code}"
            how = f"by {name}" + (": it may have needed more memory than there is" if name == "SIGKILL" else "")
        else:
            how = f"with exit code {code}"
        if worker.ready:
            items = worker.requests[0] if worker.requests else []
            doing = f"while it read item {items[0][1]}" if items else ""
            if len(items) > 1:
                doing += f" or one of the {len(items) - 1} after it"
        else:
            doing = "before it was ready; its error is above"
            if _main_is_a_file():
                doing += '. A script that is run directly must do its work under `if __name__ == "__main__":`, as each process imports it'
        text = f"a process that reads {self._what} (num_workers={self._number}) ended {how} {doing}".rstrip()
        self._fail(text, lasting=not worker.ready)

    def _fail(self, text: str, *, lasting: bool = False) -> NoReturn:
        """Ends the processes. `lasting`: the next ones would fail, too, so there are none."""
        if lasting:
            self._failure = text
        self.close()
        self._forget()
        raise RuntimeError(text)

    def _check_open(self):
        if self._closing.is_set():
            raise OSError(errno.ECANCELED, "the reader was closed")

    def _forget(self):
        self._workers = []
        self._waiting.clear()
        self._asked.clear()
        self._rows.clear()


class _Worker:
    """One process. `requests` are those it has not answered; each is a list of items."""

    def __init__(self):
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.requests: collections.deque[list[Item]] = collections.deque()
        self.ready = False
        # Run by path, so that the process does not import this package and, with it, JAX.
        run = {"init_globals": {"connection": theirs}, "run_name": "jaxdali source worker"}
        self.process = context.Process(
            target=runpy.run_path, args=(source_worker.__file__,), kwargs=run, daemon=True, name="jaxdali-source-worker"
        )
        with _as_no_file():
            self.process.start()
        theirs.close()  # so that the end of the process closes the connection

    def begin(self, data: bytes):
        self.connection.send_bytes(data)

    def request(self, items: list[Item]):
        self.requests.append(items)
        # Not by `send`, whose view of a BytesIO the traceback of an error keeps: Python 3.12.1 crashes where it
        # collects a cycle with one.
        self.connection.send_bytes(pickle.dumps(items))

    def descriptor(self) -> int:
        """The descriptor that follows an answer. Raises OSError if there is none."""
        with socket.socket(fileno=os.dup(self.connection.fileno())) as connection:
            _, found, *_ = socket.recv_fds(connection, 1, 1)
        if not found:
            raise OSError(errno.EPIPE, "the process ended before it sent its arrays")
        return found[0]

    def hang_up(self):
        """Closes the connection, so that the process sees the end of its requests. It also wakes a thread that waits
        for an answer.
        """
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(self.connection.fileno())) as connection:
            connection.shutdown(socket.SHUT_RDWR)


def _main_is_a_file() -> bool:
    """Whether another process can import what runs here: a script or a module, and no notebook, interactive
    interpreter, or input.
    """
    main = sys.modules["__main__"]
    return getattr(main, "__spec__", None) is not None or os.path.exists(getattr(main, "__file__", None) or "")


@contextlib.contextmanager
def _as_no_file():
    """Keeps processes that start from running a script that is no file: Python calls its standard input "<stdin>"."""
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
    """The module, which is optional; None: it is not installed."""
    try:
        return importlib.import_module("cloudpickle")
    except ImportError:
        return None


def _mapped(descriptor: int, rows: Sequence[Any]) -> list[Any]:
    """The answer of a process whose arrays are in a file."""
    with open(descriptor, "rb") as f:
        data = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_COPY)  # exists as long as arrays use it

    def arrays(places: Sequence[Any]) -> list[np.ndarray]:
        return [np.frombuffer(data, d, math.prod(s), at).reshape(s) for d, s, at in places]

    return [row if isinstance(row, str) else (row[0], arrays(row[1]), row[2]) for row in rows]


def _end(workers: list[_Worker]):
    """Ends processes. Those that are ready get some time to end by themselves, so that their modules can release
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
        worker.process.join(5)
        if worker.process.exitcode is None:
            worker.process.kill()
            worker.process.join()
