"""get_property: properties of samples besides their values."""

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
    """A string for each sample, as bytes. It runs on the host for any input, because it does not read the values."""

    name = "get_property"
    of: str  # the property: "layout" or "source_info"

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
    """Returns a property of samples other than their values, as text.

    Differs from DALI: values made from a reader's labels also have the path of the file.

    Args:
      input: any tensor.
      key: "layout", or "source_info": where a sample came from. For a reader, this is the path of the file as it stands
        in the reader's list.
      device: with "gpu", the result is put on the accelerator. Default: the host.
      name: name of the node.

    Returns:
      1-D uint8: the UTF-8 bytes of the text, which is empty if nothing is known.

    Raises:
      ValueError: an unknown `key`.

    Example:
      >>> paths = fn.get_property(jpegs, key="source_info")
    """
    op = GetProperty(of=key)
    # It runs on the host; a result for the accelerator is copied there.
    return add(op, input, name=name).gpu() if device == "gpu" else add(op, input, device=device, name=name)
