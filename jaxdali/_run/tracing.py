"""Whether a user's function can be traced into a program: tried, with the Python state it can reach put back afterwards.

Tracing runs a function once and then never again, so what it reads from Python (`np.random`, a counter, a key it splits) would be
frozen silently. A function is therefore traced twice; only one that gives the same computation both times is traced into a program.
One that names what can't be put back afterwards (a file, memory shared with another process) is not tried at all.
"""

from __future__ import annotations

import builtins
import collections
import contextlib
import dataclasses
import dis
import functools
import hashlib
import inspect
import io
import itertools
import random
import sys
import threading
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

MAX_OBJECTS = 100_000  # that are saved and put back
MAX_BYTES = 1 << 30  # of one array
MAX_PROGRAMS = 256  # compiled functions; least recently used ones are dropped beyond this


@dataclasses.dataclass(frozen=True)
class Trace:
    """A function as a computation.

    Attributes:
      jaxpr: the computation.
      fingerprint: of its text and constants; equal for equal computations.
    """

    jaxpr: Any = dataclasses.field(compare=False)
    fingerprint: str


def function_of(jaxpr: Any) -> Callable[..., Any]:
    """A computation as a function."""
    from jax.extend.core import jaxpr_as_fun  # not before one is needed: it comes with Pallas, 50 ms

    return jaxpr_as_fun(jaxpr)


@functools.lru_cache(MAX_PROGRAMS)
def compiled(trace: Trace) -> Callable[..., Any]:
    """The computation as a program. Equal computations share it, whichever function and pipeline they come from."""
    return jax.jit(function_of(trace.jaxpr))


class NotFaithful(Exception):
    """A function can't be traced without changing what it does; the text says why."""


def trace(function: Callable[..., Any], arguments: Sequence[jax.ShapeDtypeStruct], flatten: Callable[[Any], Any]) -> Trace:
    """Traces a function, twice.

    Args:
      arguments: shapes and dtypes of what it is called with.
      flatten: checks what the function returns and gives it as a tuple of arrays.

    Raises:
      NotFaithful: tracing raises, the two traces differ, or the function, which is then not called, names what can't be put back.
    """
    reach = _reach(function)
    if found := _out_of_reach(reach):
        raise NotFaithful(f"it can reach {found}, whose state can't be put back after a trial")
    with _state_kept(reach) as changed:
        first, second = _once(function, arguments, flatten), _once(function, arguments, flatten)
    if changed:
        raise NotFaithful(f"it changes Python state: {', '.join(sorted(set(changed)))}")
    if first.fingerprint != second.fingerprint:
        raise NotFaithful("two traces of it differ: it depends on something outside of it that changes")
    return first


def trace_again(function: Callable[..., Any], arguments: Sequence[jax.ShapeDtypeStruct], flatten: Callable[[Any], Any]) -> Trace:
    """Traces a function once, for comparing it with another that was traced already. Raises NotFaithful."""
    with _state_kept(_reach(function)):
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


@dataclasses.dataclass
class _Reach:
    """What a function's code names, and what the code of the functions it may call does.

    Attributes:
      names: of variables, attributes and methods, in all that code.
      found: the objects under these names, plain data apart; complete: whether that is all of them.
    """

    names: set[str]
    found: list[Any]
    complete: bool

    @property
    def functions(self) -> list[types.FunctionType]:
        return [x for x in self.found if isinstance(x, types.FunctionType) and _is_users(x)]


def _reach(function: Any) -> _Reach:
    names: set[str] = set()
    while True:  # a method found by a name brings names of its own
        found = list(itertools.islice(_walk([function], functools.partial(_named_children, names=names)), MAX_OBJECTS))
        reach = _Reach(names, found, len(found) < MAX_OBJECTS)
        more = {n for f in reach.functions for n in _names_in(f)} - names
        if not more:
            return reach
        names |= more


