"""Descriptions of the features of TensorFlow's examples, under DALI's and TensorFlow's names:
``tfrecord.FixedLenFeature((), tfrecord.string, "")``.

They are for `fn.readers.tfrecord`, `fn.readers.array_record` and `fn.parse_example`. An element type is `int64`,
`float32` or `string`, the only ones that examples have, or the same type of NumPy, JAX or TensorFlow; ``bytes`` and
``str`` are `string`, too.
"""

from __future__ import annotations

import dataclasses
import enum
import math
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any

import numpy as np

from ._core import names as _names
from ._core.errors import ArgumentError, ArgumentTypeError
from .types import DALIDataType


class FeatureType(enum.IntEnum):
    """Types of features."""

    int64 = 0
    string = 1
    float32 = 2


_MOST_VALUES = 1 << 37  # that a batch can address, see `plan_offsets`
_KINDS = "FixedLenFeature", "VarLenFeature", "FixedLenSequenceFeature", "RaggedFeature", "LengthsFeature"
_PARTITIONS = "RowSplits", "RowLengths", "RowStarts", "RowLimits", "ValueRowIds", "UniformRowLength"

int64 = FeatureType.int64
string = FeatureType.string
float32 = FeatureType.float32


@dataclasses.dataclass(frozen=True)
class Partition:
    """How the values of a `RaggedFeature` are divided into rows; made by the classes of `RaggedFeature`.

    Attributes:
      kind: the name of the class.
      key: the name of the feature with the partition's numbers; the length of each row if it is uniform.
    """

    kind: str
    key: str | int

    def __post_init__(self):
        if self.kind not in _PARTITIONS or isinstance(self.key, str) == (self.kind == "UniformRowLength"):
            raise ArgumentTypeError(
                f"a partition has the name of a feature, and UniformRowLength a number, got {self.kind}({self.key!r})"
            )


@dataclasses.dataclass(frozen=True)
class Feature:
    """One feature of each record; made by the functions of this module.

    Attributes:
      kind: the name of the function.
      dtype: `int64`, `float32` or `string`.
      shape: of the values of a `FixedLenFeature`, where one extent may be None; of a row of a
        `FixedLenSequenceFeature`; the extents after the first of a `VarLenFeature`.
      default: the value for records that lack a `FixedLenFeature`: a number or bytes for all elements, or a tuple with
        each of them. None: they are an error.
      allow_missing: whether records may lack a `FixedLenSequenceFeature`.
      key: the name of the feature with the values of a `RaggedFeature` (None: its own), or of the feature whose lengths
        a `LengthsFeature` gives.
      partitions: of a `RaggedFeature`.
    """

    kind: str
    dtype: FeatureType
    shape: tuple[int | None, ...] = ()
    default: Any = None
    allow_missing: bool = False
    key: str | None = None
    partitions: tuple[Partition, ...] = ()

    def __post_init__(self):
        if self.kind not in _KINDS:
            raise ArgumentError(f"there is no feature {self.kind}")
        if any(n is not None and n < 1 for n in self.shape):
            raise ArgumentError(f"extents must be at least 1, got {self.shape}")
        if (size := math.prod(n for n in self.shape if n is not None)) > _MOST_VALUES:
            raise ArgumentError(f"the shape {self.shape} has {size} values, a batch has at most {_MOST_VALUES}")
        if self.shape.count(None) > (self.kind == "FixedLenFeature"):
            raise ArgumentError(
                f"the shape of a {self.kind} may have one extent of None, got {self.shape}"
                if self.kind == "FixedLenFeature"
                else f"all extents of a {self.kind} must be known, got {self.shape}"
            )

    @property
    def is_string(self) -> bool:
        """Whether an output is one string, ``uint8[bytes]``."""
        return self.kind == "FixedLenFeature" and self.dtype == string and self.shape in ((), (1,))


def FixedLenFeature(shape: Sequence[int | None], dtype: Any, default_value: Any = None) -> Feature:
    """Describes a feature with the same number of values in each record.

    Args:
      shape: the shape of its values; ``()`` or ``[]``: one value. One string is ``uint8[bytes]``, also with the shape
        ``[1]``. A record with several strings is then an error; only `fn.readers.tfrecord` takes the first of them if
        there is a default value, as DALI does. Several strings are ``uint8[*shape, longest]``, where zeros follow
        shorter ones. One extent may be None: it follows from the number of values, such as ``(None, 4)`` for boxes (not
        in DALI).
      dtype: `int64`, `float32` or `string`.
      default_value: the value if a record lacks the feature: a number, text or bytes for all elements, or a list with
        each of them. None: a record that lacks the feature is an error. With an extent of None it must be a list.

    Differs from DALI: `default_value` may be left out, as in TensorFlow.
    """
    kind, extents = _checked_type(dtype), _extents(shape)
    return Feature("FixedLenFeature", kind, extents, _default(default_value, kind, extents))


