"""Mathematical functions of DataNodes, element by element, under DALI's names. Functions of a `jaxdali.dynamic.Batch`
are evaluated immediately.

Operands are DataNodes, numbers or arrays, at least one of them no number; they are broadcast as in NumPy. Functions
documented as "floating point" convert integers to float32 first (float64 stays); the others keep the common type of
their operands. ``bool`` operands are an error. Results can be arguments of other operators if the operands are host
values.

Differs from DALI on the CPU: `rsqrt` of an integer 0 is infinite, not NaN; `min`, `max` and `clamp` of NaN are NaN;
floats are compared with negative integers by value. Here, and in arithmetic and comparisons, a tensor of one element is
always broadcast to a larger one; DALI 2.4 reads beyond its end if other samples of the batch have equal shapes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any

from ._core import names as _names
from ._core.graph import DataNode
from .fn._tensor import arithmetic as _arithmetic

# DALI's names shadow built-ins here, on purpose: abs, min, max, pow.


def _pointwise(function: str, *operands: Any) -> Any:
    """Calls a pointwise function by its name, such as "sqrt". Functions of batches and tensors of `jaxdali.dynamic` are
    evaluated immediately.
    """
    values = [x for x in operands if hasattr(type(x), "_pointwise") and not isinstance(x, DataNode)]
    if values:
        return values[0]._pointwise(function, *operands)
    return _arithmetic.pointwise(function, *operands)


def sqrt(input: Any) -> DataNode:
    """Square root; floating point."""
    return _pointwise("sqrt", input)


def rsqrt(input: Any) -> DataNode:
    """1 / square root; floating point."""
    return _pointwise("rsqrt", input)


def cbrt(input: Any) -> DataNode:
    """Cube root; floating point."""
    return _pointwise("cbrt", input)


def exp(input: Any) -> DataNode:
    """e to the power of the input; floating point."""
    return _pointwise("exp", input)


def log(input: Any) -> DataNode:
    """Natural logarithm; floating point."""
    return _pointwise("log", input)


def log2(input: Any) -> DataNode:
    """Logarithm to base 2; floating point."""
    return _pointwise("log2", input)


def log10(input: Any) -> DataNode:
    """Logarithm to base 10; floating point."""
    return _pointwise("log10", input)


def abs(input: Any) -> DataNode:
    """Absolute value; keeps the type."""
    return _pointwise("abs", input)


def fabs(input: Any) -> DataNode:
    """Absolute value; floating point."""
    return _pointwise("fabs", input)


def floor(input: Any) -> DataNode:
    """The largest whole number not above the input; floating point."""
    return _pointwise("floor", input)


def ceil(input: Any) -> DataNode:
    """The smallest whole number not below the input; floating point."""
    return _pointwise("ceil", input)


def sin(input: Any) -> DataNode:
    """Sine of radians; floating point."""
    return _pointwise("sin", input)


def cos(input: Any) -> DataNode:
    """Cosine of radians; floating point."""
    return _pointwise("cos", input)


def tan(input: Any) -> DataNode:
    """Tangent of radians; floating point."""
    return _pointwise("tan", input)


def asin(input: Any) -> DataNode:
    """Arcsine, in radians; floating point."""
    return _pointwise("asin", input)


def acos(input: Any) -> DataNode:
    """Arccosine, in radians; floating point."""
    return _pointwise("acos", input)


def atan(input: Any) -> DataNode:
    """Arctangent, in radians; floating point."""
    return _pointwise("atan", input)


def sinh(input: Any) -> DataNode:
    """Hyperbolic sine; floating point."""
    return _pointwise("sinh", input)


def cosh(input: Any) -> DataNode:
    """Hyperbolic cosine; floating point."""
    return _pointwise("cosh", input)


def tanh(input: Any) -> DataNode:
    """Hyperbolic tangent; floating point."""
    return _pointwise("tanh", input)


def asinh(input: Any) -> DataNode:
    """Inverse hyperbolic sine; floating point."""
    return _pointwise("asinh", input)


def acosh(input: Any) -> DataNode:
    """Inverse hyperbolic cosine; floating point."""
    return _pointwise("acosh", input)


def atanh(input: Any) -> DataNode:
    """Inverse hyperbolic tangent; floating point."""
    return _pointwise("atanh", input)


def atan2(x: Any, y: Any) -> DataNode:
    """The angle whose tangent is ``x / y``, in the quadrant of the point (y, x), in radians; floating point."""
    return _pointwise("atan2", x, y)


def pow(base: Any, exponent: Any) -> DataNode:
    """`base` to the power of `exponent`; for integers an integer, which wraps around."""
    return _pointwise("pow", base, exponent)


def fpow(base: Any, exponent: Any) -> DataNode:
    """`base` to the power of `exponent`; floating point."""
    return _pointwise("fpow", base, exponent)


def min(left: Any, right: Any) -> DataNode:
    """The smaller of two; the common type."""
    return _pointwise("min", left, right)


def max(left: Any, right: Any) -> DataNode:
    """The larger of two; the common type."""
    return _pointwise("max", left, right)


def clamp(value: Any, lo: Any, hi: Any) -> DataNode:
    """`value` limited to the range from `lo` to `hi`; the common type of all three."""
    return _pointwise("clamp", value, lo, hi)


if not _TYPE_CHECKING:
    __all__, __dir__, __getattr__ = _names.index(
        __name__,
        globals(),
        "abs acos acosh asin asinh atan atan2 atanh cbrt ceil clamp cos cosh exp fabs floor fpow log log10 log2 max min "
        "pow rsqrt sin sinh sqrt tan tanh",
    )
