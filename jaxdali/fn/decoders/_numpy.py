"""decoders.numpy: arrays from the contents of .npy files."""

from __future__ import annotations

import io
import math
from typing import Literal, Unpack

import numpy as np

from ..._core.declaration import DType
from ..._core.graph import DataNode
from ..._core.operator_function import Hints, Input, operator_function
from ..._data.npy import read_header
from .._families.conversion import convert
from .._families.serialized_array import SerializedArray


class DecodeNumpy(SerializedArray):
    """Decodes the array of each file."""

    name = "decoders.numpy"
    contents = "files"

    def decode(self, data: np.ndarray) -> np.ndarray:
        """The array of one file, in C order and native byte order. Raises ValueError."""
        content = data.tobytes()
        with io.BytesIO(content) as f:
            shape, fortran, dtype = read_header(f)
            start, count = f.tell(), math.prod(shape)
        if len(content) != start + count * dtype.itemsize:
            raise ValueError(f"it has {len(content)} bytes, but its header describes {start + count * dtype.itemsize}")
        x = np.frombuffer(content, dtype, count, start).reshape(shape, order="F" if fortran else "C")
        return convert(np, np.array(x, dtype.newbyteorder("="), order="C"), self.dtype or dtype.newbyteorder("="))


@operator_function(DecodeNumpy)
def numpy(
    data: Input,
    /,
    *,
    dtype: DType | None = None,
    device: Literal["cpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """Decodes arrays from the contents of NumPy's ``.npy`` files.

    All samples must have the same number of dimensions and, unless `dtype` is given, the same type as the first batch.

    Args:
      data: the files, 1-D uint8.
      dtype: the type that elements are converted to, rounded and saturated. Default: the stored type.

    Returns:
      The arrays, in C order. A host value.

    Raises:
      OperatorError: samples of different types or numbers of dimensions, or none of a batch can be decoded.
      SampleError: a sample is not an ``.npy`` file, ends early, is longer than its header says, or has elements that
        are neither numbers nor bool.

    Unlike DALI, this reads all versions of the format, and big-endian arrays.

    Example:
      >>> arrays = fn.decoders.numpy(fn.io.file.read(paths))
    """
    ...
