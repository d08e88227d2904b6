"""transpose: axes in another order."""

from __future__ import annotations

from typing import Literal, Unpack

from ..._core.arguments import Values
from ..._core.context import HostContext
from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._core.operator_function import Hints, Input, OneOrMore, operator_function
from ..._core.values import Spec, Value
from .._families import Part, Window, spec_of


class Transpose(Window):
    """A window that is the whole sample, with its axes permuted."""

    name = "transpose"
    perm: tuple[int, ...] | int | None  # None: all axes in reversed order
    output_layout: str | None
    transpose_layout: bool  # whether the letters of the layout move with their axes

    def layout(self, image: Spec) -> str:
        return image.layout

    def permutation(self, image: Spec, out: Spec) -> list[int]:
        """The axes in the order of `perm`; by default reversed."""
        if self.perm is None:
            return list(range(image.ndim))[::-1]
        perm = [self.perm] if isinstance(self.perm, int) else list(self.perm)
        if sorted(perm) != list(range(image.ndim)):
            raise ArgumentError(f"perm must have each of the axes 0 ... {image.ndim - 1} once, got {perm}")
        return perm

    def takes_image(self, image: Spec) -> bool:
        return False  # `perm` names the axes, whatever the layout is.

    def is_identity(self, *specs: Spec) -> bool:
        return specs[0].ndim == 0

    def infer(self, x: Spec, *arguments: Spec) -> tuple[Spec, ...]:
        """The permuted extents, with `output_layout`, or the letters of the input, permuted unless `transpose_layout`
        is false.
        """
        perm = self.permutation(x, x)
        layout = self.output_layout
        if layout is None:
            layout = "".join(x.layout[d] for d in perm) if self.transpose_layout and x.layout else x.layout
        if self.output_layout is not None and len(layout) != x.ndim:
            raise ArgumentError(f"output_layout must have a letter for each of the {x.ndim} axes, got {layout!r}")
        return (spec_of(x.dtype, [x.extent(d) for d in perm], layout),)

    def part(self, ctx: HostContext, image: Value, a: Values) -> Part:
        return Part.whole(image.shapes)


@operator_function(Transpose)
def transpose(
    input: Input,
    /,
    *,
    output_layout: str | None = None,
    perm: OneOrMore[int] | None = None,
    transpose_layout: bool = True,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """Permutes the axes of each sample.

    Args:
      input: any tensor; a scalar is not changed.
      output_layout: layout of the result, regardless of the input's.
      perm: for each axis of the result, the axis of the input. Default: the reverse order.
      transpose_layout: whether the letters of the layout are permuted, too.

    Returns:
      A tensor with the same type and number of dimensions.

    Raises:
      ArgumentError: `perm` is not a permutation of the axes, or `output_layout` has another length.

    Example:
      >>> channels_first = fn.transpose(images, perm=[2, 0, 1])
    """
    ...
