"""The features of a TensorFlow example as Python objects, and the wire format of Protocol Buffers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator
from typing import Any

import numpy as np

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types of Protocol Buffers


def features_of(example: bytes, names: Collection[str]) -> dict[str, Any]:
    """Some features of a serialized ``tf.train.Example``.

    A feature of one value is that value, one of several a list; bytes that are UTF-8 are `str`.

    Args:
      example: the message.
      names: of the features; those that the example lacks are left out.

    Raises:
      ValueError: the message is damaged.
    """
    result: dict[str, Any] = {}
    # An Example has Features (1), which have entries of a map (1), each with a name (1) and a Feature (2).
    for number, features in fields_of(memoryview(example)):
        for entry in (x for n, x in fields_of(message_of(features)) if n == 1) if number == 1 else ():
            name, feature = "", memoryview(b"")
            for n, x in fields_of(message_of(entry)):
                if n == 1:
                    name = _text(bytes(message_of(x)))
                elif n == 2:
                    feature = message_of(x)
            if name in names:
                values = [v for kind, x in fields_of(feature) for v in _values(kind, message_of(x))]
                result[str(name)] = values[0] if len(values) == 1 else values
    return result


class FeatureMetadata:
    """Features of records as metadata. Those of the last record are kept, for the functions of other names.

    Args:
      names: of the features.
      message: returns the serialized example of a record, given its number.
      name: returns the name of a record, for messages.
    """

    def __init__(self, names: Collection[str], message: Callable[[int], bytes], name: Callable[[int], str]):
        self._names, self._message, self._name = names, message, name
        self._last: tuple[int, dict[str, Any]] = -1, {}  # the number of a record, and its features

    def function(self, feature: str) -> Callable[[int], Any] | None:
        """The function that returns a feature of a record, None if the record lacks it; None for another name."""
        return functools.partial(self._feature, feature) if feature in self._names else None

    def _feature(self, feature: str, i: int) -> Any:
        """The feature of record `i`. Raises ValueError if the record is damaged."""
        number, features = self._last
        if number != i:
            try:
                features = features_of(self._message(i), self._names)
            except ValueError as e:
                raise ValueError(f"{self._name(i)}: {e}") from e
            self._last = i, features
        return features.get(feature)


def _values(kind: int, values: memoryview) -> list[Any]:
    """The values of a BytesList (`kind` 1), a FloatList (2) or an Int64List (3)."""
    result: list[Any] = []
    for field, x in fields_of(values):
        if field != 1:  # each of the lists has its values in field 1
            continue
        if kind == 1:
            result.append(_text(bytes(message_of(x))))
        elif kind == 2:
            if len(message_of(x)) % 4:
                raise ValueError("a list of numbers is damaged")
            result += np.frombuffer(message_of(x), "<f4").tolist()
        elif kind == 3 and isinstance(x, int):  # each number is a field of its own
            result.append(signed(x))
        elif kind == 3:  # all numbers are one field
            result += map(signed, varints_of(message_of(x)))
    return result


def _text(data: bytes) -> str | bytes:
    """The text of UTF-8; other bytes are returned unchanged."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def signed(x: int) -> int:
    """A signed number from its 64 bits, read as an unsigned one."""
    return x - (1 << 64) if x >> 63 else x


def message_of(x: int | memoryview) -> memoryview:
    """The bytes of a field. Raises ValueError if the field is a number."""
    if isinstance(x, int):
        raise ValueError("a field is of another type")
    return x


def varints_of(packed: memoryview) -> list[int]:
    """The numbers of a packed list of varints, unsigned."""
    numbers, offset = [], 0
    while offset < len(packed):
        number, offset = _varint(packed, offset)
        numbers.append(number)
    return numbers


def _varint(data: memoryview, offset: int) -> tuple[int, int]:
    """(a varint of Protocol Buffers, the offset after it)."""
    x = shift = 0
    while offset < len(data) and shift < 70:  # at most ten bytes, of 7 bits each
        byte = data[offset]
        x |= (byte & 127) << shift
        offset, shift = offset + 1, shift + 7
        if byte < 128:
            return x & (1 << 64) - 1, offset
    raise ValueError("a number is damaged")


def fields_of(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """(number, value) of each field of a message. The value of a number of fixed size is its bytes."""
    offset = 0
    while offset < len(message):
        tag, offset = _varint(message, offset)
        wire_type = tag & 7
        if not tag >> 3:
            raise ValueError("a field has the number 0")
        if wire_type == _VARINT:
            x, offset = _varint(message, offset)
            yield tag >> 3, x
            continue
        if wire_type == _BYTES:
            size, offset = _varint(message, offset)
        elif wire_type in (_FIXED32, _FIXED64):
            size = 4 if wire_type == _FIXED32 else 8
        else:
            raise ValueError(f"a field is stored in an unknown way ({wire_type})")
        if size > len(message) - offset:
            raise ValueError("a field ends after its message")
        yield tag >> 3, message[offset : offset + size]
        offset += size
