"""Puts the state that a function can reach back to what it was."""

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
    is_cache,
    is_users,
    named,
    slots,
    users_object,
    variables,
    walk,
)


class NotFaithful(Exception):
    """A function can't be traced without changing what it does; the text says why."""


_trying = threading.local()
_text_lock = threading.RLock()  # guards the methods of tracers that `no_text` replaces


@contextlib.contextmanager
def no_text(classes: set[type]):
    """While active, a tracer that this thread formats as text raises: the text would be frozen, and is not that of the
    values.
    """

    def guarded(original):
        def format_(self, *args):
            if getattr(_trying, "active", False):
                raise NotFaithful("it formats a value as text")
            return original(self, *args)

        return format_

    with _text_lock:
        saved = [(c, n, vars(c).get(n)) for c in classes for n in ("__repr__", "__str__", "__format__")]
        for c, n, _ in saved:
            setattr(c, n, guarded(getattr(c, n)))
        _trying.active = True
        try:
            yield
        finally:
            _trying.active = False
            for c, n, original in saved:
                if original is None:
                    delattr(c, n)
                else:
                    setattr(c, n, original)


# Note [Snapshot of Python state]
# Whether a function can be traced is found by calling it with tracers, twice. There is a cheaper contract: functions
# are pure, as under `jax.jit`, two traces must agree, else the function runs eagerly, and nothing is put back. It is
# not enough, because the trial calls count as calls of a function that has state. Without the snapshot these give other
# results than the same calls without a pipeline:
#   * counters in globals, closures, slots and attributes, and objects that count their calls: they start two too high;
#   * `np.random`, `random` and generators of random numbers, although they are seeded: the trials take the first
#     numbers;
#   * keys that are split and stored: a tracer is left in the variable, and the first batch fails;
#   * modules with random state (`flax.nnx`) and caches (`functools.lru_cache`): the counts and tracers of the trials
#     stay.
# New shapes are tried in the middle of an epoch, so more than the first batch would differ. A function that reaches an
# object whose state can't be put back (a file, an iterator) is not tried at all (`out_of_reach`).
# tests/plugin/test_tracing.py has all these cases.
@contextlib.contextmanager
def state_restored(reach: Reach):
    """Puts back, in the end, all Python state that a call of the function may have changed, as far as it can be
    reached.

    Yields a list, which then names what has changed.
    """
    kept: list[tuple[str, Callable[[], bool], Callable[[], Any]]] = []  # name, whether it is as it was, put back

    def keep(name: str, snapshot: Callable[[], Any], put_back: Callable[[Any], Any]):
        before = snapshot()
        kept.append((name, lambda: _same(before, snapshot()), lambda: put_back(before)))

    keep("numpy.random", np.random.get_state, np.random.set_state)
    keep("random", random.getstate, random.setstate)
    names = reach.names
    for f in reach.functions:
        keep(f"an attribute of {f.__name__}", lambda f=f: dict(vars(f)), functools.partial(_refill, vars(f)))
        for (kind, where, name), _ in variables(f):
            if kind == "cell":
                keep(
                    "a variable of a closure",
                    lambda where=where: (where.cell_contents,),
                    lambda v, where=where: setattr(where, "cell_contents", v[0]),
                )
            elif kind == "global":
                keep(
                    f"the global {name}",
                    lambda where=where, name=name: (where.get(name),),
                    lambda v, where=where, name=name: where.__setitem__(name, v[0]),
                )
    for x in itertools.islice(walk(reach.found, children), MAX_OBJECTS):
        what = f"a {type(x).__name__}"
        if isinstance(x, list):
            keep(what, lambda x=x: tuple(x), lambda v, x=x: x.__setitem__(slice(None), v))
        elif isinstance(x, collections.deque):
            keep(what, lambda x=x: tuple(x), functools.partial(_refill_deque, x))
        elif isinstance(x, (dict, set)):
            keep(what, x.copy, functools.partial(_refill, x))
        elif isinstance(x, bytearray):
            keep(what, lambda x=x: bytes(x), lambda v, x=x: x.__setitem__(slice(None), v))
        elif isinstance(x, np.ndarray) and x.flags.writeable and x.nbytes <= MAX_BYTES and x.dtype != object:
            keep(what, x.copy, lambda v, x=x: x.__setitem__(Ellipsis, v))
        elif isinstance(x, np.random.Generator):
            keep(what, lambda x=x: x.bit_generator.state, lambda v, x=x: setattr(x.bit_generator, "state", v))
        elif isinstance(x, np.random.RandomState):
            keep(what, x.get_state, x.set_state)
        elif isinstance(x, random.Random):
            keep(what, x.getstate, x.setstate)
        elif isinstance(x, types.ModuleType) or (isinstance(x, type) and is_users(x)):
            if x.__name__.partition(".")[0] not in LIBRARIES:
                keep(f"{what} {x.__name__}", lambda x=x: named(x, names), functools.partial(_put_back_named, x, names))
        elif is_cache(x):
            before = _misses(x)
            # Tracers may be in it.
            kept.append(("", lambda x=x, before=before: _misses(x) <= before, functools.partial(_clear_cache, x)))
        elif users_object(x):
            keep(what, lambda x=x: attributes(x), functools.partial(_put_back_attributes, x))
    changed: list[str] = []
    try:
        yield changed
    finally:
        touched = [(name, put_back) for name, same, put_back in kept if not same()]
        changed += [name for name, _ in touched if name]
        for _, put_back in reversed(touched):  # nothing else is written: another thread may be at work on it
            put_back()


def _misses(cache: Any) -> int:
    return cache.cache_info().misses


def _clear_cache(cache: Any):
    cache.cache_clear()


def _same(a: Any, b: Any) -> bool:
    """Whether two snapshots are equal: containers by the identity of what is in them, unless that is plain data."""
    if type(a) is not type(b):
        return False
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(map(_same_item, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_same_item(a[k], b[k]) for k in a)
    if isinstance(a, np.ndarray):
        return np.array_equal(a, b)
    return a == b


def _same_item(a: Any, b: Any) -> bool:
    plain = isinstance(a, (bool, int, float, str, bytes, tuple, np.ndarray)) or (
        isinstance(a, dict) and type(a) is type(b) and "bit_generator" in b
    )
    return a is b or (plain and _same(a, b))


def _refill(container: Any, content: Any):
    container.clear()
    container.update(content)


def _refill_deque(container: collections.deque, content: Sequence[Any]):
    container.clear()
    container.extend(content)


def _put_back_attributes(x: Any, content: dict[str, Any]):
    in_slots = slots(x)
    for n in in_slots:
        if n in content and getattr(x, n, None) is not content[n]:
            object.__setattr__(x, n, content[n])
        elif n not in content and hasattr(x, n):
            object.__delattr__(x, n)
    if has_dict(x):
        _refill(vars(x), {k: v for k, v in content.items() if k not in in_slots})


def _put_back_named(x: Any, names: set[str], content: dict[str, Any]):
    now = named(x, names)
    for n in now.keys() - content.keys():
        delattr(x, n)
    for n, v in content.items():
        if n not in now or now[n] is not v:
            setattr(x, n, v)
