"""parse_tensor: arrays from TensorFlow's serialized tensors."""

from __future__ import annotations

from typing import Literal, Unpack

import numpy as np

from ..._core.declaration import DType
from ..._core.graph import DataNode
from ..._core.operator_function import Hints, Input, operator_function
from ..._data.tensor_proto import tensor_of
from .._families.conversion import convert
from .._families.serialized_array import SerializedArray


class ParseTensor(SerializedArray):
    """Parses the tensor of each sample."""

    name = "parse_tensor"
    contents = "serialized tensors"

    def decode(self, data: np.ndarray) -> np.ndarray:
        x = tensor_of(np.ascontiguousarray(data).data)
        return convert(np, x, self.dtype or x.dtype)


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
