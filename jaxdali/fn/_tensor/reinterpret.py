"""reinterpret: another shape, layout or element type of the same bytes."""

from __future__ import annotations

from typing import Literal, Unpack

from ..._core.declaration import DType
from ..._core.graph import DataNode
from ..._core.operator_function import Hints, Input, OneOrMore, PerSample, operator_function
from .reshape import Reshape, add_reshape


class Reinterpret(Reshape):
    """A reshape with another element type."""

    name = "reinterpret"


@operator_function("reinterpret")
def reinterpret(
    data: Input,
    shape_input: Input | None = None,
    /,
    *,
    shape: PerSample[OneOrMore[int]] | None = None,
    rel_shape: PerSample[OneOrMore[float]] | None = None,
    src_dims: OneOrMore[int] | None = None,
    layout: str | None = None,
    dtype: DType | None = None,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """Reinterprets the bytes of each sample as another element type and shape.

    Args:
      data: any tensor.
      shape_input, shape, rel_shape, src_dims, layout: as in `reshape`, in elements of the new type. If none is given,
        the last extent is adjusted.
      dtype: the new element type. Default: the input's.

    Returns:
      A tensor with the same bytes.

    Raises:
      ArgumentError: as in `reshape`.
      OperatorError: a sample does not have the bytes that its new shape needs.

    Example:
      >>> floats = fn.reinterpret(file_bytes, dtype=types.FLOAT)
    """
    return add_reshape(Reinterpret, dtype, data, shape_input, shape, rel_shape, src_dims, layout, device, name)
