"""Saves and restores the Python state that a function can reach."""

from __future__ import annotations

import collections
import contextlib
import functools
import itertools
import random
import threading
import types
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .reachability import (
    LIBRARIES,
    MAX_BYTES,
    MAX_OBJECTS,
    Reach,
    attributes,
    children,
    has_dict,
    has_user_attributes,
    is_cache,
    is_user_code,
    named_attributes,
    slots,
    variables,
    walk,
)


class NotFaithful(Exception):
    """A function can't be traced without changing its results; the message says why."""


_trial = threading.local()  # `active`: whether this thread is in `formatting_forbidden`
_format_lock = threading.RLock()  # held while `formatting_forbidden` replaces methods of tracers


@contextlib.contextmanager
def formatting_forbidden(classes: set[type]):
    """While active, formatting a tracer as text raises an error in this thread. `classes`: of the tracers.

    The text would be frozen in the program, and would not be that of the values.
    """

    def guard(original):
        """Wraps a method that formats an object. Other threads may format tracers."""

        def format_(self, *args):
            if getattr(_trial, "active", False):
                raise NotFaithful("it formats a value as text")
            return original(self, *args)

        return format_

    with _format_lock:
        saved = [
            (cls, method, vars(cls).get(method)) for cls in classes for method in ("__repr__", "__str__", "__format__")
        ]
        for cls, method, _ in saved:
            setattr(cls, method, guard(getattr(cls, method)))
        _trial.active = True
        try:
            yield
        finally:
            _trial.active = False
            for cls, method, original in saved:
                if original is None:
                    delattr(cls, method)
                else:
                    setattr(cls, method, original)


# Note [Snapshot of Python state]
# Two trial calls with tracers find out whether a function can be traced. A simpler contract would be that of `jax.jit`:
# functions are pure, a function whose two traces differ runs eagerly, and nothing is restored. This is not enough,
# because the trial calls change the state of a function that has state. Without the snapshot, these functions would
# give other results than the same calls without a pipeline:
#   * counters in globals, closures, slots and attributes, and objects that count their calls: they start two too high;
#   * `np.random`, `random` and generators of random numbers, although they are seeded: the trials take the first
#     numbers;
#   * keys that are split and stored: a tracer is left in the variable, and the first batch fails;
#   * modules with random state (`flax.nnx`) and caches (`functools.lru_cache`): the counts and tracers of the trials
#     stay.
# New shapes are tried in the middle of an epoch, so more than the first batch would differ. A function that reaches an
# object whose state can't be restored (a file, an iterator) is not tried at all (`unrestorable_state`).
# tests/plugin/test_tracing.py has all these cases.
@contextlib.contextmanager
def state_restored(reach: Reach):
    """Restores, at exit, all reachable Python state that calls of a function have changed.

    Yields a list, to which descriptions of the changed state are added at exit. Arguments like ``x=x`` of the lambdas
    bind the variables of the loops.
    """
    # Of each: a description ("" for a cache), whether the state is unchanged, and a function that restores it.
    snapshots: list[tuple[str, Callable[[], bool], Callable[[], Any]]] = []

    def save(name: str, snapshot: Callable[[], Any], restore: Callable[[Any], Any]):
        """Saves some state: `snapshot` returns a copy of it, and `restore` sets it to such a copy. `name`: for messages."""
        saved = snapshot()
        snapshots.append((name, lambda: _is_same(saved, snapshot()), lambda: restore(saved)))

    save("numpy.random", np.random.get_state, np.random.set_state)
    save("random", random.getstate, random.setstate)
    names = reach.names
    for f in reach.functions:
        save(f"an attribute of {f.__name__}", lambda f=f: dict(vars(f)), functools.partial(_refill, vars(f)))
        for (kind, container, name), _ in variables(f):
            if kind == "cell":
                save(
                    "a variable of a closure",
                    lambda container=container: (container.cell_contents,),
                    lambda v, container=container: setattr(container, "cell_contents", v[0]),
                )
            elif kind == "global":
                save(
                    f"the global {name}",
                    lambda container=container, name=name: (container.get(name),),
                    lambda v, container=container, name=name: container.__setitem__(name, v[0]),
                )
    for x in itertools.islice(walk(reach.objects, children), MAX_OBJECTS):
        description = f"a {type(x).__name__}"
        if isinstance(x, list):
            save(description, lambda x=x: tuple(x), lambda v, x=x: x.__setitem__(slice(None), v))
        elif isinstance(x, collections.deque):
            save(description, lambda x=x: tuple(x), functools.partial(_refill_deque, x))
        elif isinstance(x, (dict, set)):
            save(description, x.copy, functools.partial(_refill, x))
        elif isinstance(x, bytearray):
            save(description, lambda x=x: bytes(x), lambda v, x=x: x.__setitem__(slice(None), v))
        elif isinstance(x, np.ndarray) and x.flags.writeable and x.nbytes <= MAX_BYTES and x.dtype != object:
            save(description, x.copy, lambda v, x=x: x.__setitem__(Ellipsis, v))
        elif isinstance(x, np.random.Generator):
            save(description, lambda x=x: x.bit_generator.state, lambda v, x=x: setattr(x.bit_generator, "state", v))
        elif isinstance(x, np.random.RandomState):
            save(description, x.get_state, x.set_state)
        elif isinstance(x, random.Random):
            save(description, x.getstate, x.setstate)
        elif isinstance(x, types.ModuleType) or (isinstance(x, type) and is_user_code(x)):
            if x.__name__.partition(".")[0] not in LIBRARIES:
                save(
                    f"{description} {x.__name__}",
                    lambda x=x: named_attributes(x, names),
                    functools.partial(_restore_named, x, names),
                )
        elif is_cache(x):
            saved = _misses(x)
            # A cache that was missed may hold tracers. It can't be restored, only cleared, which changes no results.
            snapshots.append(("", lambda x=x, saved=saved: _misses(x) <= saved, functools.partial(_clear_cache, x)))
        elif has_user_attributes(x):
            save(description, lambda x=x: attributes(x), functools.partial(_restore_attributes, x))
    changed: list[str] = []
    try:
        yield changed
    finally:
        changed_states = [(name, restore) for name, is_unchanged, restore in snapshots if not is_unchanged()]
        changed += [name for name, _ in changed_states if name]
        # Unchanged state is not written, as another thread may be changing it.
        for _, restore in reversed(changed_states):
            restore()


