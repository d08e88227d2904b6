"""TensorFlow's serialized tensors (``tensorflow.TensorProto``) as arrays."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np

from .examples import fields_of, message_of, signed, varints_of

# The numbers of the types in ``types.proto``, and for each the field of ``tensor.proto`` that has its values one by one.
# They are stored little-endian.
_TYPES: dict[int, tuple[Any, int]] = {
    1: (np.float32, 5),
    2: (np.float64, 6),
    3: (np.int32, 7),
    4: (np.uint8, 7),
    5: (np.int16, 7),
    6: (np.int8, 7),
    9: (np.int64, 10),
    10: (np.bool_, 11),
    14: (ml_dtypes.bfloat16, 13),
    17: (np.uint16, 7),
    19: (np.float16, 13),
    22: (np.uint32, 16),
    23: (np.uint64, 17),
}
# Types that are refused, for messages.
_REFUSED = {
    7: "strings",
    8: "complex64",
    11: "qint8",
    12: "quint8",
    13: "qint32",
    15: "qint16",
    16: "quint16",
    18: "complex128",
    20: "resource handles",
    21: "variants",
    24: "float8_e5m2",
    25: "float8_e4m3fn",
    29: "int4",
    30: "uint4",
}
_HALVES = (14, 19)  # types of which the values are stored as the bits of an integer
_MAX_DIMENSIONS = 254  # of TensorFlow
_MAX_REPEATED = 1 << 30  # bytes that a value, which is repeated, may take


def tensor_of(message: memoryview) -> np.ndarray:
    """The array of a serialized tensor, which may share the memory of `message`.

    Args:
      message: the bytes of the message.

    Raises:
      ValueError: the message is damaged, or is a tensor of a type that is not supported.
    """
    number, shape, content = 0, [], None
    values: dict[int, list[memoryview]] = {}  # by field: the bytes of values, of which each field may have several
    for field, x in fields_of(message):
        if field == 1 and isinstance(x, int):
            number = x
        elif field == 2:
            shape += _shape_of(message_of(x))
        elif field == 4:
            content = message_of(x)
        elif field in (5, 6, 7, 10, 11, 13, 16, 17):
            values.setdefault(field, []).append(x)  # pyright: ignore[reportArgumentType]
    if number not in _TYPES:
        name = _REFUSED.get(number, f"of the unknown type {number}" if number else "of no type: it is no TensorProto")
        raise ValueError(f"it is a tensor of {name}, which is not supported" if number in _REFUSED else f"it is {name}")
    dtype, field = _TYPES[number]
    dtype = np.dtype(dtype)
    count = math.prod(shape)
    if content is not None and len(content):
        if len(content) != count * dtype.itemsize:
            raise ValueError(
                f"it has {len(content)} bytes, but its shape {tuple(shape)} of {dtype} has {count * dtype.itemsize}"
            )
        stored = np.dtype("u1") if dtype == np.bool_ else dtype
        x = np.frombuffer(content, stored).reshape(shape)
        return x.astype(dtype) if dtype == np.bool_ else x
    elements = _elements(values.get(field, []), dtype, number)
    if len(elements) > count:
        raise ValueError(f"it has {len(elements)} values, but its shape {tuple(shape)} has {count}")
    # The last value stands for all that follow; without any value all are 0.
    if len(elements) < count and count * dtype.itemsize > _MAX_REPEATED:
        raise ValueError(
            f"its shape {tuple(shape)} of {dtype} has {count * dtype.itemsize} bytes, for {len(elements)} values"
        )
    x = np.zeros(count, dtype)
    if len(elements):
        x[: len(elements)] = elements
        x[len(elements) :] = elements[-1]
    return x.reshape(shape)


def _elements(parts: list[memoryview], dtype: np.dtype, number: int) -> np.ndarray:
    """The values of a field, packed or not."""
    if dtype in (np.float32, np.float64):
        if any(isinstance(x, int) or len(x) % dtype.itemsize for x in parts):
            raise ValueError("a list of numbers is damaged")
        return np.frombuffer(b"".join(parts), dtype)
    numbers: list[int] = []
    for x in parts:
        numbers += [x] if isinstance(x, int) else varints_of(x)
    if number in _HALVES:
        return np.array([n & 0xFFFF for n in numbers], np.uint16).view(dtype)
    if dtype.kind in "ui":
        mask = (1 << 8 * dtype.itemsize) - 1
        return np.array([n & mask for n in numbers], f"u{dtype.itemsize}").view(dtype)
    return np.array([n != 0 for n in numbers], dtype)


def _shape_of(message: memoryview) -> list[int]:
    """The extents of a ``TensorShapeProto``. Raises ValueError if one is unknown."""
    shape: list[int] = []
    for field, x in fields_of(message):
        if field == 3 and x:
            raise ValueError("its number of dimensions is unknown")
        if field == 2:
            sizes = [n for f, n in fields_of(message_of(x)) if f == 1]
            size = signed(sizes[-1]) if sizes and isinstance(sizes[-1], int) else 0
            if size < 0:
                raise ValueError(f"extent {len(shape)} of its shape is unknown")
            shape.append(size)
            if len(shape) > _MAX_DIMENSIONS:
                raise ValueError(f"it has more than {_MAX_DIMENSIONS} dimensions")
    return shape
