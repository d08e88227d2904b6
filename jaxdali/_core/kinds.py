"""Types of single values in annotations (`ValueKind`), their limits, and the functions that check and convert a
value.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import enum
import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np

from ..types import NO_TYPE, DALIDataType, ScalarConstant, dali_type_of, is_number, numpy_dtype


@dataclasses.dataclass(frozen=True)
class Range:
    """Limits of a number, or of each number of a list.

    Attributes:
      low, high: limits, which are part of the range, except `low` if `above` is set.
      above: only numbers above `low`.
      infinite: whether infinite numbers and NaN are accepted, as fill values are; without a `Range` they are not.
    """

    low: float = -math.inf
    high: float = math.inf
    above: bool = False
    infinite: bool = False

    def holds(self, x: np.ndarray) -> np.ndarray:
        """Tests each number: ``bool[...]``, True inside the range."""
        if self == Range():
            return np.isfinite(x)
        with np.errstate(invalid="ignore"):
            is_inside = ((x > self.low) if self.above else (x >= self.low)) & (x <= self.high)
            return is_inside | np.isnan(x) if self.infinite else is_inside & np.isfinite(x)

    def holds_all(self, x: np.ndarray) -> bool:
        """Whether all numbers are certainly inside the range. If False, `holds` decides. It is faster than `holds`."""
        if not x.size or self == Range(infinite=True):
            return True
        # Both are NaN if there is a NaN.
        smallest, largest = float(x.min()), float(x.max())
        is_above = smallest > self.low if self.above else smallest >= self.low
        return is_above and largest <= self.high and math.isfinite(smallest) and math.isfinite(largest)

    @property
    def inside(self) -> float:
        """A number inside the range: 0, or the limit nearest to it. In place of an excluded `low` it is ``low + 1``, or
        the middle of a short range.
        """
        nearest = min(max(0.0, self.low), self.high)
        return nearest if not self.above or nearest > self.low else min(self.low + 1, (self.low + self.high) / 2)

    def __str__(self) -> str:
        """The limits in the words of a message: "in 0 ... 1"; "" if there are none."""
        low, high = _limit_text(self.low), _limit_text(self.high)
        if low and high:
            return f"above {low}, at most {high}" if self.above else f"in {low} ... {high}"
        if low:
            return f"{'above' if self.above else 'at least'} {low}"
        return f"at most {high}" if high else ""


def _limit_text(x: float) -> str:
    """A limit, with all digits if it is a whole number of at most 64 bits; "" if it is infinite."""
    if not math.isfinite(x):
        return ""
    return str(int(x)) if abs(x) <= 2**63 and x == int(x) else f"{x:g}"


@dataclasses.dataclass(frozen=True, init=False)
class Len:
    """The lengths that a list may have: one of `counts`."""

    counts: tuple[int, ...]

    def __init__(self, *counts: int):
        object.__setattr__(self, "counts", counts)

    def __str__(self) -> str:
        return " or ".join(map(str, self.counts))


@dataclasses.dataclass(frozen=True, init=False)
class OneOf:
    """The only values allowed: members of an enum, or names of element types."""

    values: tuple[Any, ...]

    def __init__(self, *values: Any):
        object.__setattr__(self, "values", values)


class Mark(enum.Enum):
    """The kind of a part of an annotation."""

    DTYPE = "a numeric type such as types.FLOAT or np.float32"
    TENSOR = "an array of numbers, of any shape"
    WHOLE = "a number of a whole type"
    AUTO = "the string 'auto'"
    PER_SAMPLE = "a DataNode is allowed"
    PER_FRAME = "it may be a sequence, with a value for each frame"
    INPUT = "an input"
    EXTENTS = "extents: of an array fractions are dropped, as DALI takes it for values per sample"


DType = Annotated[DALIDataType | np.dtype | type | str, Mark.DTYPE]  # the operator gets a np.dtype
Whole = Annotated[int, Mark.WHOLE]  # an int of Python or NumPy, but no float or bool of the same value
Auto = Annotated[str, Mark.AUTO]
Tensor = Annotated[np.ndarray | jax.Array | Sequence, Mark.TENSOR]  # the operator gets a np.ndarray of float32
PER_SAMPLE, PER_FRAME, INPUT, EXTENTS = Mark.PER_SAMPLE, Mark.PER_FRAME, Mark.INPUT, Mark.EXTENTS


@dataclasses.dataclass(frozen=True)
class ValueKind:
    """A type of single values.

    Attributes:
      one: one such value in the words of a message: "a whole number".
      many: several such values in these words: "whole numbers".
      convert: converts a value to the form that the operator gets. Raises TypeError if it has another type, ValueError
        if it is not one of the allowed values.
      dtype: the type of an array of such values; None: there is none.
      members: the only numbers allowed; empty: any.
      enum: the enum of these values; None: there is none.
    """

    one: str
    many: str
    convert: Callable[[Any], Any]
    dtype: type | None = None
    members: tuple[int, ...] = ()
    enum: type[enum.Enum] | None = None


def _number(x: Any) -> bool | int | float:
    """The number that `x` stands for: of Python, NumPy or JAX, a `Constant`, or an array with one element.

    Raises TypeError for anything else, also for strings of digits and keys of `jax.random`.
    """
    if isinstance(x, (bool, int, float)):
        return x
    if isinstance(x, ScalarConstant):
        return x.value
    if isinstance(x, (str, bytes, list, tuple, dict)) or not hasattr(x, "__array__"):
        raise TypeError
    if isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jax.dtypes.extended):  # a key of jax.random
        raise TypeError
    a = np.asarray(x)
    if a.size != 1 or not (a.dtype == np.bool_ or is_number(a.dtype)):
        raise TypeError
    return a.reshape(()).item()


def _bool(x: Any) -> bool:
    """True or False, also from the numbers 0 and 1."""
    number = _number(x)
    if number not in (0, 1):
        raise TypeError
    return bool(number)


def _int(x: Any) -> int:
    """A whole number, also from the float 2.0. Raises TypeError for fractions."""
    number = _number(x)
    if not math.isfinite(number) or number != int(number):
        raise TypeError
    return int(number)


def _whole(x: Any) -> int:
    """A number of a whole type: unlike `_int`, this refuses the float 2.0, and True."""
    if isinstance(x, bool) or not hasattr(x, "__index__"):
        raise TypeError
    return x.__index__()


def _auto(x: Any) -> str:
    if not isinstance(x, str) or x != "auto":
        raise TypeError
    return x


def _float(x: Any) -> float:
    """The float of a number. Raises ValueError for an int that is too large for one."""
    try:
        number = float(_number(x))
    except OverflowError:
        raise ValueError from None
    # Always the same object, as NaN is not equal to NaN, and calls are compared.
    return math.nan if math.isnan(number) else number


def _tensor(x: Any) -> np.ndarray:
    """An array of float32 from an array or nested lists of numbers."""
    try:
        array = np.asarray(x)
    except ValueError:  # nested lists of unequal lengths
        raise TypeError from None
    if not (array.dtype == np.bool_ or is_number(array.dtype)):
        raise TypeError
    return array.astype(np.float32)


def _str(x: Any) -> str:
    if not isinstance(x, str):
        raise TypeError
    return str(x)


def _path(x: Any) -> str:
    if not isinstance(x, (str, os.PathLike)):
        raise TypeError
    return os.fsdecode(x)


def _function(x: Any) -> Any:
    if not callable(x):
        raise TypeError
    return x


def _dtype(x: Any) -> np.dtype | None:
    """The NumPy type of a type of DALI, NumPy or Python; None for NO_TYPE, which counts as not passed."""
    if isinstance(x, DALIDataType) and x == DALIDataType.INTERP_TYPE:
        return np.dtype(np.int32)  # what resize takes per sample: numbers of `DALIInterpType`
    try:
        return None if isinstance(x, DALIDataType) and x == NO_TYPE else numpy_dtype(x)
    except ValueError:  # NumPy's, of a list or a dict that describes no type
        raise TypeError from None


def member_kind(kind: type[enum.IntEnum], allowed: Sequence[Any]) -> ValueKind:
    """Members of an enum, or their numbers. `allowed`: the only members."""

    def convert(x: Any) -> enum.IntEnum:
        """The member. Raises TypeError for members of other enums, and ValueError for members not in `allowed`."""
        if is_foreign(x, kind):
            raise TypeError
        member = kind(_int(x))  # ValueError: there is none of this number
        if member not in allowed:
            raise ValueError
        return member

    names = ", ".join(f"types.{m.name}" for m in allowed)
    return ValueKind(f"one of {names}", f"of {names}", convert, dtype=int, members=tuple(map(int, allowed)), enum=kind)


def is_foreign(x: Any, kind: type[enum.Enum]) -> bool:
    """Whether `x` is a member of another enum, whose numbers mean something else."""
    return isinstance(x, enum.Enum) and not isinstance(x, kind)


# Names of other libraries for members of our enums. Those of Pillow, torchvision, OpenCV and tf.image agree.
_MEMBERS = {
    "NEAREST": "INTERP_NN",
    "BILINEAR": "INTERP_LINEAR",
    "LINEAR": "INTERP_LINEAR",
    "BICUBIC": "INTERP_CUBIC",
    "CUBIC": "INTERP_CUBIC",
    "LANCZOS": "INTERP_LANCZOS3",
    "LANCZOS3": "INTERP_LANCZOS3",
    "GAUSSIAN": "INTERP_GAUSSIAN",
    "AREA": "INTERP_AREA",
    "GRAYSCALE": "GRAY",
    "L": "GRAY",
    "YCBCR": "YCbCr",
    "UNCHANGED": "ANY_DATA",
}


def member_named(x: Any, kind: type[enum.Enum]) -> str:
    """The public name of the member of `kind` that others call `x`, an enum's member or a string; "" if it is not known."""
    name = x.name if isinstance(x, enum.Enum) else x if isinstance(x, str) else ""
    name = name.upper().replace("-", "_")
    name = _MEMBERS.get(name, name)
    if name not in kind.__members__:
        return ""
    return f"types.{name}" if issubclass(kind, enum.IntEnum) else f"{kind.__module__}.{kind.__name__}.{name}"