def VarLenFeature(*arguments: Any, dtype: Any = None) -> Feature:
    """Describes a feature with any number of values: ``VarLenFeature(dtype)``, ``VarLenFeature(dtype, default)`` or
    ``VarLenFeature(partial_shape, dtype, default)``.

    Its values are a vector, ``[n]`` or ``[n, *partial_shape]``, and strings are ``uint8[n, longest]``, where zeros
    follow shorter ones. If a record lacks the feature, it is empty. In a feature list each step has a row of values:
    ``[steps, longest]``, where zeros follow shorter rows. `LengthsFeature` gives the lengths of strings and rows.

    Args:
      *arguments: the extents after the first, which follows from the number of values; `int64`, `float32` or `string`;
        and a default value, which has no effect, as in DALI.
      dtype: the type, if it is passed by name.

    Differs from TensorFlow: the values are not a sparse tensor.
    """
    if dtype is not None:
        arguments = (*arguments, dtype)
    *partial_shapes, kind, default = arguments if len(arguments) > 1 else (*arguments, None, None)[:2]
    if len(arguments) == 2 and isinstance(arguments[0], (list, tuple)):
        partial_shapes, kind, default = [arguments[0]], arguments[1], None
    if len(arguments) not in (1, 2, 3):
        raise ArgumentTypeError(
            f"VarLenFeature takes (dtype), (dtype, default) or (partial_shape, dtype, default), got {len(arguments)} arguments"
        )
    checked_type = _checked_type(kind)
    _default(default, checked_type, ())
    return Feature("VarLenFeature", checked_type, _extents(partial_shapes[0]) if partial_shapes else ())


def FixedLenSequenceFeature(
    shape: Sequence[int], dtype: Any, allow_missing: bool = False, default_value: Any = None
) -> Feature:
    """Describes a feature whose values are any number of rows of one shape; not in DALI.

    Its values are ``[rows, *shape]``, and strings ``uint8[rows, *shape, longest]``, where zeros follow shorter ones. In
    a feature list, each step is a row.

    Args:
      shape: the shape of a row; ``()``: one value.
      dtype: `int64`, `float32` or `string`.
      allow_missing: whether a record may lack the feature, which then has no rows. If not, such a record is an error.
      default_value: None, or 0 or "". TensorFlow fills the shorter samples of a batch with it; here each sample keeps
        its rows. ``fn.pad(fill_value=...)`` pads with other values.

    Differs from TensorFlow: outside of feature lists, too, `allow_missing` may be False.
    """
    if default_value not in (None, 0, "", b""):
        raise ArgumentError(
            f"default_value, with which TensorFlow pads batches, must be None, 0 or '', got {default_value!r}: samples keep their rows, "
            "and fn.pad(fill_value=...) pads them"
        )
    return Feature("FixedLenSequenceFeature", _checked_type(dtype), _extents(shape), allow_missing=bool(allow_missing))


class RaggedFeature:
    """Describes a feature with any number of values, which other features may divide into rows; not in DALI.

    Without partitions its values are those of a `VarLenFeature`. Each partition, the outermost first, adds an axis: the
    output is ``[rows, longest]``, where zeros follow shorter rows, and for strings ``uint8[rows, longest, bytes]``. If
    numbers have one partition, `LengthsFeature` gives the lengths of the rows.

    Args:
      dtype: `int64`, `float32` or `string`.
      value_key: the name of the feature in the record with the values; None: that of this feature.
      partitions: ``RaggedFeature.RowLengths(key)``, ``RowSplits(key)``, ``RowStarts(key)``, ``RowLimits(key)``,
        ``ValueRowIds(key)`` or ``UniformRowLength(length)``. Feature lists have none: their steps are rows already.
      row_splits_dtype, validate: of TensorFlow (int32 or int64; bool), without effect: the outputs have no row splits,
        and partitions that contradict the values are always an error.

    Example:
      >>> tfrecord.RaggedFeature(tfrecord.int64, "words", [tfrecord.RaggedFeature.RowLengths("sentences")])
    """

    def __new__(
        cls,
        dtype: Any,
        value_key: str | None = None,
        partitions: Sequence[Partition] = (),
        row_splits_dtype: Any = None,
        validate: bool = False,
    ) -> Feature:
        if row_splits_dtype is not None and _type_name(row_splits_dtype) not in ("int32", "int64"):
            raise ArgumentTypeError(f"row_splits_dtype must be int32 or int64, got {row_splits_dtype!r}")
        if not isinstance(partitions, (list, tuple)) or not all(isinstance(p, Partition) for p in partitions):
            raise ArgumentTypeError(
                f"partitions must be a list of RaggedFeature.RowLengths(key) and the like, got {partitions!r}"
            )
        return Feature("RaggedFeature", _checked_type(dtype), key=value_key, partitions=tuple(partitions))

    @staticmethod
    def RowSplits(key: str) -> Partition:
        """The ends of all rows in the values, after a 0."""
        return Partition("RowSplits", key)

    @staticmethod
    def RowLengths(key: str) -> Partition:
        """The length of each row."""
        return Partition("RowLengths", key)

    @staticmethod
    def RowStarts(key: str) -> Partition:
        """The place in the values where each row begins."""
        return Partition("RowStarts", key)

    @staticmethod
    def RowLimits(key: str) -> Partition:
        """The place in the values where each row ends."""
        return Partition("RowLimits", key)

    @staticmethod
    def ValueRowIds(key: str) -> Partition:
        """The number of the row of each value."""
        return Partition("ValueRowIds", key)

    @staticmethod
    def UniformRowLength(length: int) -> Partition:
        """The one length of all rows."""
        if isinstance(length, bool) or not isinstance(length, (int, np.integer)) or length < 1:
            raise ArgumentError(f"the length of rows must be a number of at least 1, got {length!r}")
        return Partition("UniformRowLength", int(length))


