"""The values that an argument may have, read from the annotation of its parameter: one checker for all arguments.

Annotations are ordinary types, which an editor and a type checker understand. `Annotated` adds what types can't
express::

    mode: Literal["default", "stretch"] | None = None
    num_shards: Annotated[int, Range(1)] = 1
    probability: Annotated[PerSample[float], Range(0, 1)] = 0.5
    angle: PerFrame[float] = 0.0                                          # also one for each frame of a sequence
    axis: Annotated[PerSample[ListOf[float]] | None, Len(3)] = None
    size: PerSample[OneOrMore[float]] | None = None                       # one number, or one per axis
    dtype: Annotated[DType | None, OneOf("int32", "float32")] = None
"""

from __future__ import annotations

import collections.abc
import dataclasses
import enum
import inspect
import os
import reprlib
import types as python_types
import typing
from collections.abc import Collection, Mapping
from typing import Annotated, Any, Literal, Union

import jax
import jax.numpy as jnp
import numpy as np

from ..types import ScalarConstant
from .errors import ArgumentError, ArgumentTypeError, quoted
from .kinds import EXTENTS as EXTENTS
from .kinds import (
    FLOAT,
    KINDS,
    MARKED,
    Mark,
    ValueKind,
    choice_kind,
    class_kind,
    dict_kind,
    dtype_kind,
    mapping_kind,
    member_kind,
    member_named,
)
from .kinds import INPUT as INPUT
from .kinds import PER_FRAME as PER_FRAME
from .kinds import PER_SAMPLE as PER_SAMPLE
from .kinds import Auto as Auto
from .kinds import DType as DType
from .kinds import Len as Len
from .kinds import OneOf as OneOf
from .kinds import Range as Range
from .kinds import Tensor as Tensor
from .kinds import Whole as Whole
from .names import hint