def device_named(name: Any) -> Any:
    """A device by DALI's name. DALI knows "cpu", "mixed" and "gpu" only; "gpu" means the accelerator that JAX has, so
    users of TPUs may call it "tpu". Anything but "tpu" is returned unchanged.
    """
    # Only strings are compared: an array would be compared element by element.
    return "gpu" if isinstance(name, str) and name == "tpu" else name


def choice_kind(values: tuple[Any, ...]) -> ValueKind:
    """The values of a `Literal`. Strings match in any case, except devices, which have other names, too."""

    def convert(x: Any) -> Any:
        """The value. Raises TypeError if no value has its type, and ValueError if it is none of the values."""
        if "gpu" in values:  # the argument `device`
            x = device_named(x)
        elif isinstance(x, str) and x not in values:
            x = x.lower()  # DALI takes borders and policies in any case
        if not any(type(x) is type(v) for v in values):
            raise TypeError
        if x not in values:
            raise ValueError
        return x

    names = ", ".join(map(repr, values))
    return ValueKind(names if len(values) == 1 else f"one of {names}", f"of {names}", convert)


def class_kind(kind: type) -> ValueKind:
    """Instances of a class."""

    def convert(x: Any) -> Any:
        if not isinstance(x, kind):
            raise TypeError
        return x

    kind_of_enum = kind if issubclass(kind, enum.Enum) else None
    return ValueKind(f"a {kind.__name__}", f"{kind.__name__}s", convert, enum=kind_of_enum)


