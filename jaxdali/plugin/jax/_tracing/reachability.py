"""What Python state a function can reach: through its names, and through what these refer to."""

from __future__ import annotations

import builtins
import collections
import contextlib
import dataclasses
import dis
import functools
import inspect
import io
import itertools
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

MAX_BYTES = 1 << 30  # of one array
MAX_OBJECTS = 100_000  # that are saved and put back


@dataclasses.dataclass
class Reach:
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
        return [x for x in self.found if isinstance(x, types.FunctionType) and is_users(x)]


def reach_of(function: Any) -> Reach:
    names: set[str] = set()
    while True:  # a method found by a name brings names of its own
        found = list(itertools.islice(walk([function], functools.partial(_named_children, names=names)), MAX_OBJECTS))
        reach = Reach(names, found, len(found) < MAX_OBJECTS)
        more = {n for f in reach.functions for n in _names_in(f)} - names
        if not more:
            return reach
        names |= more


LIBRARIES = ("jax", "jaxlib", "numpy", "builtins", "optax", "logging")  # a Logger caches its levels
# What acts on the world outside of the process or of Python, or keeps state where nothing can be put back.
_OUTSIDE = frozenset(
    "_contextvars _ctypes _io _multiprocessing _posixsubprocess _socket _sqlite3 _thread ctypes http io mmap multiprocessing nt os pathlib "
    "posix select shelve shutil smtplib socket sqlite3 ssl subprocess tempfile urllib".split()
)
_PLAIN = frozenset({int, float, bool, complex, str, bytes, types.NoneType})


def _root(module: Any) -> str:
    """The package of a module's name."""
    return module.partition(".")[0] if isinstance(module, str) else ""


def is_users(f: Any) -> bool:
    return _root(getattr(f, "__module__", None)) not in (*LIBRARIES, "flax")


def _is_users_code(module: str) -> bool:
    return _root(module) not in (*LIBRARIES, "flax") and _root(module) not in sys.stdlib_module_names


def _names_in(f: types.FunctionType) -> set[str]:
    """The globals and attributes that a user's code names. A library's wrapper of it, which passes for it, has none of
    interest.
    """
    return (
        {n for c in _codes(f.__code__) for n in c.co_names}
        if _is_users_code(f.__globals__.get("__name__", ""))
        else set()
    )


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for c in code.co_consts:
        if isinstance(c, types.CodeType):
            yield from _codes(c)


def variables(f: types.FunctionType) -> list[tuple[tuple[str, Any, Any], Any]]:
    """The variables outside of a function that it names: ((kind, where, name), value)."""
    found: list[tuple[tuple[str, Any, Any], Any]] = []
    for cell in f.__closure__ or ():
        with contextlib.suppress(ValueError):  # still empty
            found.append((("cell", cell, None), cell.cell_contents))
    found += [(("global", f.__globals__, n), v) for n, v in sorted(_those(f.__globals__, _names_in(f)).items())]
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
        if not is_users(x):
            return []
        unseen = [getattr(builtins, n) for n in _names_in(x).intersection(_UNSEEN) if n not in x.__globals__]
        return [v for _, v in variables(x)] + _imported(x) + unseen + list(vars(x).values())
    if isinstance(x, functools.partial):
        return [x.func, *x.args, *x.keywords.values()]
    if isinstance(x, types.MethodType):
        return [x.__func__, x.__self__]
    if isinstance(x, property):
        return [x.fget, x.fset]
    if isinstance(x, (staticmethod, classmethod)):
        return [x.__func__]
    if isinstance(x, types.ModuleType):
        return list(named(x, names).values()) if _root(x.__name__) in _OUTSIDE or _is_users_code(x.__name__) else []
    if isinstance(x, type):
        if not _is_users_code(x.__module__):
            return []
        implied = [v for n, v in vars(x).items() if n in names or (n[:2] == "__" and isinstance(v, types.FunctionType))]
        return implied + [b for b in x.__bases__ if b is not object]
    children = _items(x)
    if users_object(x):
        children = [*children, *(v for n, v in attributes(x).items() if n in names), type(x)]
    if _own(x, "__wrapped__") is not None:
        children = [*children, x.__wrapped__]
    return children


def out_of_reach(reach: Reach) -> str:
    """Describes an object that a function can reach and that can't be put back as it was; "" if there is none."""
    if not reach.complete:
        return f"more than {MAX_OBJECTS} objects"
    for x in reach.found:
        if isinstance(x, types.GeneratorType) or (isinstance(x, Iterator) and not users_object(x)):
            return f"the iterator {x!r:.60}"
        if isinstance(x, np.ndarray) and x.flags.writeable and x.nbytes > MAX_BYTES:
            return f"an array of {x.nbytes} bytes"
        if _is_opaque(x):
            return f"{x!r:.60}"
    return ""


