"""Finds the Python state that a function can reach: the objects that its code names, and everything below them."""

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

MAX_BYTES = 1 << 30  # largest array that is saved and restored
MAX_OBJECTS = 100_000  # largest number of objects that are saved and restored


@dataclasses.dataclass
class Reach:
    """The names in the code of a function and of all functions that it may call, and the objects with these names.

    Attributes:
      names: of variables, attributes and methods in all that code.
      objects: the objects under these names, without plain data; at most `MAX_OBJECTS`.
      is_complete: whether `objects` has all of them.
    """

    names: set[str]
    objects: list[Any]
    is_complete: bool

    @property
    def functions(self) -> list[types.FunctionType]:
        return [x for x in self.objects if isinstance(x, types.FunctionType) and is_user_code(x)]


def reach_of(function: Any) -> Reach:
    """Finds the names and objects that a function can reach."""
    names: set[str] = set()
    while True:  # until no method that was found by a name has further names
        objects = list(itertools.islice(walk([function], functools.partial(_named_children, names=names)), MAX_OBJECTS))
        reach = Reach(names, objects, len(objects) < MAX_OBJECTS)
        new_names = {n for f in reach.functions for n in _names_in(f)} - names
        if not new_names:
            return reach
        names |= new_names


# Libraries whose objects are not saved. `logging` is among them because a Logger caches its levels.
LIBRARIES = ("jax", "jaxlib", "numpy", "builtins", "optax", "logging")
# Modules that act on the world outside of the process or of Python, or keep state that can't be restored.
_IMPURE_MODULES = frozenset(
    "_contextvars _ctypes _io _multiprocessing _posixsubprocess _socket _sqlite3 _thread ctypes http io mmap multiprocessing nt os pathlib "
    "posix select shelve shutil smtplib socket sqlite3 ssl subprocess tempfile urllib".split()
)
_PLAIN_TYPES = frozenset({int, float, bool, complex, str, bytes, types.NoneType})


def package_of(module: Any) -> str:
    """The top-level package in a module's name."""
    return module.partition(".")[0] if isinstance(module, str) else ""


def is_user_code(f: Any) -> bool:
    """Whether a function or class belongs to the user or a library whose state is followed, judged by its module."""
    return package_of(getattr(f, "__module__", None)) not in (*LIBRARIES, "flax")


def is_user_module(module: str) -> bool:
    return package_of(module) not in (*LIBRARIES, "flax") and package_of(module) not in sys.stdlib_module_names


def _names_in(f: types.FunctionType) -> set[str]:
    """The globals and attributes that a user's code names; none for a library's wrapper of it.

    A wrapper made by `functools.wraps` has the user's module name, but its code and globals are the library's.
    """
    return (
        {n for c in codes_in(f.__code__) for n in c.co_names}
        if is_user_module(f.__globals__.get("__name__", ""))
        else set()
    )


_EXTENDED_ARG, _LOAD_GLOBAL = dis.opmap["EXTENDED_ARG"], dis.opmap["LOAD_GLOBAL"]
_OF_GLOBALS = {
    dis.opmap[name]
    # LOAD_NAME is in the bodies of classes; the last one is new in Python 3.12.
    for name in ("LOAD_GLOBAL", "STORE_GLOBAL", "DELETE_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")
    if name in dis.opmap
}


def _globals_in(f: types.FunctionType) -> set[str]:
    """The globals that a user's code names, without attributes: ``a.mean()`` names no global `mean`."""
    is_library = not is_user_module(f.__globals__.get("__name__", ""))
    return set[str]() if is_library else set[str]().union(*map(_globals_of, codes_in(f.__code__)))


@functools.lru_cache(maxsize=4096)
def _globals_of(code: types.CodeType) -> frozenset[str]:
    """The names of globals in a code object, without those in the functions defined in it."""
    names, higher_bits = set[str](), 0
    # `dis.get_instructions` takes twenty times as long.
    for operation, argument in zip(code.co_code[::2], code.co_code[1::2], strict=True):
        if operation in _OF_GLOBALS:
            number = higher_bits | argument
            names.add(code.co_names[number >> 1 if operation == _LOAD_GLOBAL else number])
        higher_bits = (higher_bits | argument) << 8 if operation == _EXTENDED_ARG else 0
    return frozenset(names)


