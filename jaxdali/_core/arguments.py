"""Numeric arguments of an operator call, static or per sample."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from .building import is_node
from .context import HostContext
from .graph import DataNode
from .values import Value


@dataclasses.dataclass(frozen=True)
class Arguments:
    """Numeric arguments of one operator call, each a static value or a per-sample argument input.

    Fields of an `Operator` must be hashable and the same for all samples; a DataNode among the arguments becomes an
    additional input. This object, itself such a field, remembers which is which.

    Attributes:
      static: (name, value) pairs; numbers, or tuples of numbers.
      inputs: names of those that come as inputs, in the order they were appended.
      first: index of the first of these among the operator's inputs.
    """

    static: tuple[tuple[str, Any], ...]
    inputs: tuple[str, ...]
    first: int

    @staticmethod
    def split(operator: str, first: int, **arguments: Any) -> tuple[Arguments, tuple[DataNode, ...]]:
        """Splits keyword arguments (None: absent) into static ones and argument inputs.

        A list or tuple that contains DataNodes becomes one input, stacked.
        """
        static, names, nodes = [], [], []
        for name, x in arguments.items():
            if x is None:
                continue
            if isinstance(x, (list, tuple)) and any(is_node(e) for e in x):
                from ..fn._tensor.constant import stack_nodes

                x = stack_nodes(x)
            if is_node(x):
                names.append(name)
                nodes.append(x)
            else:
                static.append((name, _static(operator, name, x)))
        return Arguments(tuple(static), tuple(names), first), tuple(nodes)

    def __contains__(self, name: str) -> bool:
        return name in self.inputs or any(n == name for n, _ in self.static)

    def is_static(self, name: str) -> bool:
        return name not in self.inputs

    def get(self, name: str, default: Any = None) -> Any:
        """The static value of an argument."""
        assert name not in self.inputs, name
        return next((v for n, v in self.static if n == name), default)

    def values(
        self, ctx: HostContext, values: Sequence[Value], name: str, default: Any = None, width: int | None = None
    ) -> np.ndarray | None:
        """Per-sample values ``[N]`` (width None) or ``[N, width]`` as float64 in the host pass; None: absent and no default.

        A scalar is repeated to `width`. Raises ValueError on a wrong number of elements.
        """
        if name in self.inputs:
            a = values[self.first + self.inputs.index(name)].dense(f"argument {name}", ctx.present).astype(np.float64)
            a = a.reshape(len(a), -1)
        else:
            x = self.get(name, default)
            if x is None:
                return None
            a = _repeated(x, ctx.N)
        if width is None:
            if a.shape[1] != 1:
                raise ValueError(f"argument {name} must be one number per sample, got {a.shape[1]}")
            return a[:, 0]
        if a.shape[1] == 1:
            a = np.broadcast_to(a, (len(a), width))
        if a.shape[1] != width:
            raise ValueError(f"argument {name} must have 1 or {width} numbers per sample, got {a.shape[1]}")
        return a


@functools.lru_cache(maxsize=1024)
def _repeated(x: Any, N: int) -> np.ndarray:
    """A static argument for N samples, ``f64[N, numbers]``."""
    a = np.asarray(x, np.float64).reshape(1, -1)
    return np.broadcast_to(a, (N, a.shape[1]))


def _static(operator: str, name: str, x: Any) -> Any:
    if isinstance(x, (bool, int, float)):
        return x
    try:
        a = np.asarray(x)
    except Exception as e:
        raise TypeError(f"{operator}: argument {name} must be a number, a list of numbers or a DataNode, got {type(x).__name__}") from e
    if a.dtype == object or a.dtype.kind in "USV":
        raise TypeError(f"{operator}: argument {name} must be a number, a list of numbers or a DataNode, got {x!r}")
    if a.ndim == 0:
        return a.item()
    return tuple(a.reshape(-1).tolist())
