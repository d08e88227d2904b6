"""Types, enums and constants under DALI's names: ``types.FLOAT``, ``types.INTERP_LINEAR``, ``types.RGB``,
``types.Constant``.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Sequence
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any

import ml_dtypes
import numpy as np

from . import _cpu
from ._core import names as _names
from ._core.language import language as _language


class _Enum(enum.IntEnum):
    def __repr__(self) -> str:
        return f"<{type(self).__name__}.{self.name}: {int(self)}>"

    def __str__(self) -> str:
        return f"{type(self).__name__}.{self.name}"


class DALIDataType(_Enum):
    """Element types. BFLOAT16 is not in DALI."""

    UINT8 = 0
    UINT16 = 1
    UINT32 = 2
    UINT64 = 3
    INT8 = 4
    INT16 = 5
    INT32 = 6
    INT64 = 7
    FLOAT16 = 8
    FLOAT = 9
    FLOAT64 = 10
    BOOL = 11
    STRING = 12
    FEATURE = 17
    IMAGE_TYPE = 20
    DATA_TYPE = 21
    INTERP_TYPE = 22
    TENSOR_LAYOUT = 23
    PYTHON_OBJECT = 24
    NO_TYPE = -1
    BFLOAT16 = 1008  # not in DALI, whose numbers are much smaller

    def __call__(self) -> str:
        """The name of the NumPy type, e.g. ``"float32"``, so that DALI's older ``tensor.dtype()`` also works."""
        return np.dtype(to_numpy_type(self)).name


class DALIInterpType(_Enum):
    """Interpolation filters of resizing and warping. DALI does not have `INTERP_AREA`."""

    INTERP_NN = _cpu.Interp.NN
    INTERP_LINEAR = _cpu.Interp.LINEAR
    INTERP_CUBIC = _cpu.Interp.CUBIC
    INTERP_LANCZOS3 = _cpu.Interp.LANCZOS3
    INTERP_TRIANGULAR = _cpu.Interp.TRIANGULAR
    INTERP_GAUSSIAN = _cpu.Interp.GAUSSIAN
    INTERP_AREA = _cpu.Interp.AREA


class DALIImageType(_Enum):
    """Colour spaces of decoded images."""

    RGB = _cpu.ImageType.RGB
    BGR = _cpu.ImageType.BGR
    GRAY = _cpu.ImageType.GRAY
    YCbCr = _cpu.ImageType.YCBCR
    ANY_DATA = _cpu.ImageType.ANY


UINT8 = DALIDataType.UINT8
UINT16 = DALIDataType.UINT16
UINT32 = DALIDataType.UINT32
UINT64 = DALIDataType.UINT64
INT8 = DALIDataType.INT8
INT16 = DALIDataType.INT16
INT32 = DALIDataType.INT32
INT64 = DALIDataType.INT64
FLOAT16 = DALIDataType.FLOAT16
BFLOAT16 = DALIDataType.BFLOAT16
FLOAT = DALIDataType.FLOAT
FLOAT64 = DALIDataType.FLOAT64
BOOL = DALIDataType.BOOL
STRING = DALIDataType.STRING
FEATURE = DALIDataType.FEATURE
IMAGE_TYPE = DALIDataType.IMAGE_TYPE
DATA_TYPE = DALIDataType.DATA_TYPE
INTERP_TYPE = DALIDataType.INTERP_TYPE
TENSOR_LAYOUT = DALIDataType.TENSOR_LAYOUT
PYTHON_OBJECT = DALIDataType.PYTHON_OBJECT
NO_TYPE = DALIDataType.NO_TYPE
INTERP_NN = DALIInterpType.INTERP_NN
INTERP_LINEAR = DALIInterpType.INTERP_LINEAR
INTERP_CUBIC = DALIInterpType.INTERP_CUBIC
INTERP_LANCZOS3 = DALIInterpType.INTERP_LANCZOS3
INTERP_TRIANGULAR = DALIInterpType.INTERP_TRIANGULAR
INTERP_GAUSSIAN = DALIInterpType.INTERP_GAUSSIAN
INTERP_AREA = DALIInterpType.INTERP_AREA
RGB = DALIImageType.RGB
BGR = DALIImageType.BGR
GRAY = DALIImageType.GRAY
YCbCr = DALIImageType.YCbCr
ANY_DATA = DALIImageType.ANY_DATA

