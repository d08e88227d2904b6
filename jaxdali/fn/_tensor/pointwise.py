"""The pointwise functions: their type rules, and their values with NumPy and in programs."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from ...types import is_float

BOOL = np.dtype(np.bool_)
FLOAT = np.dtype(np.float32)


def promote(dtypes: Sequence[np.dtype]) -> np.dtype:
    """DALI's common type. Floats take precedence over integers, and integers over bool. Of two floats, or two integers
    of the same signedness, it is the wider one. For mixed signedness it is a signed type that holds both, or int64.
    """
    return functools.reduce(_promote, dtypes)


def _promote(a: np.dtype, b: np.dtype) -> np.dtype:
    """DALI's common type of two types: a float rather than an integer, an integer rather than a bool; see `promote`."""
    if a == b or b == BOOL:
        return a
    if a == BOOL:
        return b
    if is_float(a) or is_float(b):
        if not (is_float(a) and is_float(b)):
            return a if is_float(a) else b
        if a.itemsize == b.itemsize:
            return FLOAT  # float16 and bfloat16
        return a if a.itemsize > b.itemsize else b
    if a.kind == b.kind:
        return a if a.itemsize > b.itemsize else b
    signed, unsigned = (a, b) if a.kind == "i" else (b, a)
    # A signed type that is twice as wide as the unsigned one holds both; int64 is the widest.
    return np.dtype(f"int{8 * min(8, max(signed.itemsize, 2 * unsigned.itemsize))}")


@dataclasses.dataclass(frozen=True)
class Function:
    """A pointwise function.

    Attributes:
      compute: ``compute(xp, *operands)``, with operands in the type of the computation; `xp` is numpy or jax.numpy.
      rule: a function from the operands' types to the type of the computation. None: operands are not converted.
      returns: the type of the result. None: the type that `rule` returns.
      symbol: the operator that users write, for error messages.
    """

    compute: Callable[..., Any]
    rule: Callable[[Sequence[np.dtype]], np.dtype] | None
    returns: np.dtype | None = None
    symbol: str = ""

    def result(self, dtypes: Sequence[np.dtype]) -> np.dtype:
        """The type of the result. Raises TypeError if the function does not accept these types."""
        common = self.rule(dtypes) if self.rule else promote(dtypes)
        return common if self.returns is None else self.returns

    def __call__(self, xp: Any, operands: Sequence[Any]) -> Any:
        # As in DALI, integers wrap around and floats become infinite or NaN, without warnings.
        with np.errstate(all="ignore"):
            return self.of([np.dtype(x.dtype) for x in operands], xp)(*map(xp.asarray, operands))

    def of(self, dtypes: Sequence[np.dtype], xp: Any = np) -> Callable[..., Any]:
        """The function for operands of these types, which are arrays or NumPy scalars."""
        common = self.rule(dtypes) if self.rule else None
        result, compute = self.result(dtypes), self.compute
        converts = common is not None and any(d != common for d in dtypes)

        def function(*operands: Any) -> Any:
            if converts:
                operands = tuple([x if x.dtype == common else x.astype(common) for x in operands])
            out = compute(xp, *operands)
            return out if out.dtype == result else out.astype(result)

        return function


# --- type rules -------------------------------------------------------------------------------------------------


def _number(dtypes: Sequence[np.dtype]) -> np.dtype:
    if all(d == BOOL for d in dtypes):
        raise TypeError("the operands are all bool; use &, |, ^ or ~, or convert one with fn.cast")
    return promote(dtypes)


def _floating(dtypes: Sequence[np.dtype]) -> np.dtype:
    common = _number(dtypes)
    return common if is_float(common) else FLOAT


def _integral(dtypes: Sequence[np.dtype]) -> np.dtype:
    common = promote(dtypes)
    if is_float(common):
        raise TypeError("the operands must be integers or bool")
    return common


def _shifting(dtypes: Sequence[np.dtype]) -> np.dtype:
    _number(dtypes)
    return _integral(dtypes)


# --- values -----------------------------------------------------------------------------------------------------


def _divide(xp: Any, a: Any, b: Any) -> Any:
    """The quotient. For integers it is rounded towards zero, and 0 if the divisor is zero."""
    if is_float(a.dtype):
        return a / b
    is_zero = b == xp.zeros((), b.dtype)
    divisor = xp.where(is_zero, xp.ones((), b.dtype), b)
    if xp is jnp:
        quotient = lax.div(*jnp.broadcast_arrays(a, divisor))
    else:
        quotient = a // divisor  # NumPy rounds down, which is 1 less for inexact quotients below 0.
        if a.dtype.kind == "i":
            quotient = quotient + ((quotient * divisor != a) & ((a < 0) != (divisor < 0))).astype(a.dtype)
    return xp.where(is_zero, xp.zeros((), a.dtype), quotient)


def _remainder(xp: Any, a: Any, b: Any) -> Any:
    """The remainder, with the sign of the dividend. For integers, it is 0 if the divisor is zero."""
    if is_float(a.dtype):
        return xp.fmod(a, b)
    is_zero = b == xp.zeros((), b.dtype)
    return xp.where(is_zero, xp.zeros((), a.dtype), xp.fmod(a, xp.where(is_zero, xp.ones((), b.dtype), b)))


