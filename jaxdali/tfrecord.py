"""Descriptions of a TFRecord file's features, under DALI's names: ``tfrecord.FixedLenFeature((), tfrecord.string,
"")``.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Sequence
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any

from ._core import names as _names
from ._core.errors import ArgumentError, ArgumentTypeError


class FeatureType(enum.IntEnum):
    """Types of features."""

    int64 = 0
    string = 1
    float32 = 2


int64 = FeatureType.int64
string = FeatureType.string
float32 = FeatureType.float32


@dataclasses.dataclass(frozen=True)
class Feature:
    """One feature of each record; made by `FixedLenFeature` and `VarLenFeature`.

    Attributes:
      shape: the shape of its values; None: a list of any length.
      dtype: `int64`, `float32` or `string`.
      default: the value for records that lack the feature: for all elements of a feature with a shape, or the text or
        bytes of a string.
      partial_shape: for a feature without a shape, the extents after the first, which follows from the number of
        values.
    """

    shape: tuple[int, ...] | None
    dtype: FeatureType
    default: Any
    partial_shape: tuple[int, ...] = ()

    def __post_init__(self):
        extents = (self.shape or ()) + self.partial_shape
        if self.dtype == string and self.shape != ():
            raise ArgumentError(
                f"a string feature is one string, FixedLenFeature((), tfrecord.string, ''); got shape {extents or None}"
            )
        if self.dtype == string and not isinstance(self.default, (str, bytes, type(None))):
            raise ArgumentTypeError(f"the default of a string feature must be a string, got {self.default!r}")
        if self.dtype != string and not isinstance(self.default, (int, float)):
            raise ArgumentTypeError(
                f"the default of a feature of {self.dtype.name} must be a number, got {self.default!r}"
            )
        if any(n < 1 for n in extents):
            raise ArgumentError(f"extents must be at least 1, got {extents}")

    @property
    def text(self) -> bytes:
        """The value for records that lack a string feature."""
        return self.default.encode() if isinstance(self.default, str) else self.default or b""


def FixedLenFeature(shape: Sequence[int], dtype: FeatureType, default_value: Any) -> Feature:
    """Describes a feature with the same number of values in each record.

    Args:
      shape: the shape of its values; ``()`` or ``[]``: one value, or a string.
      dtype: `int64`, `float32` or `string`.
      default_value: the value if a record lacks the feature: for all elements, or the text of a string.
    """
    return Feature(_extents(shape), _checked_type(dtype), default_value)


def VarLenFeature(*arguments: Any) -> Feature:
    """Describes a feature with any number of values: ``VarLenFeature(dtype, default)`` or
    ``VarLenFeature(partial_shape, dtype, default)``.

    Args:
      *arguments: the extents after the first, which follows from the number of values (without them the values are a
        vector); `int64`, `float32` or `string`; and a default value, which has no effect: if a record lacks the
        feature, it is empty.
    """
    if len(arguments) not in (2, 3):
        raise ArgumentTypeError(
            f"VarLenFeature takes (dtype, default) or (partial_shape, dtype, default), got {len(arguments)} arguments"
        )
    *partial_shapes, dtype, default = arguments
    return Feature(None, _checked_type(dtype), default, _extents(partial_shapes[0]) if partial_shapes else ())


def _extents(shape: Any) -> tuple[int, ...]:
    """A shape as a tuple. Raises ArgumentTypeError if it is no list of numbers."""
    try:
        return tuple(int(n) for n in shape)
    except TypeError:
        raise ArgumentTypeError(f"a shape must be a list of whole numbers, got {shape!r}") from None


def _checked_type(dtype: Any) -> FeatureType:
    try:
        return FeatureType(dtype)
    except ValueError:
        raise ArgumentTypeError(
            f"dtype must be tfrecord.int64, tfrecord.float32 or tfrecord.string, got {dtype!r}"
        ) from None


if not _TYPE_CHECKING:
    __all__, __dir__, __getattr__ = _names.index(
        __name__, globals(), "FixedLenFeature VarLenFeature float32 int64 string"
    )
