"""`autoserialize`, with which model repositories of Triton's DALI backend mark the definition to serialize."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any, TypeVar

from .._core import names as _names

F = TypeVar("F", bound=Callable[..., Any])


def autoserialize(dali_pipeline: F) -> F:
    """Marks a definition as the one of its file that a server takes: a decorator above `pipeline_def`.

    No server takes it here: the function is returned as it is, to be called, run and serialized (`Pipeline.serialize`)
    as any other.

    Args:
      dali_pipeline: a function that is decorated with `pipeline_def`.

    Raises:
      TypeError: `dali_pipeline` is not such a function.
    """
    if not getattr(dali_pipeline, "_is_pipeline_def", False):
        raise TypeError(f"autoserialize: only a function decorated with @pipeline_def, got {dali_pipeline!r}")
    dali_pipeline._is_autoserialize = True  # pyright: ignore[reportFunctionMemberAccess]
    return dali_pipeline


if not _TYPE_CHECKING:
    __all__, __dir__, __getattr__ = _names.index(__name__, globals(), "autoserialize")
