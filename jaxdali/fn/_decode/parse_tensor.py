"""parse_tensor: arrays from TensorFlow's serialized tensors."""

from __future__ import annotations

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
from ..._data.tensor_proto import tensor_of
from .._families.conversion import convert


class ParseTensor(SampleOperator):
    """Parses the tensor of each sample. The first batch determines type and number of dimensions."""

    name = "parse_tensor"
    dtype: np.dtype | None

    def bind(self, ctx: BuildContext, *specs: Spec) -> Operator:
        (data,) = specs
        if data.ndim != 1 or data.dtype != np.uint8:
            raise TypeError(
                f"the input must be serialized tensors, 1-D uint8 (a message's bytes), got {data.ndim}-D {data.dtype}"
            )
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
                x = tensor_of(np.ascontiguousarray(data.sample(i)).data)
                samples[i] = convert(np, x, self.dtype or x.dtype)
            except ValueError as e:
                reasons[i] = str(e)
        # Failed samples are replaced by arrays of the others' type, so at least one is needed.
        if len(reasons) == np.count_nonzero(ctx.present):
            raise ValueError(f"sample {min(reasons)}: {reasons[min(reasons)]}")
        for i, reason in reasons.items():
            ctx.fail(i, Status.RECORD, reason)
        return [samples]


@operator_function(ParseTensor)
def parse_tensor(
    serialized: Input,
    /,
    *,
    dtype: DType | None = None,
    device: Literal["cpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """Parses TensorFlow's serialized tensors, as ``tf.io.serialize_tensor`` writes them (``TensorProto``). Not in DALI.

    All samples must have the same number of dimensions and, unless `dtype` is given, the same type as the first batch.

    Args:
      serialized: the messages, 1-D uint8, as `parse_example` gives a feature of one string.
      dtype: the type that elements are converted to, rounded and saturated. Default: the stored type.

    Returns:
      The arrays. A host value.

    Raises:
      OperatorError: samples of different types or numbers of dimensions, or none of a batch can be parsed.
      SampleError: a message is damaged, its shape does not fit its values, a value is repeated for more than 1 GiB, or
        its elements are neither numbers nor bool: strings, complex and quantized numbers are refused.

    Differs from TensorFlow: `dtype` converts; it need not be the stored type.

    Example:
      >>> features = {"latents": tfrecord.FixedLenFeature((), tfrecord.string)}
      >>> latents = fn.parse_tensor(fn.parse_example(records, features=features)["latents"])
    """
    ...