@dataclasses.dataclass(frozen=True)
class Argument:
    """A parameter of a public function, and the values that are accepted for it.

    Attributes:
      name: of the parameter.
      kinds: types of a value, or of the elements of a list; empty: any value is accepted.
      single: whether one value is accepted.
      many: whether a list of values is accepted.
      required: whether it must be passed.
      default: the value that None stands for. If the annotation has None and the default is another value, None stands
        for itself.
      is_input: whether it is an input of the operator instead of an argument.
      per_sample: whether a DataNode with a value for each sample is accepted.
      range: limits of the numbers.
      lengths: allowed lengths of a list; empty: any.
      per_frame: whether it may be a sequence, with a value for each frame of a sample.
      gaps: whether elements of a list may be None.
      nested: whether elements of a list may be lists themselves.
      takes_none: whether None is a valid value.
      extents: whether the values are extents: of those in an array fractions are dropped, and they become at least 1.
    """

    name: str
    kinds: tuple[ValueKind, ...]
    single: bool
    many: bool
    required: bool
    default: Any
    is_input: bool
    per_sample: bool
    range: Range
    lengths: tuple[int, ...]
    per_frame: bool = False
    gaps: bool = False
    nested: bool = False
    takes_none: bool = False
    extents: bool = False

    @property
    def expected(self) -> str:
        """The allowed values, in words."""
        limits = f" {self.range}" if str(self.range) else ""
        finite = "" if limits or self.range.infinite or FLOAT not in self.kinds else "finite "
        forms = []
        if self.single:
            forms.append(
                " or ".join(dict.fromkeys(k.one for k in self.kinds)).replace("a number", f"a {finite}number") + limits
            )
        if self.many:
            count = f"{Len(*self.lengths)} " if self.lengths else ""
            gaps = " or None" if self.gaps else ""
            forms.append(
                f"a list of {count}{finite}{' or '.join(dict.fromkeys(k.many for k in self.kinds))}{limits}{gaps}"
            )
        if self.nested:
            forms.append("a list of such lists")
        if self.per_sample:
            forms.append("a batch with a value per sample")
        return ", or ".join(forms)

    def error(self, owner: str, x: Any, error_type: type[Exception] = ArgumentError) -> Exception:
        """The error for a value that is not accepted.

        Args:
          owner: the operator or class that has the argument, for the message; "": none.
          x: the value.
        """
        shown = (
            reprlib.repr(x)
            if isinstance(x, (bool, int, float, str, bytes, list, tuple, dict, enum.Enum))
            else _short(x)
        )
        advice = hint(f"fn.{owner}(device={x!r})") if self.name == "device" else ""
        advice = advice or self._advice(x)
        return error_type(
            f"{owner}{': ' * bool(owner)}argument {self.name} must be {self.expected}, got {shown}{'; ' * bool(advice)}{advice}"
        )

    def _advice(self, x: Any) -> str:
        """Advice for a user who passed this value and may mean another, for an error message; "" if there is none."""
        enum_type = next((k.enum for k in self.kinds if k.enum is not None), None)
        if enum_type is not None and (member_name := member_named(x, enum_type)):
            return f"it is {member_name} here"
        if enum_type is not None and isinstance(x, enum.Enum):
            return "numbers of other enums mean something else"
        if is_key(x) and "seed" in self.name:
            return f"a seed is a number, {self.name}=0 in place of jax.random.key(0); functions of jaxdali.dynamic take key="
        if self._takes_paths and (with_zero := _path_with_zero(x)) is not None:
            return f"{quoted(with_zero)} has a zero byte, which no path has"
        if self.many and isinstance(x, (collections.abc.Iterator, collections.abc.Set, collections.abc.MappingView)):
            return f"{self.name}=list(...) makes a list of it"
        match self.name, x:
            case "device", str() if "'gpu'" in self.expected:
                return "'gpu' and 'tpu' both name the accelerator that JAX has"
            case "shuffle", True:
                return "random_shuffle=True shuffles as in DALI"
            case "crop", int() | float():
                return f"crop=({x:g}, {x:g}) is (height, width)"
            case "labels", [str(), *_]:
                return "names of classes become numbers, [classes.index(name) for name in names]"
            case "labels", [float() | [*_], *_] | np.ndarray():
                return (
                    'fn.readers.source({"path": files, "label": labels}) takes other ones, such as floats, and '
                    "fn.io.file.read the files of the paths"
                )
            case "horizontal" | "vertical" | "depthwise" | "mirror", float() if 0 < x < 1:
                return f"fn.random.coin_flip(probability={x}) is 1 for some samples, and 0 for the others"
            case _, [int() | float(), int() | float()] if self.per_sample and not self.many and FLOAT in self.kinds:
                return "fn.random.uniform(range=(low, high)) is a random number for each sample"
        return ""

    def check(self, owner: str, x: Any) -> Any:
        """Checks a value and converts it to the form that the function gets.

        None becomes the default, a list becomes a tuple, and a type becomes a `np.dtype`.

        Raises:
          ArgumentTypeError: the value has another type, or is None although it is required.
          ArgumentError: the value is not allowed.
        """
        if x is None:
            if self.required:
                raise ArgumentTypeError(
                    f"{owner}: argument {self.name} is required: {self.expected or 'it must not be None'}"
                )
            return self.default
        if not self.kinds:
            return x
        try:
            value = self.convert(x)
        except ValueError:
            raise self.error(owner, x) from None
        except TypeError:
            raise self.error(owner, x, ArgumentTypeError) from None
        if value is None and self.required:
            raise self.error(owner, x)
        return self.default if value is None else value

    def convert(self, x: Any) -> Any:
        """Converts a value that is not None to one value, or to a tuple if it is a list. Raises TypeError or ValueError
        without a message.
        """
        if self.many:
            if _is_list(x):
                if self.per_sample and not self.nested and hasattr(x, "__array__"):
                    # A matrix is flattened, as a matrix that comes per sample is.
                    x = np.ravel(x)
                    # DALI takes extents in an array for values per sample, which it makes whole.
                    x = np.maximum(1, np.trunc(x)) if self.extents else x
                # A list of lists becomes a tuple of tuples.
                convert_element = (
                    dataclasses.replace(self, nested=False).convert
                    if self.nested and any(map(_is_list, x))
                    else self.element
                )
                values = tuple(None if e is None and self.gaps else convert_element(e) for e in x)
                if self.lengths and len(values) not in self.lengths:
                    raise ValueError
                return values
            if not self.single:
                raise TypeError
        # A list with one number stands for the number.
        elif isinstance(x, (list, tuple)) and len(x) == 1 and any(k.dtype for k in self.kinds):
            x = x[0]
        return self.element(x)

    @property
    def _takes_paths(self) -> bool:
        return KINDS[os.PathLike] in self.kinds

    def element(self, x: Any) -> Any:
        """One value, converted by the first kind that accepts it. Raises ValueError if a kind accepts the type, or the
        number is outside the range; otherwise TypeError.
        """
        has_wrong_value = False
        for kind in self.kinds:
            try:
                value = kind.convert(x)
            except TypeError:
                continue
            except ValueError:
                has_wrong_value = True
                continue
            if (
                isinstance(value, (int, float))
                and not isinstance(value, bool)
                and not self.range.holds(np.asarray(float(value)))
            ):
                raise ValueError
            # Native code would open the file whose name ends at the zero byte.
            if isinstance(value, str) and "\0" in value and self._takes_paths:
                raise ValueError
            return value
        raise ValueError if has_wrong_value else TypeError