_LIBRARIES = ("jax", "jaxlib", "numpy", "builtins", "optax", "logging")  # a Logger caches its levels
# What acts on the world outside of the process or of Python, or keeps state where nothing can be put back.
_OUTSIDE = frozenset(
    "_contextvars _ctypes _io _multiprocessing _posixsubprocess _socket _sqlite3 _thread ctypes http io mmap multiprocessing nt os pathlib "
    "posix select shelve shutil smtplib socket sqlite3 ssl subprocess tempfile urllib".split()
)
_PLAIN = frozenset({int, float, bool, complex, str, bytes, types.NoneType})


def _root(module: Any) -> str:
    """The package of a module's name."""
    return module.partition(".")[0] if isinstance(module, str) else ""


def _is_users(f: Any) -> bool:
    return _root(getattr(f, "__module__", None)) not in (*_LIBRARIES, "flax")


def _is_users_code(module: str) -> bool:
    return _root(module) not in (*_LIBRARIES, "flax") and _root(module) not in sys.stdlib_module_names


def _names_in(f: types.FunctionType) -> set[str]:
    """The globals and attributes that a user's code names. A library's wrapper of it, which passes for it, has none of interest."""
    return {n for c in _codes(f.__code__) for n in c.co_names} if _is_users_code(f.__globals__.get("__name__", "")) else set()


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for c in code.co_consts:
        if isinstance(c, types.CodeType):
            yield from _codes(c)


def _variables(f: types.FunctionType) -> list[tuple[tuple[str, Any, Any], Any]]:
    """The variables outside of a function that it names: ((kind, where, name), value)."""
    found: list[tuple[tuple[str, Any, Any], Any]] = []
    for cell in f.__closure__ or ():
        with contextlib.suppress(ValueError):  # still empty
            found.append((("cell", cell, None), cell.cell_contents))
    found += [(("global", f.__globals__, n), f.__globals__[n]) for n in sorted(_names_in(f) & f.__globals__.keys())]
    found += [(("item", f.__defaults__, i), v) for i, v in enumerate(f.__defaults__ or ())]
    found += [(("item", f.__kwdefaults__, k), v) for k, v in (f.__kwdefaults__ or {}).items()]
    return found


def _imported(f: types.FunctionType) -> list[Any]:
    """The modules that a function imports when it runs, as far as they have been."""
    imports = (i.argval for c in _codes(f.__code__) for i in dis.get_instructions(c) if i.opname == "IMPORT_NAME")
    return [sys.modules[n] for n in imports if n in sys.modules]


_UNSEEN = ("exec", "eval", "input", "open")  # built-in functions that do what no name tells


def _named_children(x: Any, names: set[str]) -> list[Any]:
    """What code with these names gets at from an object."""
    if isinstance(x, types.FunctionType):
        if not _is_users(x):
            return []
        unseen = [getattr(builtins, n) for n in _names_in(x).intersection(_UNSEEN) - x.__globals__.keys()]
        return [v for _, v in _variables(x)] + _imported(x) + unseen + list(vars(x).values())
    if isinstance(x, functools.partial):
        return [x.func, *x.args, *x.keywords.values()]
    if isinstance(x, types.MethodType):
        return [x.__func__, x.__self__]
    if isinstance(x, property):
        return [x.fget, x.fset]
    if isinstance(x, (staticmethod, classmethod)):
        return [x.__func__]
    if isinstance(x, types.ModuleType):
        return list(_named(x, names).values()) if _root(x.__name__) in _OUTSIDE or _is_users_code(x.__name__) else []
    if isinstance(x, type):
        if not _is_users_code(x.__module__):
            return []
        implied = [v for n, v in vars(x).items() if n in names or (n[:2] == "__" and isinstance(v, types.FunctionType))]
        return implied + [b for b in x.__bases__ if b is not object]
    children = _items(x)
    if _users_object(x):
        children = [*children, *(v for n, v in _attributes(x).items() if n in names), type(x)]
    if hasattr(x, "__wrapped__"):
        children = [*children, x.__wrapped__]
    return children


