"""Limits a program to the first batches of its iterators and pipelines, and prints what they made."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import functools
import logging
import math
import multiprocessing
import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, NoReturn

import jax
import numpy as np

from .._core.building import user_line
from .._core.jax_settings import own_settings
from .._core.tracebacks import boundary
from .._iterator import stream
from .._iterator.base import BaseIterator
from .._pipeline.definition import Definition
from .._pipeline.pipeline import Pipeline
from .._pipeline.pipeline_def import name_of
from ..backend import TensorListCPU, TensorListGPU

_PATIENCE = 100  # requests after the last batch that no new epoch explains, such as those of a prefetcher
_IDLE = 5  # seconds
# Ends the main thread, also if the program handles or ignores SIGINT. Programs hardly use it, and it ends no process.
_SIGNAL = signal.SIGURG


@dataclasses.dataclass
class _OutputSummary:
    """An output: its type, its shape in the first batch, and the least and the largest number; None: unknown."""

    dtype: str
    shape: str
    least: Any = None
    largest: Any = None


@dataclasses.dataclass
class _Source:
    """The batches of an iterator, or of a pipeline without one.

    Attributes:
      title: the line of the program that made it (a pipeline: that first asked for a batch), and its names.
      num_batches, num_refusals: of the requests, those with a batch and those after the last one.
      restarts: whether a request after the end is one of a new epoch.
    """

    title: str
    num_batches: int = 0
    num_refusals: int = 0
    restarts: bool = False
    outputs: dict[Any, _OutputSummary] = dataclasses.field(default_factory=dict)

    def add(self, batch: Any):
        """Adds a batch: a dict, a list with a dict for each pipeline, or a tuple."""
        self.num_batches += 1
        if isinstance(batch, list):
            batch = batch[0] if batch else {}
        for name, x in batch.items() if isinstance(batch, dict) else enumerate(batch):
            new = _described(x)
            output = self.outputs.setdefault(name if isinstance(name, str) else f"output {name}", new)
            if output.least is not None and new.least is not None:
                output.least, output.largest = min(output.least, new.least), max(output.largest, new.largest)


class Limit:
    """Limits iterators and pipelines to `num_batches` each. When the process ends, a table is printed."""

    def __init__(self, num_batches: int):
        self._num_batches = num_batches
        self._process = os.getpid()
        self._end_message = f"--batches {num_batches}: there are no more batches"
        self._excepthook: Any = None  # ours, see `_end_quietly`
        self._sources: list[_Source] = []
        self._source_of: weakref.WeakKeyDictionary[Any, _Source] = weakref.WeakKeyDictionary()  # by the first pipeline
        self._names: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()  # of pipelines' definitions

    def install(self):
        """Begins to limit. The methods are replaced here, so that only programs that are limited pay for it."""
        iterators: Any = BaseIterator
        definitions: Any = Definition
        start, define = iterators._start, definitions.define

        def start_and_list(iterator: BaseIterator, lease: Any, options: Any, **kwargs: Any):
            start(iterator, lease, options, **kwargs)
            self._source(iterator).restarts |= options.auto_reset

        def define_and_name(definition: Definition, function: Callable[[], Any]):
            if (name := name_of(function)) != "define_graph":
                self._names[definition._owner()] = name
            define(definition, function)

        iterators._start, definitions.define = start_and_list, define_and_name
        iterators.__init_subclass__ = classmethod(lambda cls: self._limit(cls, "__next__", "peek"))
        classes = [iterators]
        for cls in classes:  # the list grows meanwhile
            classes += cls.__subclasses__()
            self._limit(cls, "__next__", "peek")
        self._limit(Pipeline, "run", "share_outputs")
        for cls in (iterators, Pipeline):
            cls.reset = self._noting_restarts(cls.reset)
        logging.getLogger(stream.__name__).setLevel(logging.ERROR)  # `reset` would log that the epoch is not over
        signal.signal(_SIGNAL, _end_main_thread)
        atexit.register(self._print)

    def _end_quietly(self):
        """Makes the exception after the last batch end the program without an error. A program may have replaced
        `sys.excepthook`.
        """
        excepthook = sys.excepthook
        if excepthook is self._excepthook:
            return

        def end_quietly(kind: Any, e: BaseException, traceback: Any):
            cause = e.__cause__ if str(e).endswith(" raised StopIteration") else e  # of a generator or a coroutine
            if isinstance(cause, StopIteration) and cause.args == (self._end_message,):
                traceback.tb_next = cause.__traceback__ = None  # their frames hold the iterator
                sys.exit(0)
            excepthook(kind, e, traceback)

        sys.excepthook = self._excepthook = end_quietly

    def _limit(self, cls: type, *names: str):
        """Limits a class, unless it is the program's: those call the methods of ours."""
        for name in names if cls.__module__.startswith("jaxdali.") else ():
            if name in vars(cls):
                setattr(cls, name, self._limited(vars(cls)[name]))

    def _limited(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """The method, which raises StopIteration after the last batch. In the next epoch nothing new will come, so the
        program ends there.
        """

        @boundary
        @functools.wraps(method)
        def limited(owner: Any, *args: Any, **kwargs: Any) -> Any:
            source = self._source(owner)
            if source.num_batches >= self._num_batches:
                if source.num_refusals and (source.restarts or source.num_refusals > _PATIENCE):
                    self._end()
                source.num_refusals += 1
                self._end_quietly()
                raise StopIteration(self._end_message)
            batch = method(owner, *args, **kwargs)
            if method.__name__ != "peek":
                source.add(batch)
            return batch

        return limited

    def _noting_restarts(self, reset: Callable[..., Any]) -> Callable[..., Any]:
        """The method, which notes that another epoch begins. A loop may also take the rest of an epoch."""

        @functools.wraps(reset)
        def noting(owner: Any, *args: Any, **kwargs: Any) -> Any:
            source = self._source(owner)
            source.restarts |= source.num_refusals > 0 and not getattr(owner, "_begins_loop", False)
            return reset(owner, *args, **kwargs)

        return noting

    def _end(self) -> NoReturn:
        """Ends the program. In a thread that loads batches, it waits until the process is idle: the main thread may
        compute with batches that it has.
        """
        main_thread = threading.main_thread()
        if threading.current_thread() is not main_thread and main_thread.ident is not None:
            before = -math.inf
            while time.process_time() - before > 0.05:  # seconds
                before = time.process_time()
                time.sleep(_IDLE)
            if main_thread.is_alive():  # it may wait for this thread, as its last action
                signal.pthread_kill(main_thread.ident, _SIGNAL)
        sys.exit(0)

    def _source(self, owner: Any) -> _Source:
        """The source of an iterator or a pipeline. Iterators over the same pipeline share one."""
        first = owner if isinstance(owner, Pipeline) else next(iter(owner._pipes), owner)
        if first not in self._source_of:
            names = dict.fromkeys((self._names.get(first, type(first).__name__), type(owner).__name__))
            title = f"{user_line().removeprefix(os.getcwd() + os.sep)}: {', '.join(names)}"
            self._sources.append(self._source_of.setdefault(first, _Source(title)))
        return self._source_of[first]

    def _print(self):
        if os.getpid() != self._process:  # a fork
            return
        with contextlib.suppress(BrokenPipeError):
            self._print_table()

    def _print_table(self):
        if not self._sources and multiprocessing.parent_process() is None:
            print("\nno iterator or pipeline was used in this process")
        rows = {id(s): [(n, x.dtype, x.shape, _range(x)) for n, x in s.outputs.items()] for s in self._sources}
        widths = [max(map(len, column)) for column in zip(*(row for group in rows.values() for row in group))]
        for s in self._sources:
            print(f"\n{s.title}: {s.num_batches or 'no'} batch{'es' * (s.num_batches > 1)}")
            for row in rows[id(s)]:
                print(" ", "  ".join(map(str.ljust, row, widths)).rstrip())


def _end_main_thread(*_: object) -> NoReturn:
    """Handles `_SIGNAL`: once, as several threads may load batches."""
    signal.signal(_SIGNAL, signal.SIG_IGN)
    sys.exit(0)


def _range(x: _OutputSummary) -> str:
    text = "{:.4g} to {:.4g}" if isinstance(x.least, float) else "{} to {}"
    return "" if x.least is None else text.format(x.least, x.largest)


def _described(x: Any) -> _OutputSummary:
    """Describes an output of a batch."""
    form = ""
    if isinstance(x, (TensorListCPU, TensorListGPU)):
        x = [np.asarray(sample) for sample in x.as_cpu()]
        x = np.stack(x) if len({sample.shape for sample in x}) == 1 else x
    if isinstance(x, tuple):  # samples and their lengths
        (x, _), form = x, "ragged, padded to "
    arrays = x if isinstance(x, list) else [x]
    if not arrays or not hasattr(arrays[0], "shape"):  # metadata
        return _OutputSummary(type(arrays[0]).__name__ if arrays else "", f"{len(arrays)} objects")
    if isinstance(x, list):
        form = f"ragged, {len(x)} samples, the first "
    output = _OutputSummary(str(arrays[0].dtype).removeprefix("torch."), f"{form}{tuple(arrays[0].shape)}")
    # Sparse tensors, and arrays that are partly in other processes, have no range here. A JAX array is copied, as the
    # program may donate it, and a NumPy array on its memory would prevent that.
    with contextlib.suppress(TypeError, ValueError, RuntimeError), own_settings():
        numbers = [np.asarray(a.copy()) if isinstance(a, jax.Array) else a for a in arrays]
        output.least = min(a.min().item() for a in numbers if 0 not in a.shape)
        output.largest = max(a.max().item() for a in numbers if 0 not in a.shape)
    return output