def _is_list(x: Any) -> bool:
    """Whether a value counts as a list: also a range, and an array with at least one axis."""
    return isinstance(x, (list, tuple, range)) or (
        hasattr(x, "__array__") and not isinstance(x, ScalarConstant) and np.ndim(x) > 0
    )


def _path_with_zero(x: Any) -> str | None:
    """The first path with a zero byte among paths, which may be in lists; None: there is none."""
    if isinstance(x, (list, tuple)):
        return next((path for e in x if (path := _path_with_zero(e)) is not None), None)
    return os.fsdecode(x) if isinstance(x, (str, os.PathLike)) and "\0" in os.fsdecode(x) else None


def is_key(x: Any) -> bool:
    """Whether `x` is a key of `jax.random`, typed or, as `jax.random.PRNGKey` makes them, of numbers."""
    if not isinstance(x, jax.Array):
        return False
    # Of numbers, a key has two for the generator "threefry2x32", and four for "rbg".
    return jnp.issubdtype(x.dtype, jax.dtypes.prng_key) or (x.dtype == np.uint32 and x.ndim == 1 and x.size in (2, 4))


def _short(x: Any) -> str:
    """A description of a value in a few words, instead of its long repr."""
    if isinstance(x, jax.Array) and is_key(x):
        return "a key of jax.random"
    if isinstance(x, (np.ndarray, np.generic, jax.Array)):
        return (
            f"an array of shape {x.shape} and type {x.dtype}" if x.size > 4 else f"the array {np.asarray(x).tolist()}"
        )
    if isinstance(x, ScalarConstant):
        return str(x)
    return f"a {type(x).__name__}" if not isinstance(x, type) else f"the class {x.__name__}"


