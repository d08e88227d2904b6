"""Operators one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ._classes import OperatorClass


class Compose:
    """Operators, each called with the outputs of the one before it.

    Values that an operator with ``device="gpu"`` gets from the host are moved there, as in DALI.

    Args:
      op_list: operators of this module, or other functions of DataNodes.

    Raises:
      TypeError: one of them can't be called.

    Example:
      >>> decode_and_resize = ops.Compose([ops.decoders.Image(), ops.Resize(size=(224, 224))])
    """

    def __init__(self, op_list: Sequence[Callable[..., Any]]):
        self._operators = list(op_list)
        for op in self._operators:
            if not callable(op):
                raise TypeError(f"Compose: operators must be callable, got {type(op).__name__}")

    def __call__(self, *inputs: Any) -> Any:
        """Calls the operators. Returns the outputs of the last one: a single one as it is, several as a tuple."""
        values: Any = inputs
        for op in self._operators:
            if isinstance(op, OperatorClass) and op.device == "gpu":
                values = tuple(x.gpu() for x in values)
            values = op(*values)
            values = tuple(values) if isinstance(values, (tuple, list)) else (values,)
        return values[0] if len(values) == 1 else values
