"""`pickle_by_value`, with which programs mark functions that DALI sends to other processes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any, TypeVar

from ._core import names as _names

F = TypeVar("F", bound=Callable[..., Any])


def pickle_by_value(fun: F) -> F:
    """Marks a source that is pickled as a whole, and not by its name.

    Sources run in threads, which take any function without a pickle: it is returned as it is.

    Args:
      fun: a function, for `external_source` with ``parallel=True``.

    Raises:
      TypeError: it is not a function.

    Example:
      >>> @pickle_by_value
      ... def load(info):
      ...     return numpy.load(paths[info.idx_in_epoch])
    """
    if not inspect.isfunction(fun):
        raise TypeError(f"pickle_by_value: only functions can be marked, got {type(fun).__name__}")
    return fun  # pyright: ignore[reportReturnType]


if not _TYPE_CHECKING:
    __all__, __dir__, __getattr__ = _names.index(__name__, globals(), "pickle_by_value")
