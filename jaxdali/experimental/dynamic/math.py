"""`jaxdali.math` for values: operands are batches, tensors, numbers, and what a tensor is made of. Of numbers the
result is a tensor.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from ... import math as _math
from ..._core.tracebacks import boundary as _boundary
from ._values import pointwise as _pointwise
from ._values import types_of as _types_of


def _of_values(function: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(function)

    @_boundary
    @_boundary
    @functools.wraps(function)
    def of_values(*operands: Any, **named: Any) -> Any:
        bound = signature.bind(*operands, **named)
        found = _pointwise(function.__name__, *bound.args)
        if found is NotImplemented:
            raise TypeError(
                f"{function.__name__}: operands must be batches, tensors or numbers, got {_types_of(bound.args)}"
            )
        return found

    of_values.__module__ = __name__
    return of_values


globals().update({name: _of_values(getattr(_math, name)) for name in _math.__all__})
__all__ = list(_math.__all__)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