def codes_in(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yields a code object and those of the functions defined in it."""
    yield code
    for c in code.co_consts:
        if isinstance(c, types.CodeType):
            yield from codes_in(c)


def variables(f: types.FunctionType) -> list[tuple[tuple[str, Any, Any], Any]]:
    """The variables outside of a function that it names: ``((kind, container, name), value)``.

    The kinds are "cell" for a closure, "global", and "item" for a default of an argument.
    """
    result: list[tuple[tuple[str, Any, Any], Any]] = []
    for cell in f.__closure__ or ():
        with contextlib.suppress(ValueError):  # the cell is still empty
            result.append((("cell", cell, None), cell.cell_contents))
    result += [(("global", f.__globals__, n), v) for n, v in sorted(_entries(f.__globals__, _globals_in(f)).items())]
    result += [(("item", f.__defaults__, i), v) for i, v in enumerate(f.__defaults__ or ())]
    result += [(("item", f.__kwdefaults__, k), v) for k, v in (f.__kwdefaults__ or {}).items()]
    return result


def _imported(f: types.FunctionType) -> list[Any]:
    """The modules that a function imports when it runs, if they are loaded already."""
    # Few functions import anything, and `dis` takes long.
    codes = (c for c in codes_in(f.__code__) if dis.opmap["IMPORT_NAME"] in c.co_code[::2])
    imports = (i.argval for c in codes for i in dis.get_instructions(c) if i.opname == "IMPORT_NAME")
    return [sys.modules[n] for n in imports if n in sys.modules]


_IMPURE_BUILTINS = ("exec", "eval", "input", "open")  # built-in functions whose effects no name shows


def _named_children(x: Any, names: set[str]) -> list[Any]:
    """The objects that code with these names can reach directly from an object."""
    if isinstance(x, types.FunctionType):
        if not is_user_code(x):
            return []
        impure = [getattr(builtins, n) for n in _names_in(x).intersection(_IMPURE_BUILTINS) if n not in x.__globals__]
        return [v for _, v in variables(x)] + _imported(x) + impure + list(vars(x).values())
    if isinstance(x, functools.partial):
        return [x.func, *x.args, *x.keywords.values()]
    if isinstance(x, types.MethodType):
        return [x.__func__, x.__self__]
    if isinstance(x, property):
        return [x.fget, x.fset]
    if isinstance(x, (staticmethod, classmethod)):
        return [x.__func__]
    if isinstance(x, types.ModuleType):
        return (
            list(named_attributes(x, names).values())
            if package_of(x.__name__) in _IMPURE_MODULES or is_user_module(x.__name__)
            else []
        )
    if isinstance(x, type):
        if not is_user_module(x.__module__):
            return []
        # Special methods, such as `__call__`, are called without being named.
        attribute_values = [
            v for n, v in vars(x).items() if n in names or (n[:2] == "__" and isinstance(v, types.FunctionType))
        ]
        return attribute_values + [b for b in x.__bases__ if b is not object]
    children = _items(x)
    if has_user_attributes(x):
        children = [*children, *(v for n, v in attributes(x).items() if n in names), type(x)]
    if _static_attribute(x, "__wrapped__") is not None:
        children = [*children, x.__wrapped__]
    return children


def unrestorable_state(reach: Reach) -> str:
    """Describes an object that a function can reach and whose state can't be restored; "" if there is none."""
    if not reach.is_complete:
        return f"more than {MAX_OBJECTS} objects"
    for x in reach.objects:
        if isinstance(x, types.GeneratorType) or (isinstance(x, Iterator) and not has_user_attributes(x)):
            return f"the iterator {x!r:.60}"
        if isinstance(x, np.ndarray) and x.flags.writeable and x.nbytes > MAX_BYTES:
            return f"an array of {x.nbytes} bytes"
        if _has_hidden_state(x):
            return f"{x!r:.60}"
    return ""


def _has_hidden_state(x: Any) -> bool:
    """Whether an object has state outside of Python's containers and attributes, or calling it changes such state."""
    cls = type(x)
    # Exceptions: printing twice does no harm, and locks are released again.
    if x is sys.stdout or x is sys.stderr or hasattr(cls, "acquire"):
        return False
    if isinstance(x, io.IOBase):
        return True
    if inspect.isroutine(x) or isinstance(x, type):
        root = package_of(getattr(x, "__module__", None))
        return root in _IMPURE_MODULES or (root == "builtins" and getattr(x, "__name__", "") in _IMPURE_BUILTINS)
    root = package_of(cls.__module__)
    if root in _IMPURE_MODULES:
        return True
    if (
        root in LIBRARIES
        or cls.__hash__ not in (None, object.__hash__)
        or isinstance(x, (types.ModuleType, functools.partial))
    ):
        # Values that are hashed by content don't change, but other frameworks' arrays are hashed by identity.
        return hasattr(cls, "__dlpack__") and root not in LIBRARIES
    # The state of these is known: attributes, elements, or the entries of a cache, see `state_restored`. A bare `object()`
    # and a descriptor (`__get__`) have none.
    return not (
        has_user_attributes(x) or isinstance(x, _CONTAINERS) or cls is object or is_cache(x) or hasattr(cls, "__get__")
    )


def has_user_attributes(x: Any) -> bool:
    """Whether the attributes of `x` are saved.

    Those of Flax's objects are, as tracing may leave an nnx.Module half changed.
    """
    if isinstance(x, (type, types.ModuleType, types.FunctionType, types.MethodType)):
        return False
    return (has_dict(x) or bool(slots(x))) and package_of(type(x).__module__) not in LIBRARIES


_MISSING = object()


def has_dict(x: Any) -> bool:
    """Whether an object has a `__dict__` of its own; that of `list[int]`, for example, is that of `list`."""
    return isinstance(_static_attribute(x, "__dict__"), dict)


def _static_attribute(x: Any, name: str, missing: Any = None) -> Any:
    """The attribute found without `__getattr__`, or `missing`.

    A proxy such as Flask's `request` may raise any error.
    """
    try:
        return object.__getattribute__(x, name)
    except Exception:
        return missing


def slots(x: Any) -> list[str]:
    """The slots of an object of a Python class."""
    declarations = [vars(c).get("__slots__", ()) for c in type(x).__mro__]
    names = [
        n for declaration in declarations for n in ((declaration,) if isinstance(declaration, str) else declaration)
    ]
    return [n for n in names if n not in ("__dict__", "__weakref__")]


def attributes(x: Any) -> dict[str, Any]:
    """The attributes of an object in its `__dict__` and its slots."""
    return {
        **(vars(x) if has_dict(x) else {}),
        **{n: v for n in slots(x) if (v := _static_attribute(x, n, _MISSING)) is not _MISSING},
    }


def named_attributes(x: Any, names: set[str]) -> dict[str, Any]:
    """The attributes of a class or module that a function names."""
    return _entries(vars(x), names)


def _entries(namespace: Any, names: set[str]) -> dict[str, Any]:
    """The entries of a namespace with these names.

    Each is looked up once, as other threads may change the namespace.
    """
    return {n: v for n in names if (v := namespace.get(n, _MISSING)) is not _MISSING}


def is_cache(x: Any) -> bool:
    """Whether `x` is a function with `functools.lru_cache` in user code."""
    return hasattr(type(x), "cache_clear") and hasattr(type(x), "cache_info") and is_user_code(x)


_CONTAINERS = (
    list,
    tuple,
    dict,
    set,
    frozenset,
    collections.deque,
    bytearray,
    np.ndarray,
    types.MappingProxyType,
    slice,
)


def _items(x: Any) -> Any:
    """The elements of a container, as a copy, since other threads may change it meanwhile."""
    if isinstance(x, (dict, types.MappingProxyType)):
        return list(x.values())
    if isinstance(x, (list, tuple, set, frozenset, collections.deque)):
        return list(x)
    return x.ravel() if isinstance(x, np.ndarray) and x.dtype == object else ()


def children(x: Any) -> Any:
    """The objects directly in a container, a user's object or a user's class."""
    if has_user_attributes(x):
        return (*_items(x), *attributes(x).values(), type(x))
    return list(vars(x).values()) if isinstance(x, type) and is_user_code(x) else _items(x)


def walk(roots: list[Any], children: Callable[[Any], Any]) -> Iterator[Any]:
    """Yields the roots and everything below them, each once, without plain data."""
    todo, visited = list(roots), {}
    while todo:
        x = todo.pop()
        if type(x) in _PLAIN_TYPES or id(x) in visited:
            continue
        visited[id(x)] = x  # a reference, so that no other object gets this id
        yield x
        todo += [c for c in children(x) if type(c) not in _PLAIN_TYPES]
