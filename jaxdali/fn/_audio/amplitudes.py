"""Amplitudes of signals as numbers of any type: full scale is -1 ... 1 of floats, and the whole range of integers."""

from __future__ import annotations

import numpy as np

from .._families.conversion import convert


def as_floats(x: np.ndarray) -> np.ndarray:
    """float32 of any type."""
    if x.dtype.kind == "f":
        return x.astype(np.float32, copy=False)
    most = np.iinfo(x.dtype).max
    if x.dtype.kind == "i":
        return (x * (1 / most)).astype(np.float32)
    return (x * (2 / most) - 1).astype(np.float32)


def scaled(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """float32 as it is rounded to another type: with 0 in the middle of the range of unsigned integers."""
    return x if dtype.kind != "u" else x * np.float32(0.5) + np.float32(0.5)


def as_type(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """What `scaled` gave, as the type; integers are rounded and saturated."""
    if dtype.kind == "f":
        return x.astype(dtype, copy=False)
    # 32-bit integers need more digits than float32 has, which would make their largest number 2 ** 31.
    wide = np.dtype(np.float64 if dtype.itemsize >= 4 else np.float32)
    return convert(np, x.astype(wide, copy=False) * wide.type(np.iinfo(dtype).max), dtype)