def _power(xp: Any, base: Any, exponent: Any) -> Any:
    """Powers. Integers wrap around; with a negative exponent the result is 0, even for 1 and -1, as in DALI."""
    if is_float(base.dtype):
        return xp.power(base, exponent)
    one, zero = xp.ones((), base.dtype), xp.zeros((), base.dtype)
    if xp is jnp:
        base, exponent = jnp.broadcast_arrays(base, exponent)

        # By repeated squaring, one bit of the exponent at a time.
        def step(_, state):
            """Multiplies by the current factor if the lowest bit of the remaining exponent is set; then squares the
            factor.
            """
            result, factor, remaining = state
            is_odd = (remaining & one) != zero
            return (
                jnp.where(is_odd, result * factor, result),
                factor * factor,
                lax.shift_right_logical(remaining, one + jnp.zeros_like(remaining)),
            )

        result, _, _ = lax.fori_loop(0, 8 * base.dtype.itemsize, step, (jnp.ones_like(base), base, exponent))
    else:
        result = np.power(base, np.maximum(exponent, zero))
    if base.dtype.kind == "u":
        return result
    return xp.where(exponent < zero, zero, result)


# By comparison: the ufunc, and the result as a function of "less" and "equal".
_COMPARISONS: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "lt": ("less", lambda less, equal: less),
    "le": ("less_equal", lambda less, equal: less | equal),
    "gt": ("greater", lambda less, equal: ~(less | equal)),
    "ge": ("greater_equal", lambda less, equal: ~less),
    "eq": ("equal", lambda less, equal: equal),
    "ne": ("not_equal", lambda less, equal: ~equal),
}


def _compare(name: str) -> Callable[..., Any]:
    """A comparison that is mathematically correct for integers of mixed signedness."""
    ufunc, pick = _COMPARISONS[name]

    def compute(xp: Any, a: Any, b: Any) -> Any:
        """The comparison of two arrays, with NumPy or in a program."""
        # The letters of both kinds, such as "iu" for a signed and an unsigned operand.
        kinds = a.dtype.kind + b.dtype.kind
        if np.dtype(np.uint64) in (a.dtype, b.dtype) and "i" in kinds:
            # No integer type holds both. Where the signed operand is not negative, uint64 does.
            is_negative = (a if kinds[0] == "i" else b) < 0
            x, y = a.astype(np.uint64), b.astype(np.uint64)
            return pick(xp.where(is_negative, xp.asarray(kinds[0] == "i"), x < y), ~is_negative & (x == y))
        common = promote([a.dtype, b.dtype])
        return getattr(xp, ufunc)(*(x if x.dtype == common else x.astype(common) for x in (a, b)))

    return compute


def _ufunc(name: str) -> Callable[..., Any]:
    return lambda xp, *operands: getattr(xp, name)(*operands)


FUNCTIONS: dict[str, Function] = {
    "plus": Function(lambda xp, a: a, promote, symbol="+"),
    "minus": Function(_ufunc("negative"), _number, symbol="-"),
    "bitnot": Function(_ufunc("invert"), _integral, symbol="~"),
    "add": Function(_ufunc("add"), _number, symbol="+"),
    "sub": Function(_ufunc("subtract"), _number, symbol="-"),
    "mul": Function(_ufunc("multiply"), promote, symbol="*"),
    "fdiv": Function(_ufunc("divide"), _floating, symbol="/"),
    "div": Function(_divide, _number, symbol="//"),
    "mod": Function(_remainder, _number, symbol="%"),
    "pow": Function(_power, _number, symbol="**"),
    "fpow": Function(_ufunc("power"), _floating),
    "bitand": Function(_ufunc("bitwise_and"), _integral, symbol="&"),
    "bitor": Function(_ufunc("bitwise_or"), _integral, symbol="|"),
    "bitxor": Function(_ufunc("bitwise_xor"), _integral, symbol="^"),
    "shl": Function(_ufunc("left_shift"), _shifting, symbol="<<"),
    "shr": Function(_ufunc("right_shift"), _shifting, symbol=">>"),
    "min": Function(_ufunc("minimum"), _number),
    "max": Function(_ufunc("maximum"), _number),
    "clamp": Function(lambda xp, x, low, high: xp.minimum(xp.maximum(x, low), high), _number),
    "abs": Function(_ufunc("abs"), _number),
    "fabs": Function(_ufunc("abs"), _floating),
    "rsqrt": Function(lambda xp, x: xp.ones((), x.dtype) / xp.sqrt(x), _floating),
    "atan2": Function(_ufunc("arctan2"), _floating),
}
for _name, _symbol in {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}.items():
    FUNCTIONS[_name] = Function(_compare(_name), None, BOOL, _symbol)
for _name in (
    "sqrt",
    "cbrt",
    "exp",
    "log",
    "log2",
    "log10",
    "floor",
    "ceil",
    "sin",
    "cos",
    "tan",
    "sinh",
    "cosh",
    "tanh",
):
    FUNCTIONS[_name] = Function(_ufunc(_name), _floating)
for _name in ("asin", "acos", "atan", "asinh", "acosh", "atanh"):
    FUNCTIONS[_name] = Function(_ufunc(f"arc{_name[1:]}"), _floating)
