"""Copies: `fn.copy`, ``node.gpu()``, ``node.cpu()``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Unpack

import numpy as np

from ..._core.building import add, as_node
from ..._core.calls import records
from ..._core.context import HostContext, LowerContext
from ..._core.graph import DataNode
from ..._core.operator import HostOperator, ProgramOperator, Setup
from ..._core.operator_function import Hints, Input, operator_function
from ..._core.ragged import Ragged
from ..._core.values import Spec, Value
from .._families.ragged import fit, shapes_of


class Copy(HostOperator, ProgramOperator):
    """The same value on another device. Without an accelerator nothing is copied."""

    name = "copy"

    def is_on_device(self, asked: str, follows: bool) -> bool:
        return asked == "gpu"  # wherever the input is

    def is_identity(self, *specs: Spec) -> bool:
        return True

    def infer(self, x: Spec) -> tuple[Spec, ...]:
        return (x,)

    def setup(self, ctx: HostContext, x: Value) -> Setup:
        return Setup((shapes_of(x),))

    def compute(self, N: int, *specs: Spec) -> Callable[[np.ndarray], np.ndarray] | None:
        return (lambda x: x) if specs[0].shape is not None else None

    def run(self, ctx: HostContext, x: Value) -> tuple[Any, ...]:
        return (x.data,)

    def lower(self, ctx: LowerContext, x: Any) -> tuple[Any, ...]:
        return (fit(x, ctx.out[0]) if isinstance(x, Ragged) else x,)


@operator_function("copy")
def copy(
    input: Input,
    /,
    *,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """Returns the same tensors, on another device if asked.

    Values of a pipeline never change, so nothing is copied on the same device.

    Args:
      input: any tensor.

    Example:
      >>> labels = fn.copy(labels, device="gpu")
    """
    node = as_node(input, Copy.name)
    return add(Copy(), node, device=device or node.device, name=name)


@records("copy_to")
def copy_to(node: DataNode, device: str) -> DataNode:
    """Returns `node` on `device` ("cpu" or "gpu"): the node itself or the source that it is a copy of, if this is on
    `device` already, otherwise a copy.
    """
    if isinstance(node.node.op, Copy) and node.node.inputs[0].device == device:
        return node.node.inputs[0]
    return node if node.device == device else add(Copy(), node, device=device)
