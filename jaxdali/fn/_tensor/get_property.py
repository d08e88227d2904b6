"""What is known of samples besides their values."""

from __future__ import annotations

from typing import Literal, Unpack

import numpy as np

from ..._core.building import add
from ..._core.context import HostContext
from ..._core.graph import DataNode
from ..._core.operator import HostOperator
from ..._core.operator_function import Hints, Input, operator_function
from ..._core.values import Spec, Value


class GetProperty(HostOperator):
    """A text for each sample, as bytes. Runs on the host whatever the input, whose values it does not read."""

    name = "get_property"
    of: str

    def run_reads(self, i: int) -> bool:
        return False

    def infer(self, x: Spec) -> tuple[Spec, ...]:
        return (Spec(np.dtype(np.uint8), 1, (len(x.layout),) if self.of == "layout" else None),)

    def run(self, ctx: HostContext, x: Value) -> tuple[np.ndarray | list[np.ndarray]]:
        if self.of == "layout":
            return (np.tile(np.frombuffer(x.spec.layout.encode(), np.uint8), (ctx.N, 1)),)
        return ([np.frombuffer(ctx.source_of(i).encode(), np.uint8) for i in range(ctx.N)],)


@operator_function("get_property")
def get_property(
    input: Input,
    /,
    *,
    key: Literal["layout", "source_info"],
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """What is known of samples besides their values, as text.

    Differs from DALI: what is made of a reader's labels has the path of the file, too.

    Args:
      input: any tensor.
      key: "layout"; or "source_info": where a sample came from, of a reader the path of the file, as the list it reads has it.
      device: "gpu" puts the result on the accelerator. Default: the host.
      name: name of the node.

    Returns:
      uint8, 1-D: the text's bytes (UTF-8), none where nothing is known.

    Raises:
      ValueError: another `key`.

    Example:
      >>> paths = fn.get_property(jpegs, key="source_info")
    """
    op = GetProperty(of=key)
    return add(op, input, name=name).gpu() if device == "gpu" else add(op, input, device=device, name=name)
