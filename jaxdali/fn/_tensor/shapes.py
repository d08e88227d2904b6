"""The shapes of samples, as a value."""

from __future__ import annotations

from typing import Annotated, Literal, Unpack

import numpy as np

from ... import types
from ..._core.building import add
from ..._core.context import HostContext
from ..._core.declaration import DType, OneOf
from ..._core.graph import DataNode
from ..._core.operator import HostOperator
from ..._core.operator_function import Input, TypeHints, operator_function
from ..._core.values import Spec, Value
from .._families.conversion import convert


class Shapes(HostOperator):
    """The shape of each sample. It always runs on the host, where shapes are known before anything is launched."""

    name = "shapes"
    dtype: np.dtype

    def run_reads(self, i: int) -> bool:
        return False

    def infer(self, x: Spec) -> tuple[Spec, ...]:
        return (Spec(self.dtype, 1, (x.ndim,)),)

    def run(self, ctx: HostContext, x: Value) -> tuple[np.ndarray]:
        return (convert(np, np.ascontiguousarray(x.shapes, np.int64).reshape(len(x), x.spec.ndim), self.dtype),)


@operator_function("shapes")
def shapes(
    input: Input,
    /,
    *,
    dtype: Annotated[DType, OneOf("int32", "uint32", "int64", "uint64", "float32", "float64")] = types.INT64,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[TypeHints],
) -> DataNode:
    """The shape of each sample.

    The result is a host value, even for an input on the accelerator, so it can be an argument of other operators.

    Args:
      input: any tensor, with D dimensions.
      dtype: element type of the result: INT32, UINT32, INT64, UINT64, FLOAT or FLOAT64.
      device: with "gpu", the result is put on the accelerator. Default: the host.
      name: name of the node.

    Returns:
      1-D: the D extents.

    Raises:
      TypeError: an unsupported `dtype`.

    Example:
      >>> height = images.shape()[0]
    """
    op = Shapes(dtype=types.numpy_dtype(dtype))
    # It runs on the host; a result for the accelerator is copied there.
    return add(op, input, name=name).gpu() if device == "gpu" else add(op, input, device=device, name=name)