TensorLayout = str  # layouts are plain strings such as "HWC"
CPU_ONLY_DEVICE_ID = -99999  # as a device_id it means None, like all negative numbers
NHWC = "HWC"  # DALI's aliases; the batch axis is not part of a layout
NCHW = "CHW"
NFHWC = "FHWC"
NFCHW = "FCHW"
SAME = ""  # the layout of an output is that of the input

_TO_NUMPY: dict[DALIDataType, type] = {
    UINT8: np.uint8,
    UINT16: np.uint16,
    UINT32: np.uint32,
    UINT64: np.uint64,
    INT8: np.int8,
    INT16: np.int16,
    INT32: np.int32,
    INT64: np.int64,
    FLOAT16: np.float16,
    FLOAT: np.float32,
    FLOAT64: np.float64,
    BOOL: np.bool_,
    BFLOAT16: ml_dtypes.bfloat16,
}
_FROM_NUMPY = {np.dtype(n): d for d, n in _TO_NUMPY.items()}


def _checked_data_type(dtype: Any) -> DALIDataType:
    """The `DALIDataType` of a number. Raises TypeError for a member of another enum, whose numbers mean something else."""
    if isinstance(dtype, enum.Enum) and not isinstance(dtype, DALIDataType):
        raise TypeError(
            f"expected a numeric type such as types.FLOAT, got {dtype!r}, whose number means something else"
        )
    return DALIDataType(dtype)


def to_numpy_type(dali_type: DALIDataType) -> type:
    """The NumPy scalar type of a `DALIDataType`. Raises TypeError for types that don't hold numbers."""
    try:
        return _TO_NUMPY[_checked_data_type(dali_type)]
    except (KeyError, ValueError):
        raise TypeError(
            f"{dali_type!r} has no NumPy equivalent; numeric types are {', '.join(t.name for t in _TO_NUMPY)}"
        ) from None


def to_dali_type(framework_type: Any) -> DALIDataType:
    """The `DALIDataType` of a NumPy, JAX or PyTorch dtype, or of its name.

    As in DALI, the name ``"float"`` (and Python's ``float``) means 32 bits. Raises TypeError for types that DALI does
    not have.
    """
    return _FROM_NUMPY[numpy_dtype(framework_type)]


def numpy_dtype(x: Any) -> np.dtype:
    """The NumPy dtype that `x` names.

    Args:
      x: a `DALIDataType`, a NumPy, JAX or PyTorch dtype, a name, or Python's ``bool``, ``int`` (32 bits), ``float`` (32
        bits).

    Raises:
      TypeError: `x` is none of these, or not a numeric type.
    """
    if isinstance(x, DALIDataType):
        return np.dtype(to_numpy_type(x))
    types_by_name = {
        bool: np.bool_,
        int: np.int32,
        float: np.float32,
        "int": np.int32,
        "float": np.float32,
        "half": np.float16,
    }
    text = str(x)  # of PyTorch's dtypes "torch.float32", ...
    if text.startswith("torch."):
        x = text.removeprefix("torch.")
    try:
        if isinstance(x, (type, str)) and x in types_by_name:
            return np.dtype(types_by_name[x])
        # For NumPy, None means float64.
        dtype = np.dtype(x) if x is not None and not isinstance(x, (int, float)) else None
    except (TypeError, UnicodeError):  # the latter for a name that is not a string
        dtype = None
    if dtype is None or dtype not in _FROM_NUMPY:
        raise TypeError(f"expected a numeric type such as types.FLOAT or np.float32, got {x!r}")
    return dtype


def dali_type_of(dtype: Any) -> DALIDataType:
    """Like `to_dali_type`, but `NO_TYPE` for other types."""
    return _FROM_NUMPY.get(np.dtype(dtype), NO_TYPE)


def is_float(dtype: np.dtype) -> bool:
    """Whether the type is float16, float32, float64 or bfloat16 (which comes from ml_dtypes and has the kind "V")."""
    return dtype.kind == "f" or dtype == ml_dtypes.bfloat16


