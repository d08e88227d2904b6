"""Whether a user's function can be traced into a program: tried, with the Python state it can reach put back afterwards.

Tracing runs a function once and then never again, so what it reads from Python (`np.random`, a counter, a key it splits) would be
frozen silently. A function is therefore traced twice; only one that gives the same computation both times is traced into a program.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import hashlib
import inspect
import random
import threading
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

MAX_DEPTH = 8  # of containers and objects that are saved and put back
MAX_ITEMS = 10_000  # in one container
MAX_OBJECTS = 100_000  # in all
MAX_BYTES = 1 << 24  # of one array


@dataclasses.dataclass(frozen=True)
class Trace:
    """A function as a computation.

    Attributes:
      jaxpr: the computation.
      fingerprint: of its text and constants; equal for equal computations.
    """

    jaxpr: Any
    fingerprint: str


class NotFaithful(Exception):
    """A function can't be traced without changing what it does; the text says why."""


def trace(function: Callable[..., Any], arguments: Sequence[jax.ShapeDtypeStruct], flatten: Callable[[Any], Any]) -> Trace:
    """Traces a function, twice.

    Args:
      arguments: shapes and dtypes of what it is called with.
      flatten: checks what the function returns and gives it as a tuple of arrays.

    Raises:
      NotFaithful: tracing raises, the two traces differ, or the function draws from an iterator that can't be put back.
    """
    if found := _iterator(function):
        raise NotFaithful(f"it can reach {found}, whose state can't be put back after a trial")
    with _state_kept(function) as changed:
        first, second = _once(function, arguments, flatten), _once(function, arguments, flatten)
    if changed:
        raise NotFaithful(f"it changes Python state: {', '.join(sorted(set(changed)))}")
    if first.fingerprint != second.fingerprint:
        raise NotFaithful("two traces of it differ: it depends on something outside of it that changes")
    return first


def trace_again(function: Callable[..., Any], arguments: Sequence[jax.ShapeDtypeStruct], flatten: Callable[[Any], Any]) -> Trace:
    """Traces a function once, for comparing it with another that was traced already. Raises NotFaithful."""
    with _state_kept(function):
        return _once(function, arguments, flatten)


def _once(function, arguments, flatten) -> Trace:
    def fresh(*tracers):  # JAX caches traces by function
        with _no_text({type(t) for t in tracers}):
            return flatten(function(*tracers))

    try:
        jaxpr = jax.make_jaxpr(fresh)(*arguments)
    except NotFaithful:
        raise
    except Exception as e:
        raise NotFaithful(f"tracing it raises {type(e).__name__}: {str(e).splitlines()[0] if str(e) else ''}") from e
    digest = hashlib.sha256(str(jaxpr.jaxpr).encode())
    for c in jaxpr.consts:
        try:
            a = np.asarray(jax.random.key_data(c) if _is_key(c) else c)
        except Exception as e:  # a tracer that leaked from the first trace
            raise NotFaithful("it keeps values of one call for the next") from e
        digest.update(f"{a.dtype}{a.shape}".encode() + a.tobytes())
    return Trace(jaxpr, digest.hexdigest())


def _is_key(x: Any) -> bool:
    return isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


# --- state that a function can reach --------------------------------------------------------------------------------


def _functions(function: Any) -> Iterator[types.FunctionType]:
    """A function and those it wraps or holds: through decorators, partials, methods and closures."""
    todo, seen = [function], set()
    while todo:
        f = todo.pop()
        if id(f) in seen:
            continue
        seen.add(id(f))
        if isinstance(f, functools.partial):
            todo += [f.func, *f.args, *f.keywords.values()]
        elif isinstance(f, types.MethodType):
            todo.append(f.__func__)
        elif isinstance(f, types.FunctionType):
            yield f
            todo += [v for _, v in _reach(f) if callable(v) and _is_users(v)]
        elif hasattr(f, "__wrapped__"):
            todo.append(f.__wrapped__)
        elif isinstance(method := vars(type(f)).get("__call__"), types.FunctionType):
            todo.append(method)


