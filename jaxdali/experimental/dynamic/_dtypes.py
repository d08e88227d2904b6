"""DALI's element types of dynamic mode."""

from __future__ import annotations

import enum
from typing import Any

import numpy as np

from ... import types

_EXPONENTS = {16: 5, 32: 8, 64: 11}  # IEEE 754: bits of the exponent for the bits of a float, DALI's defaults


class DType:
    """An element type, e.g. `float32`. It is accepted, and compares, wherever a NumPy dtype is.

    Attributes:
      kind: of the elements.
      name: DALI's, e.g. "f32".
      bits, bytes: size of an element.
      exponent_bits, significand_bits: of a float; None for other types.
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
            # One bit is the sign.
            self.significand_bits = significand_bits or bits - self.exponent_bits - 1
        # A type with the same fields as one of DALI's is that type. Those of enums are made with their `type_id`.
        predefined = (
            next((x for x in _DTYPES if x._identity == self._identity), None) if kind is not DType.Kind.enum else None
        )
        self.type_id = predefined.type_id if predefined and type_id is None else type_id
        self.dtype = (
            None if self.type_id is None or kind is DType.Kind.enum else np.dtype(types.to_numpy_type(self.type_id))
        )
        self.name = name or (predefined.name if predefined else self._default_name())

    def _default_name(self) -> str:
        """DALI's name of the type, e.g. "i8", or "f16e8m7" for a float with an unusual exponent."""
        if self.kind is DType.Kind.bool:
            return "bool"
        has_default_exponent = self.exponent_bits in (None, _EXPONENTS.get(self.bits))
        # The first letter of the kind, but "i" for signed integers.
        return f"{self.kind.name[0]}{self.bits}".replace("s", "i") + (
            "" if has_default_exponent else f"e{self.exponent_bits}m{self.significand_bits}"
        )

    @property
    def _identity(self) -> tuple[Any, ...]:
        """The fields by which types are compared."""
        return (
            self.kind,
            self.bits,
            self.exponent_bits,
            self.significand_bits,
            self.type_id if self.kind is DType.Kind.enum else None,
        )

    @staticmethod
    def from_type_id(type_id: types.DALIDataType) -> DType:
        """The type of a member of `DALIDataType`. Raises KeyError if tensors have no such elements."""
        return next((x for x in _DTYPES if x.type_id == type_id), None) or _raise_key_error(type_id)

    @staticmethod
    def from_fw_type(numpy_type: Any) -> DType:
        """The type of a NumPy, JAX or PyTorch dtype. Raises TypeError if DALI has no such type."""
        return DType.from_type_id(types.to_dali_type(numpy_type))

    @staticmethod
    def parse(name: str) -> DType:
        """The type with DALI's name, e.g. "f32", or NumPy's. Raises ValueError if there is none."""
        predefined = next((x for x in _DTYPES if x.name == name), None)
        try:
            return predefined or DType.from_fw_type(name)
        except TypeError:
            raise ValueError(f"{name!r} is no element type; types are {', '.join(x.name for x in _DTYPES)}") from None

    def __eq__(self, other: object) -> bool:
        if isinstance(other, DType):
            return self._identity == other._identity
        try:
            return self.dtype is not None and self.dtype == types.numpy_dtype(other)
        except TypeError:
            return NotImplemented

    def __hash__(self) -> int:
        return hash(self._identity if self.dtype is None else self.dtype)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        fields = {
            "kind": self.kind,
            "bits": self.bits,
            "exponent_bits": self.exponent_bits,
            "significand_bits": self.significand_bits,
        }
        return f"DType({', '.join(f'{n}={x}' for n, x in fields.items() if x is not None)})"

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


def _raise_key_error(type_id: Any) -> Any:
    raise KeyError(type_id)


_DTYPES: list[DType] = []
for _kind, _ids in {
    DType.Kind.signed: (types.INT8, types.INT16, types.INT32, types.INT64),
    DType.Kind.unsigned: (types.UINT8, types.UINT16, types.UINT32, types.UINT64),
    DType.Kind.float: (types.FLOAT16, types.FLOAT, types.FLOAT64),
    DType.Kind.bool: (types.BOOL,),
}.items():
    _DTYPES += [DType(_kind, 8 * np.dtype(types.to_numpy_type(i)).itemsize, type_id=i) for i in _ids]
_DTYPES.append(DType(DType.Kind.float, 16, 8, 7, type_id=types.BFLOAT16, name="bfloat16"))
for _name, _id in {"DataType": types.DATA_TYPE, "ImageType": types.IMAGE_TYPE, "InterpType": types.INTERP_TYPE}.items():
    _DTYPES.append(DType(DType.Kind.enum, 32, type_id=_id, name=_name))

_DTYPE_OF_NUMPY = {x.dtype: x for x in _DTYPES if x.dtype is not None}


def dtype_of_numpy(array_type: Any) -> DType:
    """The type of a tensor's elements."""
    return _DTYPE_OF_NUMPY[np.dtype(array_type)]


def dtype(*x: Any) -> DType:
    """Converts a member of `DALIDataType`, a name, or a dtype of NumPy, JAX or PyTorch into a `DType`; or makes one
    from the arguments of `DType`.

    Raises:
      TypeError, KeyError, ValueError: there is no such type.
    """
    if len(x) != 1:
        return DType(*x)
    if isinstance(x[0], DType):
        return x[0]
    if isinstance(x[0], types.DALIDataType):
        return DType.from_type_id(x[0])
    return DType.parse(x[0]) if isinstance(x[0], str) else DType.from_fw_type(x[0])


def numpy_of(x: Any) -> np.dtype:
    """Converts an element type that a user passes into a NumPy dtype.

    Raises TypeError for types of enumeration members.
    """
    numpy_dtype = dtype(x).dtype
    if numpy_dtype is None:
        raise TypeError(f"tensors of {x} are not in jaxdali: enumeration members are passed as they are")
    return numpy_dtype


def type_id(x: Any) -> types.DALIDataType:
    """The member of `DALIDataType` for an element type; `NO_TYPE` if there is none."""
    number = dtype(x).type_id
    return types.NO_TYPE if number is None else number