def is_number(dtype: np.dtype) -> bool:
    """Whether the type is an integer or a float."""
    return dtype.kind in "iu" or is_float(dtype)


@dataclasses.dataclass(frozen=True, eq=False)
class ScalarConstant:
    """A number of a definite type, for arithmetic with a `DataNode`; made by `Constant`.

    Attributes:
      value: a Python bool, int or float.
      dtype: its type in type promotion. Default: INT32, FLOAT or BOOL, or the type of a NumPy scalar.
    """

    value: bool | int | float
    dtype: DALIDataType

    def __init__(self, value: Any, dtype: DALIDataType | None = None):
        value_dtype = getattr(value, "dtype", None)  # of a NumPy scalar or an array
        if value_dtype is not None and np.size(value) == 1:
            value = np.asarray(value).item()
            dtype = to_dali_type(value_dtype) if dtype is None else dtype
        if not isinstance(value, (bool, int, float)):
            raise TypeError(f"ScalarConstant: expected a bool, an int or a float, got {type(value).__name__}")
        if dtype is None:
            dtype = BOOL if isinstance(value, bool) else INT32 if isinstance(value, int) else FLOAT
        # The dataclass is frozen.
        object.__setattr__(self, "dtype", _checked_data_type(dtype))
        object.__setattr__(self, "value", _as_python_number(value, self.dtype))

    @property
    def shape(self) -> list[int]:
        return []

    def _as(self, dtype: DALIDataType) -> ScalarConstant:
        return ScalarConstant(self.value, dtype)

    def bool(self) -> ScalarConstant:
        return self._as(BOOL)

    def int8(self) -> ScalarConstant:
        return self._as(INT8)

    def int16(self) -> ScalarConstant:
        return self._as(INT16)

    def int32(self) -> ScalarConstant:
        return self._as(INT32)

    def int64(self) -> ScalarConstant:
        return self._as(INT64)

    def uint8(self) -> ScalarConstant:
        return self._as(UINT8)

    def uint16(self) -> ScalarConstant:
        return self._as(UINT16)

    def uint32(self) -> ScalarConstant:
        return self._as(UINT32)

    def uint64(self) -> ScalarConstant:
        return self._as(UINT64)

    def float16(self) -> ScalarConstant:
        return self._as(FLOAT16)

    def bfloat16(self) -> ScalarConstant:
        return self._as(BFLOAT16)

    def float32(self) -> ScalarConstant:
        return self._as(FLOAT)

    def float64(self) -> ScalarConstant:
        return self._as(FLOAT64)

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.asarray(self.value, numpy_dtype(self.dtype) if dtype is None else dtype)

    def __bool__(self):
        return True if self.value else False

    def __int__(self):
        return int(self.value)

    def __float__(self):
        return float(self.value)

    def __eq__(self, other: Any) -> Any:
        if isinstance(other, ScalarConstant):
            return self.value == other.value and self.dtype == other.dtype
        return NotImplemented  # a DataNode makes a node of it

    def __hash__(self):
        return hash((self.value, self.dtype))

    def __str__(self) -> str:
        return f"{self.value}:{self.dtype}"

    def __repr__(self) -> str:
        return repr(self.value)


def _as_python_number(value: Any, dtype: DALIDataType) -> Any:
    """Converts a value to a Python bool, int or float. Raises ValueError if it is outside the range of an integer type."""
    target = numpy_dtype(dtype)
    if target == np.bool_:
        return True if value else False
    if is_float(target):
        return float(value)
    number, limits = int(value), np.iinfo(target)
    if not limits.min <= number <= limits.max:
        raise ValueError(f"the constant {value} is outside the range of {dtype.name}: {limits.min} ... {limits.max}")
    return number


