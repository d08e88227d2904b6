"""Elements of a sequence, one by one."""

from __future__ import annotations

from typing import Annotated, Literal, Unpack

from ..._core.building import add
from ..._core.context import BuildContext
from ..._core.declaration import Range
from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._core.operator import Operator
from ..._core.operator_function import Hints, Input, OneOrMore, operator_function
from ..._core.values import Spec
from .subscript import IntegerIndex, Subscript


class ElementExtract(Subscript):
    """An integer subscript, under the operator's own name."""

    name = "element_extract"

    def bind(self, ctx: BuildContext, *specs: Spec) -> Operator:
        if specs[0].ndim < 2:
            raise ArgumentError(f"the input must be sequences, of at least two dimensions, got {specs[0].ndim}-D data")
        return super().bind(ctx, *specs)


@operator_function("element_extract")
def element_extract(
    input: Input,
    /,
    *,
    element_map: Annotated[OneOrMore[int], Range(0)],
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode | list[DataNode]:
    """Takes elements of sequences: ``x[i]`` for each ``i``.

    Differs from DALI: the first axis need not be F.

    Args:
      input: sequences, e.g. FHWC.
      element_map: the indices of the elements along the first axis, from 0.
      name: the name of the node; with several results, of the first node.

    Returns:
      A tensor without the first axis for each index; a single one is returned by itself, several as a list.

    Raises:
      ArgumentError: no index is given, or the input has fewer than two dimensions.
      OperatorError: a sequence is too short.

    Example:
      >>> first, third = fn.element_extract(video, element_map=[0, 2])
    """
    places = (element_map,) if isinstance(element_map, int) else tuple(element_map)
    if not places:
        raise ArgumentError("element_map must have at least one index")
    # The user's name is that of the first element.
    elements = []
    for i in places:
        elements.append(
            add(ElementExtract(axes=(IntegerIndex(i),), new=()), input, device=device, name=None if elements else name)
        )
    return elements if len(elements) > 1 else elements[0]
