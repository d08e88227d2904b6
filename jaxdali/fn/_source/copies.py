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

# Objects of these types are the same in all copies.
_SHARED = (
    type(threading.Lock()),
    type(threading.RLock()),
    types.ModuleType,
    np.memmap,
    jax.Array,
    jax.Device,
    jax.sharding.Mesh,
)
_RUNNING = (threading.Thread, queue.Queue, concurrent.futures.Executor)  # no thread would work for a copy of these
# Types of values that can't change, so that a container of them is copied without a look at its items.
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
_CONTAINERS = (list, tuple, dict, range, np.ndarray)  # iterating over them does not change them

# The first user of each source that can't be copied, by the source's id.
_uncopied: weakref.WeakValueDictionary[int, Copies] = weakref.WeakValueDictionary()
_guard = threading.Lock()  # guards `_uncopied`


class Copies:
    """One pipeline's copies of a user's parallel source.

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
        if type(source) in _CONTAINERS:  # iterating over it does not change it, so it needs no copy
            return
        try:
            self.first = _copy(source)
            self._can_be_copied = True
        except Exception as e:  # user objects may raise anything: files and generators can't be copied
            self._has_file = isinstance(e, _FileError)
            if not callable(source) or inspect.isgeneratorfunction(source):
                self._share(source, e)

    def _share(self, source: Any, error: Exception):
        """Notes that `error` prevents a copy of the source, and sets `doubt` if another pipeline has it, too."""
        with _guard:
            if id(source) not in _uncopied:
                _uncopied[id(source)] = self
                return
        kind = type(source).__name__
        consequence = (
            "each gets a part"
            if hasattr(type(source), "__next__")
            else "if they share what it reads from, such as a file, each gets a part"
        )
        self.doubt = (
            f"another external_source has the same source, and this {kind} can't be copied ({error}), so {consequence} of its items; "
            f"pass {'the generator function' if isinstance(source, types.GeneratorType) else 'an object to each'}"
        )

    def of_workers(self, number: int) -> list[Any]:
        """The callable of each worker: a copy of the first one, which was not called yet.

        All workers have the first one itself if it can't be copied, or if checkpoints hold its state.
        """
        owner = getattr(self.first, "__self__", self.first)
        is_shared = not self._can_be_copied or has_state(owner)
        if self._has_file and number > 1:
            self.doubt = (
                f"{number} workers share this {type(owner).__name__}, which can't be copied because it has an open file: if each call "
                "moves in the file and reads there, they disturb one another; leave the file out in "
                "__getstate__, and open it in __setstate__"
            )
        return [self.first, *(self.first if is_shared else _copy(self.first) for _ in range(number - 1))]

    def close(self) -> None:
        """Marks the source as no longer read."""
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
    """The memo for `copy.deepcopy`: replacements of objects within a source, by the objects' ids.

    Objects that all copies share are replaced by themselves. Containers of values that can't change are replaced by
    shallow copies, because `copy.deepcopy` takes seconds for the list of a large data set.

    Raises:
      TypeError: something in the source can't be copied.
    """
    memo, visited, stack = dict[int, Any](), set[int](), [source]
    while stack:
        x = stack.pop()
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
            memo[id(x)] = x
        elif (type(x) is list or type(x) is set) and _are_atoms(x):
            memo[id(x)] = x.copy()
        elif type(x) is dict and _are_atoms(itertools.chain(x, x.values())):
            memo[id(x)] = x.copy()
        elif isinstance(x, (list, tuple)):
            stack.extend(x)
        elif isinstance(x, dict):
            stack.extend(x.values())
        elif isinstance(x, types.MethodType):
            stack.append(x.__self__)
        elif isinstance(x, functools.partial):
            stack += [x.func, x.args, x.keywords]
        else:
            attributes = getattr(x, "__dict__", {}).values()
            stack.extend(p for p in attributes if not (_chooses_state(x) and isinstance(p, (*_RUNNING, io.IOBase))))
    return memo


class _FileError(TypeError):
    pass


def _are_atoms(values: Iterable[Any]) -> bool:
    """Whether all values are numbers, strings, paths, or tuples of such."""
    # Each round looks into the tuples of the round before.
    while not (kinds := {*map(type, values := [*values])}) <= _ATOMS:
        if not kinds <= {*_ATOMS, tuple}:
            return False
        values = itertools.chain.from_iterable(x for x in values if type(x) is tuple)
    return True


def _chooses_state(x: Any) -> bool:
    """Whether an object's class chooses the state of a copy itself. It may leave out threads and files."""
    names = ("__deepcopy__", "__getstate__", "__reduce__", "__reduce_ex__")
    return any(getattr(type(x), n, None) is not getattr(object, n, None) for n in names)