def _misses(cache: Any) -> int:
    return cache.cache_info().misses


def _clear_cache(cache: Any):
    cache.cache_clear()


def _is_same(a: Any, b: Any) -> bool:
    """Whether two snapshots are equal. Items of containers are compared by identity, plain data by value."""
    if type(a) is not type(b):
        return False
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(map(_is_same_item, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_is_same_item(a[k], b[k]) for k in a)
    if isinstance(a, np.ndarray):
        return np.array_equal(a, b)
    return a == b


def _is_same_item(a: Any, b: Any) -> bool:
    """Whether two items of containers are the same object, or equal plain data."""
    # The dict with "bit_generator" is the state of one of NumPy's generators.
    plain = isinstance(a, (bool, int, float, str, bytes, tuple, np.ndarray)) or (
        isinstance(a, dict) and type(a) is type(b) and "bit_generator" in b
    )
    return a is b or (plain and _is_same(a, b))


def _refill(container: Any, content: Any):
    container.clear()
    container.update(content)


def _refill_deque(container: collections.deque, content: Sequence[Any]):
    container.clear()
    container.extend(content)


def _restore_attributes(x: Any, content: dict[str, Any]):
    """Sets the attributes in the slots and the `__dict__` of an object to a snapshot of `attributes`."""
    in_slots = slots(x)
    for n in in_slots:
        if n in content and getattr(x, n, None) is not content[n]:
            object.__setattr__(x, n, content[n])
        elif n not in content and hasattr(x, n):
            object.__delattr__(x, n)
    if has_dict(x):
        _refill(vars(x), {k: v for k, v in content.items() if k not in in_slots})


def _restore_named(x: Any, names: set[str], content: dict[str, Any]):
    """Sets the named attributes of a class or module to a snapshot of `named_attributes`."""
    current = named_attributes(x, names)
    for n in current.keys() - content.keys():
        delattr(x, n)
    for n, v in content.items():
        if n not in current or current[n] is not v:
            setattr(x, n, v)
