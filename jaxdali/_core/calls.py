"""Records calls of public functions as the user wrote them. A serialized pipeline consists of these calls."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from .tracebacks import shorten

F = TypeVar("F", bound=Callable[..., Any])

functions: dict[str, Callable[..., Any]] = {}  # by public name: the only functions that a file may call
_numbers = itertools.count()
_local = threading.local()


@dataclasses.dataclass(eq=False)
class Call:
    """One call.

    Attributes:
      function: public name of the function, a key of `functions`.
      inputs, arguments: what was passed by position, and by name.
      outputs: the DataNodes that it returned, one after the other.
      number: in the order of all calls.
    """

    function: str
    inputs: tuple[Any, ...]
    arguments: Mapping[str, Any]
    outputs: list[Any] = dataclasses.field(default_factory=list)
    number: int = dataclasses.field(default_factory=_numbers.__next__)


def current_call() -> Call | None:
    """The outermost call in this thread, to which new nodes belong."""
    return _local.__dict__.get("call")


def current_line() -> str | None:
    """The user's line for new nodes, if it is not the line of the current call: while a file is read."""
    return _local.__dict__.get("line")


@contextlib.contextmanager
def override_line(line: str) -> Iterator[None]:
    """While active in this thread, new nodes get this line."""
    _local.line = line
    try:
        yield
    finally:
        _local.line = None


def recorded(name: str, function: Callable[..., Any], inputs: tuple[Any, ...], arguments: Mapping[str, Any]) -> Any:
    """Calls a function. The nodes that it makes remember the call, unless another recorded function is already running."""
    if current_call() is not None:
        return function(*inputs, **arguments)
    call = _local.call = Call(name, inputs, arguments)
    try:
        result = function(*inputs, **arguments)
    finally:
        _local.call = None
    call.outputs = list(flat(result))
    return result


def flat(result: Any) -> Iterator[Any]:
    """The DataNodes in the result of a function, one after the other."""
    if isinstance(result, (list, tuple, dict)):
        for x in result.values() if isinstance(result, dict) else result:
            yield from flat(x)
    elif result is not None:
        yield result


def records(name: str) -> Callable[[F], F]:
    """Decorator: allows serialized files to call the function by this name."""

    def decorate(f: F) -> F:
        @functools.wraps(f)
        def function(*inputs: Any, **arguments: Any) -> Any:
            try:
                return recorded(name, f, inputs, arguments)
            except Exception as e:
                shorten(e)
                raise

        functions[name] = function
        return function  # pyright: ignore[reportReturnType]

    return decorate
