"""Stand-ins for modules that a script needs and that are not installed, and for settings from its command line."""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.abc
import importlib.machinery
import linecache
import os
import pathlib
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

from .._core.errors import in_package
from .._core.names import hint
from ._alias import DALI

# Results of functions with these names, as in a program with a single process and one device.
_ALONE: dict[str, Any] = {
    **dict.fromkeys(("rank", "local_rank", "get_rank", "get_local_rank", "current_device"), 0),
    **dict.fromkeys(("size", "local_size", "world_size", "get_world_size", "device_count"), 1),
    **dict.fromkeys(("is_available", "is_initialized"), False),
}


class StandIn:
    """An object of a module that is not installed. It can be called, subclassed, and used as a decorator.

    Args:
      name: the name of the object, such as ``"tensorflow.constant"``.
    """

    def __init__(self, name: str):
        self.stands_for = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return StandIn(f"{self.stands_for}.{name}")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and not kwargs and isinstance(args[0], (types.FunctionType, type)):
            return args[0]  # used as a decorator
        name = self.stands_for.rpartition(".")[2]
        if name in _ALONE:  # such as `get_rank`: the result in a single process
            return _ALONE[name]
        return StandIn(f"{self.stands_for}()")

    def __mro_entries__(self, bases: Any) -> tuple[type, ...]:
        """A class that derives from a stand-in gets an empty base class of the same name."""
        return (type(self.stands_for.rpartition(".")[2], (_Base,), {}),)

    def __getitem__(self, key: Any) -> Any:
        return StandIn(f"{self.stands_for}[{key!r}]")

    def __iter__(self) -> Iterator[Any]:
        return iter((StandIn(f"{self.stands_for}[0]"),))  # so that what is made from its elements is also a stand-in

    def __len__(self) -> int:
        return 1

    def _combined(self, other: Any = None) -> Any:
        return self

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __floordiv__ = (
        __rfloordiv__
    ) = _combined
    __mod__ = __rmod__ = __pow__ = __rpow__ = __matmul__ = __rmatmul__ = __or__ = __ror__ = __and__ = __rand__ = (
        __neg__
    ) = _combined

    def __bool__(self) -> bool:
        return False

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *exc: object):
        return None

    def __repr__(self) -> str:
        return f"<{self.stands_for}, which is not installed>"


class _Base:
    def __init__(self, *args: Any, **kwargs: Any):
        pass


class _Module(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return StandIn(f"{self.__name__}.{name}")


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds modules that no one else finds: those of the script's project in the folders above it, otherwise a
    stand-in.

    Args:
      script: the script.
      says: called with the name of each module that gets a stand-in.
    """

    def __init__(self, script: pathlib.Path, says: Callable[[str], None]):
        self._folders = [str(folder) for folder in script.parents][:8]
        self._says = says
        self.modules: dict[str, types.ModuleType] = {}

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        """See `importlib.abc.MetaPathFinder`. None: the import fails, as without this finder."""
        first = fullname.partition(".")[0]
        if first in ("nvidia", "jaxdali"):
            return None
        if fullname == first:
            for folder in self._folders:
                spec = importlib.machinery.PathFinder.find_spec(fullname, [folder])
                if spec is not None:
                    return spec
        if not _wanted():
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        self.modules[spec.name] = _Module(spec.name)
        self._says(spec.name)
        return self.modules[spec.name]

    def exec_module(self, module: types.ModuleType):
        pass


def fill_gaps():
    """Replaces DALI's modules that are missing in jaxdali by stand-ins. Reading the script reports them.

    A module without a `hint` exists in jaxdali.
    """
    for name in ("plugin.tf", "plugin.mxnet", "plugin.paddle", "plugin.numba", "plugin_manager"):
        if not hint(name):
            continue
        module = sys.modules[f"{DALI}.{name}"] = sys.modules[f"jaxdali.{name}"] = _Module(f"{DALI}.{name}")
        module.__path__ = []
        # `parent` is "" for a module directly in the package.
        parent, _, last = name.rpartition(".")
        setattr(
            sys.modules.get(f"jaxdali.{parent}") or importlib.import_module(f"jaxdali.{parent}".rstrip(".")),
            last,
            module,
        )


def _wanted() -> bool:
    """Whether the script itself imports the current module. Libraries, and scripts that catch the error, handle missing
    modules.
    """
    frame = sys._getframe(2)  # the caller of `find_spec`, in importlib
    while frame is not None and (
        "importlib" in frame.f_code.co_filename or frame.f_code.co_filename.startswith("<frozen")
    ):
        frame = frame.f_back
    return (
        frame is not None
        and is_users(frame.f_code.co_filename)
        and not _caught(frame.f_code.co_filename, frame.f_lineno)
    )


def is_users(file: str) -> bool:
    """Whether a source file belongs to the script, not to a library or to Python."""
    return (
        not in_package(file)
        and "site-packages" not in file
        and not file.startswith(("<", os.path.dirname(os.__file__)))
    )


def _caught(file: str, line: int) -> bool:
    """Whether the script continues if the import at this line fails."""
    for node in ast.walk(_tree(file)):
        if isinstance(node, ast.Try) and node.body[0].lineno <= line <= (node.body[-1].end_lineno or 0):
            for handler in node.handlers:
                names = "" if handler.type is None else ast.unparse(handler.type)
                raises = any(isinstance(x, ast.Raise) for statement in handler.body for x in ast.walk(statement))
                if not raises and (
                    not names or any(word in names for word in ("ImportError", "ModuleNotFoundError", "Exception"))
                ):
                    return True
    return False


@functools.cache
def _tree(file: str) -> ast.AST:
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return ast.Module([], [])


def stand_in_among(values: Any) -> str:
    """The name of the first stand-in among values, or in collections among them; "" if there is none."""
    pending, num_visited = [values], 0
    while pending and num_visited < 2000:  # values may be large, or contain themselves
        x = pending.pop()
        num_visited += 1
        if isinstance(x, StandIn):
            return x.stands_for
        if isinstance(x, dict):
            pending += list(x.values())
        elif isinstance(x, (list, tuple)):
            pending += list(x)
    return ""
