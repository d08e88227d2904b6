"""Python's operators on `DataNode`: arithmetic, comparisons, subscripts, and moves between devices."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from ..types import DALIDataType
from .kinds import device_named
from .language import language
from .tracebacks import boundaries


def evaluated(function: str, *operands: Any) -> Any:
    """Applies a pointwise function in the way of its first operand that is an `Operators`.

    Returns NotImplemented if an operand is not supported.
    """
    first = next(x for x in operands if isinstance(x, Operators))
    return first._pointwise(function, *operands)


def python_number(x: Any) -> Any:
    """Converts the left operand of an operator: as in DALI, a NumPy scalar there counts as Python's number, which has
    no type of its own.
    """
    return x.item() if isinstance(x, (np.ndarray, np.generic)) and not x.ndim else x


@boundaries
class Operators:
    """Python's operators, with DALI's type rules; see `jaxdali.fn._tensor.arithmetic`."""

    __slots__ = ()

    @staticmethod
    def _pointwise(function: str, *operands: Any) -> Any:
        """Applies a pointwise function. Returns NotImplemented if an operand is not supported."""
        raise NotImplementedError(function)

    def __neg__(self) -> Self:
        return evaluated("minus", self)

    def __abs__(self) -> Self:
        return evaluated("abs", self)

    def __pos__(self) -> Self:
        return evaluated("plus", self)

    def __invert__(self) -> Self:
        return evaluated("bitnot", self)

    def __add__(self, other: Any) -> Self:
        return evaluated("add", self, other)

    def __radd__(self, other: Any) -> Self:
        return evaluated("add", python_number(other), self)

    def __sub__(self, other: Any) -> Self:
        return evaluated("sub", self, other)

    def __rsub__(self, other: Any) -> Self:
        return evaluated("sub", python_number(other), self)

    def __mul__(self, other: Any) -> Self:
        return evaluated("mul", self, other)

    def __rmul__(self, other: Any) -> Self:
        return evaluated("mul", python_number(other), self)

    def __truediv__(self, other: Any) -> Self:
        return evaluated("fdiv", self, other)

    def __rtruediv__(self, other: Any) -> Self:
        return evaluated("fdiv", python_number(other), self)

    def __floordiv__(self, other: Any) -> Self:
        return evaluated("div", self, other)

    def __rfloordiv__(self, other: Any) -> Self:
        return evaluated("div", python_number(other), self)

    def __mod__(self, other: Any) -> Self:
        return evaluated("mod", self, other)

    def __rmod__(self, other: Any) -> Self:
        return evaluated("mod", python_number(other), self)

    def __pow__(self, other: Any) -> Self:
        return evaluated("pow", self, other)

    def __rpow__(self, other: Any) -> Self:
        return evaluated("pow", python_number(other), self)

    def __and__(self, other: Any) -> Self:
        return evaluated("bitand", self, other)

    def __rand__(self, other: Any) -> Self:
        return evaluated("bitand", python_number(other), self)

    def __or__(self, other: Any) -> Self:
        return evaluated("bitor", self, other)

    def __ror__(self, other: Any) -> Self:
        return evaluated("bitor", python_number(other), self)

    def __xor__(self, other: Any) -> Self:
        return evaluated("bitxor", self, other)

    def __rxor__(self, other: Any) -> Self:
        return evaluated("bitxor", python_number(other), self)

    def __lshift__(self, other: Any) -> Self:
        return evaluated("shl", self, other)

    def __rlshift__(self, other: Any) -> Self:
        return evaluated("shl", python_number(other), self)

    def __rshift__(self, other: Any) -> Self:
        return evaluated("shr", self, other)

    def __rrshift__(self, other: Any) -> Self:
        return evaluated("shr", python_number(other), self)

    def __eq__(self, other: Any) -> Self:  # pyright: ignore[reportIncompatibleMethodOverride]
        return evaluated("eq", self, other)

    def __ne__(self, other: Any) -> Self:  # pyright: ignore[reportIncompatibleMethodOverride]
        return evaluated("ne", self, other)

    def __lt__(self, other: Any) -> Self:
        return evaluated("lt", self, other)

    def __le__(self, other: Any) -> Self:
        return evaluated("le", self, other)

    def __gt__(self, other: Any) -> Self:
        return evaluated("gt", self, other)

    def __ge__(self, other: Any) -> Self:
        return evaluated("ge", self, other)


class Arithmetic(Operators):
    """The operators of a class that is not a NumPy array."""

    __slots__ = ()
    __array_ufunc__ = None  # NumPy leaves `array * node` to this class
    __hash__ = object.__hash__  # pyright: ignore[reportAssignmentType]  by identity: == makes a node


@boundaries
class Expression(Arithmetic):
    """Python's operators on a `DataNode`."""

    __slots__ = ()

    @staticmethod
    def _pointwise(function: str, *operands: Any) -> Any:
        return language().pointwise(function, *operands)

    def __getitem__(self, key: Any) -> Self:
        """A part of each sample, by Python's rules: ``node[1:-1, ::2]``, ``node[0]``. Indices may be scalar
        DataNodes.
        """
        return language().subscript(self, key)

    def gpu(self) -> Self:
        """The value on the accelerator (itself if it is there)."""
        return language().copy_to(self, "gpu")

    def cpu(self) -> Self:
        """The value on the host (itself if it is there)."""
        return language().copy_to(self, "cpu")

    def shape(self, *, dtype: DALIDataType | None = None, device: str = "cpu") -> Self:
        """The shape of each sample, a 1-D value.

        Args:
          dtype: its element type. Default: INT64.
          device: where it is: "cpu" or "gpu".
        """
        device = device_named(device)
        if device not in ("cpu", "gpu"):
            raise ValueError(f"shape: device must be 'cpu' or 'gpu', got {device!r}")
        node = language().shapes(self, dtype)
        return node if device == "cpu" else language().copy_to(node, "gpu")

    def property(self, key: str, *, device: str = "cpu") -> Self:
        """Metadata of each sample, as the bytes of a string: `fn.get_property`.

        Args:
          key: "layout" or "source_info".
          device: where the result is: "cpu" or "gpu".
        """
        return language().get_property(self, key=key, device=device)

    def source_info(self, *, device: str = "cpu") -> Self:
        """The origin of each sample, e.g. a path, as bytes."""
        return self.property("source_info", device=device)