def Constant(
    value: Any,
    dtype: DALIDataType | None = None,
    shape: Sequence[int] | None = None,
    layout: str | None = None,
    device: str | None = None,
    name: str | None = None,
) -> Any:
    """Makes a constant for a pipeline definition.

    Args:
      value: a number, a list of numbers or an array.
      dtype: element type. Default: an array's own type (64-bit integers and floats become 32 bits, as in DALI), and
        INT32, FLOAT or BOOL for Python numbers.
      shape: the shape that a scalar is repeated to, or an array is reshaped to. Default: the shape of `value`; a list
        is 1-D.
      layout: layout of the tensor, e.g. ``"HWC"``.
      device: with ``"gpu"``, the constant is put on the accelerator.
      name: the name of the node.

    Returns:
      A `ScalarConstant` if the value is one number and `shape`, `layout`, `device` and `name` are not given; it sets
      the type of a number in arithmetic: ``image * types.Constant(3).uint8()``. Otherwise a `DataNode`, the same tensor
      for every sample.

    Raises:
      ValueError: the value is outside the range of its type.
      TypeError: the value is not numeric.
    """
    if isinstance(value, ScalarConstant):
        dtype = value.dtype if dtype is None else dtype
        value = value.value
    is_scalar = isinstance(value, (bool, int, float, np.generic)) or np.ndim(value) == 0
    is_scalar_shape = shape is None or tuple(np.atleast_1d(shape).tolist()) in ((), (1,))  # as in DALI, also [1]
    if is_scalar and is_scalar_shape and layout is None and device is None and name is None:
        return ScalarConstant(value, dtype)
    array = _language().narrowed(value) if dtype is None else _convert_array(value, numpy_dtype(dtype))
    if shape is not None:
        array = np.broadcast_to(array, tuple(shape)) if array.size == 1 else array.reshape(tuple(shape))
    return _language().array_node(array, layout=layout or "", device=device, name=name)


def ConstantNode(
    device: str, value: Any, dtype: DALIDataType | None, shape: Sequence[int] | None, layout: str | None
) -> Any:
    """Makes a constant that is always a `DataNode`: `Constant` with its arguments in another order, as in DALI.

    Args:
      device, value, dtype, shape, layout: see `Constant`.
    """
    return Constant(value, dtype, shape, layout, device)


def _raw_cuda_stream(stream: Any) -> Any:
    """The address of a CUDA stream: that of an object that has one, otherwise `stream`. Copies of DALI's
    `feed_ndarray`, which many programs have, call it.
    """
    return getattr(stream, "cuda_stream", stream)


def _convert_array(value: Any, dtype: np.dtype) -> np.ndarray:
    """Converts a value to an array. Raises ValueError if an integer is outside the range of an integer type."""
    array = np.asarray(value)
    if dtype.kind in "iu" and array.size and array.dtype.kind in "iu":
        for x in (array.max(), array.min()):
            _as_python_number(x, to_dali_type(dtype))  # only to check the range
    return array.astype(dtype)


@dataclasses.dataclass(frozen=True)
class SampleInfo:
    """The argument that `fn.external_source` passes to a per-sample source.

    Attributes:
      idx_in_epoch: number of the sample in the epoch.
      idx_in_batch: number of the sample in the batch.
      iteration: number of the batch in the epoch.
      epoch_idx: number of the epoch.
    """

    idx_in_epoch: int
    idx_in_batch: int
    iteration: int
    epoch_idx: int


@dataclasses.dataclass(frozen=True)
class BatchInfo:
    """The argument that `fn.external_source` passes to a per-batch source with ``batch_info=True``.

    Attributes:
      iteration: number of the batch in the epoch.
      epoch_idx: number of the epoch.
    """

    iteration: int
    epoch_idx: int


if not _TYPE_CHECKING:
    __all__, __dir__, __getattr__ = _names.index(
        __name__,
        globals(),
        "ANY_DATA BFLOAT16 BGR BOOL BatchInfo CPU_ONLY_DEVICE_ID Constant ConstantNode DALIDataType DALIImageType DALIInterpType "
        "DATA_TYPE FEATURE FLOAT FLOAT16 FLOAT64 GRAY IMAGE_TYPE INT16 INT32 INT64 INT8 INTERP_AREA INTERP_CUBIC INTERP_GAUSSIAN "
        "INTERP_LANCZOS3 INTERP_LINEAR INTERP_NN INTERP_TRIANGULAR INTERP_TYPE NCHW NFCHW NFHWC NHWC NO_TYPE PYTHON_OBJECT RGB "
        "SAME STRING SampleInfo ScalarConstant TENSOR_LAYOUT TensorLayout UINT16 UINT32 UINT64 UINT8 YCbCr to_dali_type "
        "to_numpy_type",
    )
