"""Tracebacks as users see them: without the frames inside this package, unless ``JAXDALI_TRACEBACK=full`` is set."""

from __future__ import annotations

import functools
import inspect
import os
import sys
import types
from collections.abc import Callable
from typing import Any, TypeVar

from .errors import in_package

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T", bound=type)

_PLAIN = ("__getattr__", "__new__", "__init_subclass__", "__class_getitem__", "__del__")  # methods that are not wrapped
_VARIABLE = "JAXDALI_TRACEBACK"
_PYTHON = os.path.dirname(os.path.abspath(os.__file__)) + os.sep  # the standard library
_INSTALLED = os.path.join(_PYTHON, "site-packages") + os.sep


def is_ours(frame: types.FrameType) -> bool:
    """Whether a frame runs code of this package or of autograph, which rewrites `if`. Code that is in no file, such as
    a dataclass's `__init__`, or a function that cloudpickle sent to another process, is told by its module.
    """
    file, package = frame.f_code.co_filename, frame.f_globals.get("__name__", "").partition(".")[0]
    return package == "malt" or (file.startswith("<") and package == __name__.partition(".")[0]) or in_package(file)


def boundary(f: F) -> F:
    """Decorator of a public function: exceptions that it raises have no frames inside this package.

    It has no effect on calls from inside this package, which may use the traceback. If nothing is raised, it costs one
    more call.
    """

    @functools.wraps(f)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        try:
            return f(*args, **kwargs)
        except Exception as e:
            shorten(e)
            raise

    return wrapped  # pyright: ignore[reportReturnType]


def boundaries(cls: T) -> T:
    """Decorator of a public class: applies `boundary` to its public methods, and to those that implement Python's
    operators.
    """
    for name, x in list(vars(cls).items()):
        is_public = not name.startswith("_") or (name.startswith("__") and name not in _PLAIN)
        if is_public and inspect.isfunction(x):
            setattr(cls, name, boundary(x))
        elif is_public and isinstance(x, staticmethod):
            setattr(cls, name, staticmethod(boundary(x.__func__)))
    return cls


def shorten(e: BaseException):
    """Removes the frames inside this package from the traceback of an exception, and of the exceptions that caused it.

    Call it in the function that users call. It has no effect if this package is the caller.
    """
    if os.environ.get(_VARIABLE) == "full":
        return
    frame = sys._getframe(1).f_back  # the caller of the function that users call
    while frame is not None:
        if in_package(frame.f_code.co_filename):
            return
        frame = frame.f_back
    pending, visited = [e], set[int]()
    while pending:
        x = pending.pop()
        if id(x) in visited:
            continue
        visited.add(id(x))
        x.__traceback__ = _without_package(x.__traceback__)
        if x.__suppress_context__ and x.__context__ is not x.__cause__:
            x.__context__ = None  # it is never shown, and its text may contain credentials
        pending += [
            y for y in (x.__cause__, x.__context__, *getattr(x, "exceptions", ())) if isinstance(y, BaseException)
        ]


def _without_package(tb: types.TracebackType | None) -> types.TracebackType | None:
    """A traceback without the frames of this package, and without those of Python's library that they called."""
    users: list[types.TracebackType] = []
    is_inside = False
    while tb is not None:
        # A frame of Python's library belongs to its caller: `is_inside` stays as it is.
        file = tb.tb_frame.f_code.co_filename
        if not file.startswith((_PYTHON, "<frozen ")) or file.startswith(_INSTALLED):
            is_inside = is_ours(tb.tb_frame)
        if not is_inside:
            users.append(tb)
        tb = tb.tb_next
    result = None
    for x in reversed(users):
        result = types.TracebackType(result, x.tb_frame, x.tb_lasti, x.tb_lineno)
    return result
