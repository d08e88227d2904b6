"""Operators of the language on `DataNode`: arithmetic, comparisons, subscripts, and where a value is."""

from __future__ import annotations

from typing import Any, Self

from ..types import DALIDataType
from .language import language


def _pointwise(function: str, *operands: Any) -> Any:
    return language().pointwise(function, *operands)


class Expression:
    """What Python's operators do on a `DataNode`. The type rules are those of DALI; see `jaxdali.fn._tensor.arithmetic`."""

    __slots__ = ()
    __array_ufunc__ = None  # NumPy leaves `array * node` to this class
    __hash__ = object.__hash__  # by identity: == makes a node

    def __neg__(self) -> Self:
        return _pointwise("minus", self)

    def __abs__(self) -> Self:
        return _pointwise("abs", self)

    def __pos__(self) -> Self:
        return _pointwise("plus", self)

    def __invert__(self) -> Self:
        return _pointwise("bitnot", self)

    def __add__(self, other: Any) -> Self:
        return _pointwise("add", self, other)

    def __radd__(self, other: Any) -> Self:
        return _pointwise("add", other, self)

    def __sub__(self, other: Any) -> Self:
        return _pointwise("sub", self, other)

    def __rsub__(self, other: Any) -> Self:
        return _pointwise("sub", other, self)

    def __mul__(self, other: Any) -> Self:
        return _pointwise("mul", self, other)

    def __rmul__(self, other: Any) -> Self:
        return _pointwise("mul", other, self)

    def __truediv__(self, other: Any) -> Self:
        return _pointwise("fdiv", self, other)

    def __rtruediv__(self, other: Any) -> Self:
        return _pointwise("fdiv", other, self)

    def __floordiv__(self, other: Any) -> Self:
        return _pointwise("div", self, other)

    def __rfloordiv__(self, other: Any) -> Self:
        return _pointwise("div", other, self)

    def __mod__(self, other: Any) -> Self:
        return _pointwise("mod", self, other)

    def __rmod__(self, other: Any) -> Self:
        return _pointwise("mod", other, self)

    def __pow__(self, other: Any) -> Self:
        return _pointwise("pow", self, other)

    def __rpow__(self, other: Any) -> Self:
        return _pointwise("pow", other, self)

    def __and__(self, other: Any) -> Self:
        return _pointwise("bitand", self, other)

    def __rand__(self, other: Any) -> Self:
        return _pointwise("bitand", other, self)

    def __or__(self, other: Any) -> Self:
        return _pointwise("bitor", self, other)

    def __ror__(self, other: Any) -> Self:
        return _pointwise("bitor", other, self)

    def __xor__(self, other: Any) -> Self:
        return _pointwise("bitxor", self, other)

    def __rxor__(self, other: Any) -> Self:
        return _pointwise("bitxor", other, self)

    def __lshift__(self, other: Any) -> Self:
        return _pointwise("shl", self, other)

    def __rlshift__(self, other: Any) -> Self:
        return _pointwise("shl", other, self)

    def __rshift__(self, other: Any) -> Self:
        return _pointwise("shr", self, other)

    def __rrshift__(self, other: Any) -> Self:
        return _pointwise("shr", other, self)

    def __eq__(self, other: Any) -> Self:  # pyright: ignore[reportIncompatibleMethodOverride]
        return _pointwise("eq", self, other)

    def __ne__(self, other: Any) -> Self:  # pyright: ignore[reportIncompatibleMethodOverride]
        return _pointwise("ne", self, other)

    def __lt__(self, other: Any) -> Self:
        return _pointwise("lt", self, other)

    def __le__(self, other: Any) -> Self:
        return _pointwise("le", self, other)

    def __gt__(self, other: Any) -> Self:
        return _pointwise("gt", self, other)

    def __ge__(self, other: Any) -> Self:
        return _pointwise("ge", self, other)

    def __getitem__(self, key: Any) -> Self:
        """A part of each sample, by Python's rules: ``node[1:-1, ::2]``, ``node[0]``. Indices may be scalar DataNodes."""
        return language().subscript(self, key)

    def gpu(self) -> Self:
        """The value on the accelerator (itself when it is there)."""
        return language().copy_to(self, "gpu")

    def cpu(self) -> Self:
        """The value on the host (itself when it is there)."""
        return language().copy_to(self, "cpu")

    def shape(self, *, dtype: DALIDataType | None = None, device: str = "cpu") -> Self:
        """The shape of each sample, a 1-D value.

        Args:
          dtype: its element type. Default: INT64.
          device: where it is: "cpu" or "gpu".
        """
        if device not in ("cpu", "gpu"):
            raise ValueError(f"shape: device must be 'cpu' or 'gpu', got {device!r}")
        node = language().shapes(self, dtype)
        return node if device == "cpu" else language().copy_to(node, "gpu")

    def property(self, key: str, *, device: str = "cpu") -> Self:
        """What is known of each sample besides its values, as the bytes of a text: `fn.get_property`.

        Args:
          key: "layout" or "source_info".
          device: where the result is: "cpu" or "gpu".
        """
        return language().get_property(self, key=key, device=device)

    def source_info(self, *, device: str = "cpu") -> Self:
        """Where each sample came from, e.g. a path, as bytes."""
        return self.property("source_info", device=device)
