"""Conversion of amplitudes between types. Full scale is -1 ... 1 for floats, and the whole range for integers."""

from __future__ import annotations

import numpy as np

from .._families.conversion import convert


def as_floats(x: np.ndarray) -> np.ndarray:
    """Amplitudes of any type as float32, from -1 to 1."""
    if x.dtype.kind == "f":
        return x.astype(np.float32, copy=False)
    largest = np.iinfo(x.dtype).max
    if x.dtype.kind == "i":
        return (x * (1 / largest)).astype(np.float32)
    return (x * (2 / largest) - 1).astype(np.float32)


def scaled(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Amplitudes from -1 to 1, moved to the range 0 ... 1 if they are to become unsigned integers."""
    return x if dtype.kind != "u" else x * np.float32(0.5) + np.float32(0.5)


def as_type(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """The result of `scaled` in the type `dtype`. Integers are rounded and saturated."""
    if dtype.kind == "f":
        return x.astype(dtype, copy=False)
    # 32-bit integers need more digits than float32 has: in it, their largest number would become 2**31.
    wide = np.dtype(np.float64 if dtype.itemsize >= 4 else np.float32)
    return convert(np, x.astype(wide, copy=False) * wide.type(np.iinfo(dtype).max), dtype)