def parse(name: str, annotation: Any, default: Any, skipped: tuple[type, ...] = ()) -> Argument:
    """The argument that a parameter describes.

    Args:
      annotation: its resolved annotation, with the metadata of `Annotated`.
      default: its default, or `inspect.Parameter.empty`.
      skipped: types in the annotation that stand for a value per sample, and say nothing about a single value.
    """
    kinds: dict[Any, None] = {}  # the kinds of values, as an ordered set
    # The types in the annotation, of one value and of the elements of a list: each a class, a `Mark`, a `ValueKind`, or
    # the tuple of the values of a `Literal`.
    single: list[Any] = []
    many: list[Any] = []
    metadata: dict[type, Any] = {}  # the Range, the Len and the OneOf of the annotation, by their classes
    marks: set[Mark] = set()
    gaps = nested = takes_none = False

    def walk(t: Any, target: list[Any]):
        """Appends the types in the annotation `t` to `target`, which is `single` or `many`."""
        nonlocal gaps, nested, takes_none
        origin, parts = typing.get_origin(t), typing.get_args(t)
        if origin is Annotated:
            for m in t.__metadata__:
                if isinstance(m, Mark):
                    marks.add(m)
                else:
                    metadata[type(m)] = m  # a Range, Len or OneOf
            if Mark.DTYPE in t.__metadata__:
                target.append(Mark.DTYPE)
            elif value_marks := [m for m in t.__metadata__ if m in MARKED]:
                target.extend(value_marks)
            elif Mark.INPUT not in t.__metadata__:  # the operator looks at inputs itself
                walk(t.__origin__, target)
        elif origin in (Union, python_types.UnionType):
            for part in parts:
                walk(part, target)
        elif origin in (collections.abc.Sequence, list, tuple):
            nested = nested or target is many  # a sequence inside of a sequence
            for part in parts:
                if part is not Ellipsis:
                    walk(part, many)
        elif origin is collections.abc.Mapping:
            target.append(mapping_kind(parts[1]))
        elif origin is Literal:
            target.append(parts)
        elif typing.is_typeddict(t):
            hints = typing.get_type_hints(t, include_extras=True)
            elements = {key: parse(key, hint, inspect.Parameter.empty) for key, hint in hints.items()}
            target.append(dict_kind({key: (e.expected, e.convert) for key, e in elements.items()}))
        elif t is type(None):  # None in a list, or in place of the value
            gaps, takes_none = gaps or target is many, takes_none or target is single
        elif t not in (np.ndarray, *skipped):
            target.append(origin or t)

    walk(annotation, single)
    one_of = metadata.get(OneOf)
    for t in (*single, *many):
        if isinstance(t, tuple):
            kinds[choice_kind(t)] = None
        elif isinstance(t, ValueKind):
            kinds[t] = None
        elif t is Mark.DTYPE:
            allowed = None if one_of is None else tuple(np.dtype(v) for v in one_of.values)
            kinds[dtype_kind(allowed)] = None
        elif isinstance(t, Mark):
            kinds[MARKED[t]] = None
        elif t in KINDS:
            kinds[KINDS[t]] = None
        elif isinstance(t, type) and issubclass(t, enum.IntEnum):
            kinds[member_kind(t, tuple(t) if one_of is None else one_of.values)] = None
        elif isinstance(t, type) and t is not object and t.__module__ not in ("collections.abc", "typing", "builtins"):
            kinds[class_kind(t)] = None
        else:  # anything: the function looks at it itself
            kinds = {}
            break
    required = default is inspect.Parameter.empty
    # With None as the default, None only means that the argument is not passed.
    argument = Argument(
        name=name,
        kinds=tuple(kinds),
        single=bool(single),
        many=bool(many),
        required=required,
        default=None if required else default,
        is_input=Mark.INPUT in marks,
        per_sample=Mark.PER_SAMPLE in marks,
        range=metadata.get(Range, Range()),
        lengths=metadata[Len].counts if Len in metadata else (),
        per_frame=Mark.PER_FRAME in marks,
        gaps=gaps,
        nested=nested,
        takes_none=takes_none and not required and default is not None,
        extents=Mark.EXTENTS in marks,
    )
    if argument.default is None or argument.is_input or not argument.kinds:
        return argument
    # A default has the same form as a checked value.
    return dataclasses.replace(argument, default=argument.convert(default))


def checked(owner: str, name: str, annotation: Any, x: Any) -> Any:
    """Checks and converts one value like an argument with this annotation, for callers that are not operators."""
    return parse(name, annotation, inspect.Parameter.empty).check(owner, x)


def check_fields(owner: str, settings: Any, names: Collection[str] | None = None):
    """Checks the fields of a dataclass by their annotations, as arguments are checked, and stores the checked values.

    None becomes the default, or stays None if the annotation allows it.

    Args:
      owner: the class in the words of messages.
      settings: the dataclass.
      names: the fields that are checked; None: all.

    Raises:
      ArgumentError, ArgumentTypeError: as for arguments. One value in a list is not a value.
    """
    hints = typing.get_type_hints(type(settings), include_extras=True)
    for field in dataclasses.fields(settings):
        if names is not None and field.name not in names:
            continue
        default = inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default
        argument = parse(field.name, hints[field.name], default)
        x = getattr(settings, field.name)
        # For arguments a list with one number stands for the number, but not here.
        if argument.kinds and not argument.many and (isinstance(x, (list, tuple, set)) or getattr(x, "ndim", 0)):
            if is_key(x):
                raise argument.error(owner, x, ArgumentTypeError)
            raise ArgumentTypeError(f"{owner}: argument {field.name} must be one value, got {x!r}")
        if x is not None or not argument.takes_none:
            object.__setattr__(settings, field.name, argument.check(owner, x))  # the dataclass may be frozen


def arguments_of(
    signature: inspect.Signature, hints: Mapping[str, Any], skipped: tuple[type, ...] = ()
) -> dict[str, Argument]:
    """The arguments of a function, by name.

    Args:
      signature: of the function.
      hints: its resolved annotations (`typing.get_type_hints` with ``include_extras=True``).
      skipped: types in annotations that stand for a value per sample, and say nothing about a single value.
    """
    return {n: parse(n, hints.get(n, object), p.default, skipped) for n, p in signature.parameters.items()}