def _is_opaque(x: Any) -> bool:
    """Whether an object has, or its calls change, state that is not in Python's containers and attributes."""
    kind = type(x)
    # What is printed twice, and locks, which are released again.
    if x is sys.stdout or x is sys.stderr or hasattr(kind, "acquire"):
        return False
    if isinstance(x, io.IOBase):
        return True
    if inspect.isroutine(x) or isinstance(x, type):
        root = _root(getattr(x, "__module__", None))
        return root in _OUTSIDE or (root == "builtins" and getattr(x, "__name__", "") in _UNSEEN)
    root = _root(kind.__module__)
    if root in _OUTSIDE:
        return True
    if (
        root in LIBRARIES
        or kind.__hash__ not in (None, object.__hash__)
        or isinstance(x, (types.ModuleType, functools.partial))
    ):
        # Another framework's arrays: what is hashed is their identity.
        return hasattr(kind, "__dlpack__") and root not in LIBRARIES
    return not (users_object(x) or isinstance(x, _SAVED) or kind is object or is_cache(x) or hasattr(kind, "__get__"))


def users_object(x: Any) -> bool:
    """Whether `x` is an object whose attributes are saved. Flax's are, as tracing may leave an nnx.Module half changed."""
    if isinstance(x, (type, types.ModuleType, types.FunctionType, types.MethodType)):
        return False
    return (has_dict(x) or bool(slots(x))) and _root(type(x).__module__) not in LIBRARIES


_MISSING = object()


def has_dict(x: Any) -> bool:
    return isinstance(_own(x, "__dict__"), dict)  # not one that stands for another object, as that of list[int] does


def _own(x: Any, name: str, missing: Any = None) -> Any:
    """An attribute that no ``__getattr__`` makes up, or `missing`: proxies for what is not there now (Flask's request)
    have none.
    """
    try:
        return object.__getattribute__(x, name)
    except Exception:
        return missing


def slots(x: Any) -> list[str]:
    """The slots of an object of a Python class."""
    listed = [vars(c).get("__slots__", ()) for c in type(x).__mro__]
    names = [n for each in listed for n in ((each,) if isinstance(each, str) else each)]
    return [n for n in names if n not in ("__dict__", "__weakref__")]


def attributes(x: Any) -> dict[str, Any]:
    return {
        **(vars(x) if has_dict(x) else {}),
        **{n: v for n in slots(x) if (v := _own(x, n, _MISSING)) is not _MISSING},
    }


def named(x: Any, names: set[str]) -> dict[str, Any]:
    """Those attributes of a class or module that a function names."""
    return _those(vars(x), names)


def _those(of: Any, names: set[str]) -> dict[str, Any]:
    """The entries of a namespace with these names. Each is looked up once, since other threads may add and remove some
    meanwhile.
    """
    return {n: v for n in names if (v := of.get(n, _MISSING)) is not _MISSING}


def is_cache(x: Any) -> bool:
    return hasattr(type(x), "cache_clear") and hasattr(type(x), "cache_info") and is_users(x)


_SAVED = (list, tuple, dict, set, frozenset, collections.deque, bytearray, np.ndarray, types.MappingProxyType, slice)


def _items(x: Any) -> Any:
    """The elements of a container: a copy, as other threads may change it meanwhile."""
    if isinstance(x, (dict, types.MappingProxyType)):
        return list(x.values())
    if isinstance(x, (list, tuple, set, frozenset, collections.deque)):
        return list(x)
    return x.ravel() if isinstance(x, np.ndarray) and x.dtype == object else ()


def children(x: Any) -> Any:
    """What is in containers, users' objects and classes."""
    if users_object(x):
        return (*_items(x), *attributes(x).values(), type(x))
    return list(vars(x).values()) if isinstance(x, type) and is_users(x) else _items(x)


def walk(roots: list[Any], children: Callable[[Any], Any]) -> Iterator[Any]:
    """The roots and everything below them, each once, plain data apart."""
    todo, seen = list(roots), {}
    while todo:
        x = todo.pop()
        if type(x) in _PLAIN or id(x) in seen:
            continue
        seen[id(x)] = x  # kept, so that its id stays its own
        yield x
        todo += [c for c in children(x) if type(c) not in _PLAIN]
