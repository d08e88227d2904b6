"""`jaxdali.math` for values: operands are batches, tensors, numbers, and everything that `tensor` accepts.

The result of numbers is a tensor.
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


def _with_values(function: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a function of values from a function of `jaxdali.math`."""
    signature = inspect.signature(function)

    @_boundary
    @functools.wraps(function)
    def call_pointwise(*operands: Any, **keywords: Any) -> Any:
        bound = signature.bind(*operands, **keywords)
        result = _pointwise(function.__name__, *bound.args)
        if result is NotImplemented:
            raise TypeError(
                f"{function.__name__}: operands must be batches, tensors or numbers, got {_types_of(bound.args)}"
            )
        return result

    call_pointwise.__module__ = __name__
    return call_pointwise


globals().update({name: _with_values(getattr(_math, name)) for name in _math.__all__})
__all__ = list(_math.__all__)  # pyright: ignore[reportUnsupportedDunderAll]


@_boundary
def __getattr__(name: str) -> Any:
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
