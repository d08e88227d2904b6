"""decoders.numpy: arrays from the contents of .npy files."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import Literal, Unpack

import numpy as np

from ..._core.context import BuildContext, HostContext
from ..._core.declaration import DType
from ..._core.graph import DataNode
from ..._core.operator import Operator, SampleOperator
from ..._core.operator_function import Hints, Input, operator_function
from ..._core.values import Spec, Value
from ..._cpu import Status
from ..._data.npy import read_header
from .._families.conversion import convert


class DecodeNumpy(SampleOperator):
    """Decodes the array of each file. The first batch determines type and number of dimensions."""

    name = "decoders.numpy"
    dtype: np.dtype | None

    def bind(self, ctx: BuildContext, *specs: Spec) -> Operator:
        (data,) = specs
        if data.ndim != 1 or data.dtype != np.uint8:
            raise TypeError(f"the input must be files as 1-D uint8, got {data.ndim}-D {data.dtype}")
        return self

    def layout_of(self, i: int, ndim: int) -> str:
        return ""

    def call_samples(self, ctx: HostContext, inputs: Sequence[Value]) -> Sequence[Sequence[np.ndarray | None]]:
        """See `SampleOperator.call_samples`. None stands for a sample that is absent or that failed."""
        (data,) = inputs
        samples: list[np.ndarray | None] = [None] * ctx.N
        reasons: dict[int, str] = {}  # by failed sample
        for i in np.flatnonzero(ctx.present).tolist():
            try:
                samples[i] = self._decode(data.sample(i))
            except ValueError as e:
                reasons[i] = str(e)
        # Failed samples are replaced by arrays of the others' type, so at least one is needed.
        if len(reasons) == np.count_nonzero(ctx.present):
            raise ValueError(f"sample {min(reasons)}: {reasons[min(reasons)]}")
        for i, reason in reasons.items():
            ctx.fail(i, Status.RECORD, reason)
        return [samples]

    def _decode(self, data: np.ndarray) -> np.ndarray:
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
