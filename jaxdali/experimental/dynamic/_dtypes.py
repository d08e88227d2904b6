"""DALI's element types of dynamic mode."""

from __future__ import annotations

import enum
from typing import Any

import numpy as np

from ... import types

_EXPONENTS = {16: 5, 32: 8, 64: 11}  # bits of the exponents of floats, by DALI's default


class DType:
    """An element type, e.g. `float32`. It is accepted, and compares, wherever a NumPy dtype is.

    Attributes:
      kind; name: DALI's, e.g. "f32".
      bits, bytes: size of an element.
      exponent_bits, significand_bits: of floats; None of other types.
      type_id: the member of `DALIDataType`.
      dtype: NumPy's type; None if there is none.
    """

    class Kind(enum.Enum):
        """The kind of the elements."""

        signed = enum.auto()
        unsigned = enum.auto()
        float = enum.auto()
        bool = enum.auto()
        enum = enum.auto()

    def __init__(
        self,
        kind: Kind,
        bits: int,
        exponent_bits: int | None = None,
        significand_bits: int | None = None,
        bytes: int | None = None,
        type_id: types.DALIDataType | None = None,
        name: str | None = None,
    ):
        self.kind, self.bits, self.bytes = kind, bits, bytes or (bits + 7) // 8
        self.exponent_bits = self.significand_bits = None
        if kind is DType.Kind.float:
            if exponent_bits is None and bits not in _EXPONENTS:
                raise ValueError(f"a float of {bits} bits needs exponent_bits and significand_bits")
            self.exponent_bits = exponent_bits or _EXPONENTS[bits]
            self.significand_bits = significand_bits or bits - self.exponent_bits - 1
        known = next((x for x in _known if x._facts == self._facts), None) if kind is not DType.Kind.enum else None
        self.type_id = known.type_id if known and type_id is None else type_id
        self.dtype = (
            None if self.type_id is None or kind is DType.Kind.enum else np.dtype(types.to_numpy_type(self.type_id))
        )
        self.name = name or (known.name if known else self._named())

    def _named(self) -> str:
        if self.kind is DType.Kind.bool:
            return "bool"
        usual = self.exponent_bits in (None, _EXPONENTS.get(self.bits))
        return f"{self.kind.name[0]}{self.bits}".replace("s", "i") + (
            "" if usual else f"e{self.exponent_bits}m{self.significand_bits}"
        )

    @property
    def _facts(self) -> tuple[Any, ...]:
        return (
            self.kind,
            self.bits,
            self.exponent_bits,
            self.significand_bits,
            self.type_id if self.kind is DType.Kind.enum else None,
        )

    @staticmethod
    def from_type_id(type_id: types.DALIDataType) -> DType:
        """The type of a member of `DALIDataType`. KeyError: DALI's tensors have no such elements."""
        return next((x for x in _known if x.type_id == type_id), None) or _missing(type_id)

    @staticmethod
    def from_fw_type(numpy_type: Any) -> DType:
        """The type of a NumPy, JAX or PyTorch dtype. TypeError: DALI has none for it."""
        return DType.from_type_id(types.to_dali_type(numpy_type))

    @staticmethod
    def parse(name: str) -> DType:
        """The type of a name: DALI's, e.g. "f32", or NumPy's. ValueError: there is none."""
        found = next((x for x in _known if x.name == name), None)
        try:
            return found or DType.from_fw_type(name)
        except TypeError:
            raise ValueError(f"{name!r} is no element type; types are {', '.join(x.name for x in _known)}") from None

    def __eq__(self, other: object) -> bool:
        if isinstance(other, DType):
            return self._facts == other._facts
        try:
            return self.dtype is not None and self.dtype == types.numpy_dtype(other)
        except TypeError:
            return NotImplemented

    def __hash__(self) -> int:
        return hash(self._facts if self.dtype is None else self.dtype)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        parts = {
            "kind": self.kind,
            "bits": self.bits,
            "exponent_bits": self.exponent_bits,
            "significand_bits": self.significand_bits,
        }
        return f"DType({', '.join(f'{n}={x}' for n, x in parts.items() if x is not None)})"

    def __reduce__(self) -> Any:
        return DType, (
            self.kind,
            self.bits,
            self.exponent_bits,
            self.significand_bits,
            self.bytes,
            self.type_id,
            self.name,
        )


def _missing(type_id: Any) -> Any:
    raise KeyError(type_id)


_known: list[DType] = []
for _kind, _ids in {
    DType.Kind.signed: (types.INT8, types.INT16, types.INT32, types.INT64),
    DType.Kind.unsigned: (types.UINT8, types.UINT16, types.UINT32, types.UINT64),
    DType.Kind.float: (types.FLOAT16, types.FLOAT, types.FLOAT64),
    DType.Kind.bool: (types.BOOL,),
}.items():
    _known += [DType(_kind, 8 * np.dtype(types.to_numpy_type(i)).itemsize, type_id=i) for i in _ids]
_known.append(DType(DType.Kind.float, 16, 8, 7, type_id=types.BFLOAT16, name="bfloat16"))
for _name, _id in {"DataType": types.DATA_TYPE, "ImageType": types.IMAGE_TYPE, "InterpType": types.INTERP_TYPE}.items():
    _known.append(DType(DType.Kind.enum, 32, type_id=_id, name=_name))

_of_numpy = {x.dtype: x for x in _known if x.dtype is not None}


def of_numpy(array_type: Any) -> DType:
    """The type of a tensor's elements."""
    return _of_numpy[np.dtype(array_type)]


def dtype(*x: Any) -> DType:
    """An element type: of a member of `DALIDataType`, of its name, or of what NumPy takes; or a new one by the
    arguments of `DType`.

    Raises:
      TypeError, KeyError, ValueError: there is none.
    """
    if len(x) != 1:
        return DType(*x)
    if isinstance(x[0], DType):
        return x[0]
    if isinstance(x[0], types.DALIDataType):
        return DType.from_type_id(x[0])
    return DType.parse(x[0]) if isinstance(x[0], str) else DType.from_fw_type(x[0])


def numpy_of(x: Any) -> np.dtype:
    """NumPy's type for one that a user passes. TypeError: it has no elements of numbers."""
    found = dtype(x).dtype
    if found is None:
        raise TypeError(f"tensors of {x} are not in jaxdali: enumeration members are passed as they are")
    return found


def type_id(x: Any) -> types.DALIDataType:
    """DALI's number for an element type; `NO_TYPE` if it has none."""
    found = dtype(x).type_id
    return types.NO_TYPE if found is None else found
