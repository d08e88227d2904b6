"""The features of a TensorFlow example as Python objects."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import numpy as np

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # of Protocol Buffers: how a field is stored


def features_of(example: bytes, names: Collection[str]) -> dict[str, Any]:
    """Some features of a serialized ``tf.train.Example``.

    A feature of one value is that value, one of several a list; bytes that are UTF-8 are `str`.

    Args:
      example: the message.
      names: of the features; those that the example lacks are left out.

    Raises:
      ValueError: the message is damaged.
    """
    found: dict[str, Any] = {}
    for number, features in _fields(memoryview(example)):
        for entry in (x for n, x in _fields(_message(features)) if n == 1) if number == 1 else ():
            name, feature = "", memoryview(b"")
            for n, x in _fields(_message(entry)):
                if n == 1:
                    name = _text(bytes(_message(x)))
                elif n == 2:
                    feature = _message(x)
            if name in names:
                values = [v for kind, x in _fields(feature) for v in _values(kind, _message(x))]
                found[str(name)] = values[0] if len(values) == 1 else values
    return found


def _values(kind: int, values: memoryview) -> list[Any]:
    """The values of a BytesList (1), a FloatList (2) or an Int64List (3)."""
    found: list[Any] = []
    for field, x in _fields(values):
        if field != 1:
            continue
        if kind == 1:
            found.append(_text(bytes(_message(x))))
        elif kind == 2:
            if len(_message(x)) % 4:
                raise ValueError("a list of numbers is damaged")
            found += np.frombuffer(_message(x), "<f4").tolist()
        elif kind == 3 and isinstance(x, int):
            found.append(_signed(x))
        elif kind == 3:
            packed, at = _message(x), 0
            while at < len(packed):
                number, at = _varint(packed, at)
                found.append(_signed(number))
    return found


def _text(data: bytes) -> str | bytes:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def _signed(x: int) -> int:
    return x - (1 << 64) if x >> 63 else x


def _message(x: int | memoryview) -> memoryview:
    if isinstance(x, int):
        raise ValueError("a field is of another type")
    return x


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    """A number, and the position after it."""
    x = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        x |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return x & (1 << 64) - 1, at
    raise ValueError("a number is damaged")


def _fields(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Number and value of each field of a message; numbers of fixed size are given as their bytes."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        how = tag & 7
        if how == _VARINT:
            x, at = _varint(message, at)
            yield tag >> 3, x
            continue
        if how == _BYTES:
            size, at = _varint(message, at)
        elif how in (_FIXED32, _FIXED64):
            size = 4 if how == _FIXED32 else 8
        else:
            raise ValueError(f"a field is stored in an unknown way ({how})")
        if size > len(message) - at:
            raise ValueError("a field ends after its message")
        yield tag >> 3, message[at : at + size]
        at += size