def _out_of_reach(reach: _Reach) -> str:
    """Describes an object that a function can reach and that can't be put back as it was; "" if there is none."""
    if not reach.complete:
        return f"more than {MAX_OBJECTS} objects"
    for x in reach.found:
        if isinstance(x, types.GeneratorType) or (isinstance(x, Iterator) and not _users_object(x)):
            return f"the iterator {x!r:.60}"
        if isinstance(x, np.ndarray) and x.flags.writeable and x.nbytes > MAX_BYTES:
            return f"an array of {x.nbytes} bytes"
        if _is_opaque(x):
            return f"{x!r:.60}"
    return ""


def _is_opaque(x: Any) -> bool:
    """Whether an object has, or its calls change, state that is not in Python's containers and attributes."""
    kind = type(x)
    if x is sys.stdout or x is sys.stderr or hasattr(kind, "acquire"):  # what is printed twice, and locks, which are released again
        return False
    if isinstance(x, io.IOBase):
        return True
    if inspect.isroutine(x) or isinstance(x, type):
        root = _root(getattr(x, "__module__", None))
        return root in _OUTSIDE or (root == "builtins" and getattr(x, "__name__", "") in _UNSEEN)
    root = _root(kind.__module__)
    if root in _OUTSIDE:
        return True
    if root in _LIBRARIES or kind.__hash__ not in (None, object.__hash__) or isinstance(x, (types.ModuleType, functools.partial)):
        return hasattr(kind, "__dlpack__") and root not in _LIBRARIES  # another framework's arrays: what is hashed is their identity
    return not (_users_object(x) or isinstance(x, _SAVED) or kind is object or _is_cache(x) or hasattr(kind, "__get__"))


def _users_object(x: Any) -> bool:
    """Whether `x` is an object whose attributes are saved. Flax's are, as tracing may leave an nnx.Module half changed."""
    if isinstance(x, (type, types.ModuleType, types.FunctionType, types.MethodType)):
        return False
    return (_has_dict(x) or bool(_slots(x))) and _root(type(x).__module__) not in _LIBRARIES


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


_SAVED = (list, tuple, dict, set, frozenset, collections.deque, bytearray, np.ndarray, types.MappingProxyType, slice)


def _items(x: Any) -> Any:
    """What is in a container."""
    if isinstance(x, (dict, types.MappingProxyType)):
        return x.values()
    if isinstance(x, (list, tuple, set, frozenset, collections.deque)):
        return x
    return x.ravel() if isinstance(x, np.ndarray) and x.dtype == object else ()


def _children(x: Any) -> Any:
    """What is in containers, users' objects and classes."""
    if _users_object(x):
        return (*_items(x), *_attributes(x).values(), type(x))
    return vars(x).values() if isinstance(x, type) and _is_users(x) else _items(x)


def _walk(roots: list[Any], children: Callable[[Any], Any]) -> Iterator[Any]:
    """The roots and everything below them, each once, plain data apart."""
    todo, seen = list(roots), {}
    while todo:
        x = todo.pop()
        if type(x) in _PLAIN or id(x) in seen:
            continue
        seen[id(x)] = x  # kept, so that its id stays its own
        yield x
        todo += [c for c in children(x) if type(c) not in _PLAIN]


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
def _state_kept(reach: _Reach):
    """Puts back, in the end, all Python state that a call of the function may have changed, as far as it can be reached.

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
        for (kind, where, name), _ in _variables(f):
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
    for x in itertools.islice(_walk(reach.found, _children), MAX_OBJECTS):
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
            before = _misses(x)
            kept.append(("", lambda x=x, before=before: _misses(x) <= before, functools.partial(_clear_cache, x)))  # tracers may be in it
        elif _users_object(x):
            keep(what, lambda x=x: _attributes(x), functools.partial(_put_back_attributes, x))
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


def describe(function: Any) -> str:
    """A function's name and place, for messages."""
    inner = inspect.unwrap(function) if callable(function) else function
    code = getattr(inner, "__code__", None)
    return getattr(inner, "__name__", repr(function)) + (f" ({code.co_filename}:{code.co_firstlineno})" if code else "")