def LengthsFeature(name: str) -> Feature:
    """Describes the lengths of another feature's strings or rows, which its output pads with zeros; not in DALI.

    Its values are ``int64[n]``: for strings the bytes of each, for rows of a feature list or of a `RaggedFeature` the
    number of values in each.

    Args:
      name: of the other feature, in the same dictionary.

    Example:
      >>> features = {"words": tfrecord.VarLenFeature(tfrecord.string), "sizes": tfrecord.LengthsFeature("words")}
    """
    if not isinstance(name, str):
        raise ArgumentTypeError(f"the name of a feature must be a text, got {name!r}")
    return Feature("LengthsFeature", int64, key=name)


def _extents(shape: Any) -> tuple[int | None, ...]:
    """A shape as a tuple, where None and -1 are unknown extents. Raises ArgumentTypeError if it is no list of numbers."""
    shape = (shape,) if isinstance(shape, (int, np.integer)) and not isinstance(shape, bool) else shape
    try:
        return tuple(None if n is None or n == -1 else operator.index(n) for n in shape)
    except TypeError:
        raise ArgumentTypeError(f"a shape must be a list of whole numbers, got {shape!r}") from None


def _default(value: Any, dtype: FeatureType, shape: tuple[int | None, ...]) -> Any:
    """A default value in the form of `Feature.default`, for values of this shape. Raises ArgumentTypeError or
    ArgumentError.
    """
    if value is None:
        return None
    elements = np.array(value, object).reshape(-1).tolist() if not isinstance(value, (str, bytes)) else [value]
    expected = "a string" if dtype == string else "a number"
    if not all(isinstance(x, (str, bytes) if dtype == string else (int, float, np.number)) for x in elements):
        raise ArgumentTypeError(
            f"the default of a {'string feature' if dtype == string else f'feature of {dtype.name}'} must be {expected}, got {value!r}"
        )
    elements = [x.encode() if isinstance(x, str) else x for x in elements]
    elements = [x.item() if isinstance(x, np.generic) else x for x in elements]
    if dtype == int64 and not all(x % 1 == 0 and -(2**63) <= x < 2**63 for x in elements):
        raise ArgumentTypeError(f"the default of a feature of int64 must be a whole number of 64 bits, got {value!r}")
    is_list = not isinstance(value, (str, bytes)) and np.ndim(np.array(value, object)) > 0
    known_size = math.prod(n for n in shape if n is not None)
    if None in shape:
        if not is_list or len(elements) % known_size:
            raise ArgumentError(
                f"the default of a feature with an unknown extent must be a list of its values, such as [], or None; got {value!r}"
            )
    elif is_list and len(elements) not in (1, known_size):
        raise ArgumentError(f"the default has {len(elements)} values, the feature's shape {shape} has {known_size}")
    return tuple(elements) if None in shape or len(elements) != 1 else elements[0]


def _checked_type(dtype: Any) -> FeatureType:
    """The type that the user's dtype means. Raises ArgumentTypeError if examples have no such type."""
    name = _type_name(dtype)
    if name not in FeatureType.__members__:
        raise ArgumentTypeError(
            f"dtype must be tfrecord.int64, tfrecord.float32 or tfrecord.string, got {dtype!r}: examples have no other types"
        )
    return FeatureType[name]


def _type_name(dtype: Any) -> str:
    """NumPy's name of a dtype, "string" for texts and bytes; "" if it is no dtype."""
    if dtype in (bytes, str):
        return "string"
    if isinstance(dtype, DALIDataType):
        return {DALIDataType.INT64: "int64", DALIDataType.FLOAT: "float32"}.get(dtype, dtype.name)
    if isinstance(dtype, str):
        return dtype
    if isinstance(dtype, int):
        return FeatureType(dtype).name if dtype in list(FeatureType) else ""
    if hasattr(dtype, "as_numpy_dtype"):  # of TensorFlow
        return dtype.name
    try:
        numpy_type = np.dtype(dtype)
    except TypeError:
        return ""
    return "string" if numpy_type.kind in "SU" else numpy_type.name


if not _TYPE_CHECKING:
    __all__, __dir__, __getattr__ = _names.index(
        __name__,
        globals(),
        "FixedLenFeature FixedLenSequenceFeature LengthsFeature RaggedFeature VarLenFeature float32 int64 string",
    )
