"""Copies of the sources of parallel external_source."""

from __future__ import annotations

import concurrent.futures
import copy
import functools
import inspect
import io
import itertools
import pathlib
import queue
import threading
import types
import warnings
import weakref
import zipfile
from collections.abc import Iterable
from typing import Any

import jax
import numpy as np

_SHARED = (
    type(threading.Lock()),
    type(threading.RLock()),
    types.ModuleType,
    np.memmap,
    jax.Array,
    jax.Device,
    jax.sharding.Mesh,
)
_RUNNING = (threading.Thread, queue.Queue, concurrent.futures.Executor)  # a copy of these has nobody who works for it
_ATOMS = {
    int,
    float,
    complex,
    bool,
    str,
    bytes,
    type(None),
    type(pathlib.Path()),
    np.bool_,
    *np.sctypeDict.values(),
} - {
    np.void,
    np.object_,
}
_CONTAINERS = (list, tuple, dict, range, np.ndarray)  # to iterate over them changes nothing in them

# By the id of an iterator that several could share.
_uncopied: weakref.WeakValueDictionary[int, Copies] = weakref.WeakValueDictionary()
_guard = threading.Lock()


class Copies:
    """One pipeline's copies of what a user gave as a parallel source.

    As in DALI, whose workers are processes, a source that several pipelines share is another object in each of them.
    Each worker has its own copy of a callable object, too, so that no call sees state that another call has half
    changed (such as an order that is redrawn when the epoch changes). Functions, and objects that can't be copied, are
    shared; so are locks, modules, memory maps, and arrays that can't change.

    Attributes:
      first: the copy for the first worker, or the original.
      doubt: a warning that another pipeline takes items of the same iterator; "" if none does.
    """

    def __init__(self, source: Any):
        self.first = source
        self.doubt = ""
        self._can_be_copied = self._has_file = False
        if type(source) in _CONTAINERS:
            return
        try:
            self.first = _copy(source)
            self._can_be_copied = True
        except Exception as e:  # user objects may raise anything: files and generators can't be copied
            self._has_file = isinstance(e, _FileError)
            if not callable(source) or inspect.isgeneratorfunction(source):
                self._share(source, e)

    def _share(self, source: Any, error: Exception):
        with _guard:
            if id(source) not in _uncopied:
                _uncopied[id(source)] = self
                return
        kind = type(source).__name__
        part = (
            "each gets a part"
            if hasattr(type(source), "__next__")
            else "if they share what it reads from, such as a file, each gets a part"
        )
        self.doubt = (
            f"another external_source has the same source, and this {kind} can't be copied ({error}), so {part} of its items; "
            f"pass {'the generator function' if isinstance(source, types.GeneratorType) else 'an object to each'}"
        )

    def of_workers(self, number: int) -> list[Any]:
        """The callable of each worker: copies of the first, not called yet. With a state for checkpoints it is the
        first itself.
        """
        owner = getattr(self.first, "__self__", self.first)
        one = not self._can_be_copied or has_state(owner)
        if self._has_file and number > 1:
            self.doubt = (
                f"{number} workers share this {type(owner).__name__}, which can't be copied because it has an open file: if each call "
                "moves in the file and reads there, they disturb one another; leave the file out in "
                "__getstate__, and open it in __setstate__"
            )
        return [self.first, *(self.first if one else _copy(self.first) for _ in range(number - 1))]

    def close(self) -> None:
        """Says that the source is no longer read."""
        with _guard:
            if _uncopied.get(id(self.first)) is self:
                del _uncopied[id(self.first)]


def has_state(source: Any) -> bool:
    """Whether a checkpoint can hold the state of a source."""
    return callable(getattr(source, "get_state", None)) and callable(getattr(source, "set_state", None))


def _copy(source: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of Python 3.12, about copies of itertools
        return copy.deepcopy(source, _shared(source))


def _shared(source: Any) -> dict[int, Any]:
    """The memo for `copy.deepcopy`: what stands for objects within a source, by their ids.

    These are the objects that all copies share, and copies of containers of values that can't change, because
    `copy.deepcopy` takes seconds for the list of a large data set.

    Raises:
      TypeError: something in the source can't be copied.
    """
    shared, visited, waiting = dict[int, Any](), set[int](), [source]
    while waiting:
        x = waiting.pop()
        if id(x) in visited or isinstance(x, (type, types.FunctionType)):
            continue
        visited.add(id(x))
        if isinstance(x, _RUNNING):
            raise TypeError(f"it has a {type(x).__name__}")
        if isinstance(x, zipfile.ZipFile):
            raise TypeError("it has an open ZipFile")  # whose members several threads may read
        if isinstance(x, io.IOBase) and not isinstance(x, (io.BytesIO, io.StringIO)):
            raise _FileError("it has an open file")
        if isinstance(x, _SHARED) or (isinstance(x, np.ndarray) and not x.flags.writeable):
            shared[id(x)] = x
        elif (type(x) is list or type(x) is set) and _can_not_change(x):
            shared[id(x)] = x.copy()
        elif type(x) is dict and _can_not_change(itertools.chain(x, x.values())):
            shared[id(x)] = x.copy()
        elif isinstance(x, (list, tuple)):
            waiting.extend(x)
        elif isinstance(x, dict):
            waiting.extend(x.values())
        elif isinstance(x, types.MethodType):
            waiting.append(x.__self__)
        elif isinstance(x, functools.partial):
            waiting += [x.func, x.args, x.keywords]
        else:
            parts = getattr(x, "__dict__", {}).values()
            waiting.extend(p for p in parts if not (_chooses_state(x) and isinstance(p, (*_RUNNING, io.IOBase))))
    return shared


class _FileError(TypeError):
    pass


def _can_not_change(values: Iterable[Any]) -> bool:
    """Whether all values are numbers, strings, paths, or tuples of such."""
    while not (kinds := {*map(type, values := [*values])}) <= _ATOMS:
        if not kinds <= {*_ATOMS, tuple}:
            return False
        values = itertools.chain.from_iterable(x for x in values if type(x) is tuple)
    return True


def _chooses_state(x: Any) -> bool:
    """Whether an object's class says what belongs to a copy, so that threads and files among its attributes may be left
    out.
    """
    names = ("__deepcopy__", "__getstate__", "__reduce__", "__reduce_ex__")
    return any(getattr(type(x), n, None) is not getattr(object, n, None) for n in names)