_LIBRARIES = ("jax", "jaxlib", "numpy", "builtins", "optax", "logging")  # a Logger caches its levels
_PLAIN = frozenset({int, float, bool, complex, str, bytes, types.NoneType})


def _is_users(f: Any) -> bool:
    module = getattr(f, "__module__", None) or ""
    return module.partition(".")[0] not in (*_LIBRARIES, "flax")


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for c in code.co_consts:
        if isinstance(c, types.CodeType):
            yield from _codes(c)


def _reach(f: types.FunctionType) -> list[tuple[tuple[str, Any, Any], Any]]:
    """The variables outside of a function that it names: ((kind, where, name), value)."""
    found: list[tuple[tuple[str, Any, Any], Any]] = []
    for cell in f.__closure__ or ():
        with contextlib.suppress(ValueError):  # still empty
            found.append((("cell", cell, None), cell.cell_contents))
    names = {n for c in _codes(f.__code__) for n in c.co_names}
    found += [(("global", f.__globals__, n), f.__globals__[n]) for n in sorted(names & f.__globals__.keys())]
    found += [(("item", f.__defaults__, i), v) for i, v in enumerate(f.__defaults__ or ())]
    found += [(("item", f.__kwdefaults__, k), v) for k, v in (f.__kwdefaults__ or {}).items()]
    return found


def _roots(function: Any) -> list[Any]:
    """Objects whose content may change: what functions name, and the `self` of methods and callables."""
    roots = [v for f in _functions(function) for _, v in _reach(f)]
    f = function
    while isinstance(f, functools.partial) or hasattr(f, "__wrapped__"):
        if isinstance(f, functools.partial):
            roots += [*f.args, *f.keywords.values()]
            f = f.func
        else:
            f = f.__wrapped__
    roots.append(f.__self__ if isinstance(f, types.MethodType) else f)
    return roots


def _iterator(function: Any) -> str:
    """Describes an iterator that the function can reach and that can't be copied; "" if there is none."""
    for value in _walk(_roots(function)):
        if isinstance(value, types.GeneratorType) or (isinstance(value, Iterator) and not _users_object(value)):
            return f"the iterator {value!r:.60}"
    return ""


def _users_object(x: Any) -> bool:
    """Whether `x` is an object whose attributes are saved. Flax's are, as tracing may leave an nnx.Module half changed."""
    if isinstance(x, (type, types.ModuleType, types.FunctionType, types.MethodType)):
        return False
    return (_has_dict(x) or bool(_slots(x))) and type(x).__module__.partition(".")[0] not in _LIBRARIES


def _has_dict(x: Any) -> bool:
    return isinstance(getattr(x, "__dict__", None), dict)  # not one that stands for another object, as that of list[int] does


def _slots(x: Any) -> list[str]:
    """The slots of an object of a Python class."""
    listed = [vars(c).get("__slots__", ()) for c in type(x).__mro__]
    names = [n for each in listed for n in ((each,) if isinstance(each, str) else each)]
    return [n for n in names if n not in ("__dict__", "__weakref__")]


def _attributes(x: Any) -> dict[str, Any]:
    return {**(vars(x) if _has_dict(x) else {}), **{n: getattr(x, n) for n in _slots(x) if hasattr(x, n)}}


def _put_back_attributes(x: Any, content: dict[str, Any]):
    slots = _slots(x)
    for n in slots:
        if n in content and getattr(x, n, None) is not content[n]:
            object.__setattr__(x, n, content[n])
        elif n not in content and hasattr(x, n):
            object.__delattr__(x, n)
    if _has_dict(x):
        _refill(vars(x), {k: v for k, v in content.items() if k not in slots})


def _named(x: Any, names: set[str]) -> dict[str, Any]:
    """Those attributes of a class or module that a function names."""
    return {n: vars(x)[n] for n in names & vars(x).keys()}


