"""Conversion between element types, by DALI's rule: round half away from zero, then saturate."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...types import is_float


def convert(xp: Any, x: Any, dtype: np.dtype) -> Any:
    """`x` as `dtype`, with NumPy (`xp` = numpy) or in a program (jax.numpy, with x64 enabled).

    Floats become integers by rounding half away from zero and saturating; NaN becomes 0, or the minimum for int32 and
    int64. Integers saturate. To bool: whether it rounds to nonzero, so 0.4 is false, and NaN is true.
    """
    if x.dtype == dtype:
        return x
    if dtype == np.bool_ and is_float(x.dtype):
        return ~(xp.abs(x) < xp.asarray(0.5, x.dtype))
    if dtype == np.bool_:
        return x != xp.zeros((), x.dtype)
    # A plain cast: a bool becomes 0 or 1, and a float is rounded to the nearest one.
    if x.dtype == np.bool_ or dtype.kind not in "iu":
        with np.errstate(all="ignore"):
            # Through float32 first, so that NumPy and programs round wider types in the same way.
            if dtype.name == "bfloat16":
                x = x.astype(np.float32)
            return x.astype(dtype)
    limits = np.iinfo(dtype)
    if x.dtype.kind in "iu":
        source = np.iinfo(x.dtype)
        # Saturated before the cast, so by limits that the source's type can hold.
        low, high = max(limits.min, source.min), min(limits.max, source.max)
        return xp.minimum(xp.maximum(x, xp.asarray(low, x.dtype)), xp.asarray(high, x.dtype)).astype(dtype)
    with np.errstate(all="ignore"):
        if x.dtype.itemsize < 4:
            x = x.astype(np.float32)  # float16 can't hold the bounds below
        rounded = xp.trunc(x)
        # Not trunc(x + 0.5), which rounds 0.49999997 up.
        is_half = xp.abs(x - rounded) >= xp.asarray(0.5, x.dtype)
        rounded = xp.where(is_half, rounded + xp.copysign(xp.ones((), x.dtype), x), rounded)
        # Both bounds are powers of two (or 0), exact in every float type, unlike the maximum itself.
        above = rounded >= xp.asarray(2.0 ** (limits.bits - (limits.min < 0)), x.dtype)
        below = ~(rounded > xp.asarray(float(limits.min), x.dtype))  # NaN too
        saturated = xp.where(above | below, xp.zeros((), x.dtype), rounded).astype(dtype)
        result = xp.where(
            above, xp.asarray(limits.max, dtype), xp.where(below, xp.asarray(limits.min, dtype), saturated)
        )
        # NaN became the minimum above: right for int32 and int64, and 0 for unsigned types.
        if dtype in (np.dtype(np.int8), np.dtype(np.int16)):
            result = xp.where(xp.isnan(x), xp.zeros((), dtype), result)
        return result


def cut(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Fill values as `dtype`, by DALI's rule for them, which is a cast of C on x86.

    For integer types the fraction is cut, and a number that the type can't hold wraps around: 300 becomes 44 in uint8,
    and -1 becomes 255. The cast goes through a wider signed type. A number that this type can't hold becomes its
    minimum first. `CutTo` in ffi/common/convert.h does the same.
    """
    if dtype.kind not in "iu":
        return convert(np, x, dtype)
    # The kernels get fill values as float32. Each of these is exact in float64, as are the limits below.
    whole = np.trunc(x.astype(np.float32).astype(np.float64))
    wide_dtype = np.dtype(np.int64 if dtype.itemsize == 8 or dtype == np.uint32 else np.int32)
    limit = -float(np.iinfo(wide_dtype).min)  # 2**31 or 2**63, the first number above the wide type
    wrapped = np.where((whole >= -limit) & (whole < limit), whole, -limit).astype(wide_dtype).astype(dtype)
    # Numbers of the upper half do not go through int64: x86 casts them in another way. Those above it become 0.
    if dtype == np.uint64:
        wrapped = np.where(whole >= limit, np.where(whole < 2 * limit, whole, 0).clip(0).astype(dtype), wrapped)
    return wrapped
