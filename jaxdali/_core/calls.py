"""Calls of public functions, as the user wrote them: what a serialized pipeline consists of."""

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

functions: dict[str, Callable[..., Any]] = {}  # by their public names: all that a file may call
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
    """The call that the nodes made now in this thread belong to: the outermost."""
    return _local.__dict__.get("call")


def current_line() -> str | None:
    """The user's line that nodes made now were made at, when it is not that of this call: while a file is read."""
    return _local.__dict__.get("line")


@contextlib.contextmanager
def made_at(line: str) -> Iterator[None]:
    """While active in this thread, nodes are made as if at a line of the user."""
    _local.line = line
    try:
        yield
    finally:
        _local.line = None


def recorded(name: str, function: Callable[..., Any], inputs: tuple[Any, ...], arguments: Mapping[str, Any]) -> Any:
    """Calls a function; the nodes that it makes remember the call, if no other of these functions made it."""
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
    """What a function returned, one DataNode after the other."""
    if isinstance(result, (list, tuple, dict)):
        for x in result.values() if isinstance(result, dict) else result:
            yield from flat(x)
    elif result is not None:
        yield result


def records(name: str) -> Callable[[F], F]:
    """Makes a function one that files may call, under this name."""

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