def _put_back_named(x: Any, names: set[str], content: dict[str, Any]):
    now = _named(x, names)
    for n in now.keys() - content.keys():
        delattr(x, n)
    for n, v in content.items():
        if n not in now or now[n] is not v:
            setattr(x, n, v)


def _is_cache(x: Any) -> bool:
    return hasattr(type(x), "cache_clear") and hasattr(type(x), "cache_info") and _is_users(x)


def _walk(roots: list[Any]) -> Iterator[Any]:
    """Everything in containers and users' objects, to a depth."""
    todo, seen = [(r, 0) for r in roots], set()
    while todo and len(seen) < MAX_OBJECTS:
        x, depth = todo.pop()
        if type(x) in _PLAIN or id(x) in seen:
            continue
        seen.add(id(x))
        yield x
        if depth == MAX_DEPTH:
            continue
        children: Any = ()
        if isinstance(x, dict) and len(x) <= MAX_ITEMS:
            children = x.values()
        elif isinstance(x, (list, tuple, set, collections.deque)) and len(x) <= MAX_ITEMS:
            children = x
        elif _users_object(x):
            children = (*_attributes(x).values(), type(x))
        elif isinstance(x, type) and _is_users(x):
            children = vars(x).values()
        todo += [(c, depth + 1) for c in children]


_trying = threading.local()
_text_lock = threading.RLock()


@contextlib.contextmanager
def _no_text(classes: set[type]):
    """While active, a tracer that this thread formats as text raises: the text would be frozen, and is not that of the values."""

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


@contextlib.contextmanager
def _state_kept(function: Any):
    """Puts back, in the end, all Python state that a call of the function may have changed, as far as it can be reached.

    Yields a list, which then names what has changed.
    """
    kept: list[tuple[str, Callable[[], Any], Callable[[], Any]]] = []  # name, snapshot now, put back

    def keep(name: str, snapshot: Callable[[], Any], put_back: Callable[[Any], Any]):
        before = snapshot()
        kept.append((name, lambda: _same(before, snapshot()), lambda: put_back(before)))

    keep("numpy.random", np.random.get_state, np.random.set_state)
    keep("random", random.getstate, random.setstate)
    functions = list(_functions(function))
    names = {n for f in functions for c in _codes(f.__code__) for n in c.co_names}
    for f in functions:
        keep(f"an attribute of {f.__name__}", lambda f=f: dict(vars(f)), functools.partial(_refill, vars(f)))
        for (kind, where, name), _ in _reach(f):
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
    for x in _walk(_roots(function)):
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
        elif isinstance(x, types.ModuleType) or (isinstance(x, type) and _is_users(x)):
            if x.__name__.partition(".")[0] not in _LIBRARIES:
                keep(f"{what} {x.__name__}", lambda x=x: _named(x, names), functools.partial(_put_back_named, x, names))
        elif _is_cache(x):
            kept.append((what, lambda: True, functools.partial(_clear_cache, x, _misses(x))))
        elif _users_object(x):
            keep(what, lambda x=x: _attributes(x), functools.partial(_put_back_attributes, x))
    changed: list[str] = []
    try:
        yield changed
    finally:
        changed += [name for name, same, _ in kept if not same()]
        for _, _, put_back in reversed(kept):
            put_back()


def _misses(cache: Any) -> int:
    return cache.cache_info().misses


def _clear_cache(cache: Any, misses: int):
    """Empties a `functools.cache` that the trial has written to: tracers may be in it. What it held is computed again."""
    if _misses(cache) > misses:
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


def describe(function: Any) -> str:
    """A function's name and place, for messages."""
    inner = inspect.unwrap(function) if callable(function) else function
    code = getattr(inner, "__code__", None)
    return getattr(inner, "__name__", repr(function)) + (f" ({code.co_filename}:{code.co_firstlineno})" if code else "")
