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
    """One call of a recorded function.

    Attributes:
      function: public name of the function, a key of `functions`.
      inputs: the values that were passed by position.
      arguments: the values that were passed by name.
      outputs: the DataNodes that it returned, one after the other.
      number: its place in the order of all calls.
    """

    function: str
    inputs: tuple[Any, ...]
    arguments: Mapping[str, Any]
    outputs: list[Any] = dataclasses.field(default_factory=list)
    number: int = dataclasses.field(default_factory=_numbers.__next__)


def current_call() -> Call | None:
    """The outermost recorded call that runs in this thread. New nodes belong to it. None: there is none."""
    return _local.__dict__.get("call")


def current_line() -> str | None:
    """The line that `override_line` has set for new nodes; None: they get the line of the current call."""
    return _local.__dict__.get("line")


@contextlib.contextmanager
def override_line(line: str) -> Iterator[None]:
    """Gives new nodes of this thread this line, ``"file:line"``: nodes of a file get the lines that the file stores."""
    _local.line = line
    try:
        yield
    finally:
        _local.line = None


def recorded(name: str, function: Callable[..., Any], inputs: tuple[Any, ...], arguments: Mapping[str, Any]) -> Any:
    """Calls a function and records the call in the nodes that it makes.

    If another recorded function is already running, the nodes belong to that call.
    """
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
        """Registers and returns a function that records its calls, and shortens the tracebacks of its errors."""

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