def mapping_kind(kind: type) -> ValueKind:
    """Dicts from names to instances of a class."""

    def convert(x: Any) -> Any:
        """The dict, unchanged."""
        if not isinstance(x, Mapping) or not all(isinstance(k, str) and isinstance(v, kind) for k, v in x.items()):
            raise TypeError
        return x

    return ValueKind(f"a dict from names to {kind.__name__}s", f"dicts of {kind.__name__}s", convert)


def dict_kind(elements: Mapping[str, tuple[str, Callable[[Any], Any]]]) -> ValueKind:
    """A dict with exactly these keys. Each key has the description of its value, for messages, and a converter."""

    def convert(x: Any) -> Any:
        """The dict with converted values. Raises ValueError if it has other keys."""
        if not isinstance(x, Mapping):
            raise TypeError
        if x.keys() != elements.keys():
            raise ValueError
        return {key: convert(x[key]) for key, (_, convert) in elements.items()}

    keys = ", ".join(f"{key!r}: {expected}" for key, (expected, _) in elements.items())
    return ValueKind(f"a dict {{{keys}}}", f"dicts {{{keys}}}", convert)


_BOOL = ValueKind("True or False", "bools", _bool, bool)
_INT = ValueKind("a whole number", "whole numbers", _int, int)
FLOAT = ValueKind("a number", "numbers", _float, float)
MARKED = {
    Mark.TENSOR: ValueKind("an array of numbers", "arrays of numbers", _tensor),
    Mark.WHOLE: ValueKind("a whole number", "whole numbers", _whole, int),
    Mark.AUTO: ValueKind("'auto'", "'auto'", _auto),
}
KINDS = {
    bool: _BOOL,
    int: _INT,
    float: FLOAT,
    str: ValueKind("a string", "strings", _str),
    os.PathLike: ValueKind("a path", "paths", _path),
}
KINDS |= {collections.abc.Callable: ValueKind("a function", "functions", _function)}


def dtype_kind(allowed: tuple[np.dtype, ...] | None) -> ValueKind:
    """Numeric types, in any form that `types.numpy_dtype` takes. `allowed`: the only ones; None: all."""

    def convert(x: Any) -> np.dtype | None:
        """The NumPy type; None for NO_TYPE. Raises TypeError for a type that is not allowed."""
        dtype = _dtype(x)
        if dtype is not None and allowed is not None and dtype not in allowed:
            raise TypeError
        return dtype

    names = "a numeric type such as types.FLOAT or np.float32"
    if allowed is not None:
        names = f"one of {', '.join(f'types.{dali_type_of(t).name}' for t in allowed)}"
    return ValueKind(names, names.replace("a numeric type", "numeric types"), convert)
