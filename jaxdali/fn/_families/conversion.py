"""Conversion between element types, by DALI's rule: round half away from zero, then saturate."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...types import is_float


def convert(xp: Any, x: Any, dtype: np.dtype) -> Any:
    """`x` as `dtype`, with NumPy (`xp` = numpy) or in a program (jax.numpy, with x64 enabled).

    Floats become integers by rounding half away from zero and saturating; NaN becomes 0, or the minimum for int32 and
    int64. Integers saturate. To bool: whether it rounds to nonzero, i.e. 0.4 is false (NaN is true).
    """
    if x.dtype == dtype:
        return x
    if dtype == np.bool_ and is_float(x.dtype):
        return ~(xp.abs(x) < xp.asarray(0.5, x.dtype))
    if dtype == np.bool_:
        return x != xp.zeros((), x.dtype)
    if x.dtype == np.bool_ or dtype.kind not in "iu":
        with np.errstate(all="ignore"):
            # Rounded once, and by NumPy as in programs: all that is wider comes by way of float32.
            if dtype.name == "bfloat16":
                x = x.astype(np.float32)
            return x.astype(dtype)
    limits = np.iinfo(dtype)
    if x.dtype.kind in "iu":
        source = np.iinfo(x.dtype)
        low, high = max(limits.min, source.min), min(limits.max, source.max)
        return xp.minimum(xp.maximum(x, xp.asarray(low, x.dtype)), xp.asarray(high, x.dtype)).astype(dtype)
    with np.errstate(all="ignore"):
        if x.dtype.itemsize < 4:
            x = x.astype(np.float32)  # the bounds below are not in the range of float16
        whole = xp.trunc(x)
        # Not trunc(x + 0.5): that rounds 0.49999997 up.
        away = xp.abs(x - whole) >= xp.asarray(0.5, x.dtype)
        whole = xp.where(away, whole + xp.copysign(xp.ones((), x.dtype), x), whole)
        # Both bounds are powers of two (or 0), exact in every float type, unlike the maximum itself.
        above = whole >= xp.asarray(2.0 ** (limits.bits - (limits.min < 0)), x.dtype)
        below = ~(whole > xp.asarray(float(limits.min), x.dtype))  # NaN too
        inside = xp.where(above | below, xp.zeros((), x.dtype), whole).astype(dtype)
        result = xp.where(above, xp.asarray(limits.max, dtype), xp.where(below, xp.asarray(limits.min, dtype), inside))
        if dtype in (np.dtype(np.int8), np.dtype(np.int16)):
            result = xp.where(xp.isnan(x), xp.zeros((), dtype), result)
        return result


def cut(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Fill values as `dtype`, by DALI's rule for these, which is C's cast on x86.

    Of integers the fraction is cut, and what the type can't hold wraps around: 300 is 44 in uint8, -1 is 255. What the
    wider signed type that this goes through can't hold becomes that type's minimum first. `CutTo` in
    ffi/common/convert.h is the same.
    """
    if dtype.kind not in "iu":
        return convert(np, x, dtype)
    whole = np.trunc(x.astype(np.float32).astype(np.float64))
    wide = np.dtype(np.int64 if dtype.itemsize == 8 or dtype == np.uint32 else np.int32)
    limit = -float(np.iinfo(wide).min)
    held = np.where((whole >= -limit) & (whole < limit), whole, -limit).astype(wide).astype(dtype)
    if dtype == np.uint64:  # x86 has a cast of its own for the upper half
        held = np.where(whole >= limit, np.where(whole < 2 * limit, whole, 0).clip(0).astype(dtype), held)
    return held
