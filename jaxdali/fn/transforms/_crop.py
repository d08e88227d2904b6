"""The transform from one box to another."""

from __future__ import annotations

from typing import Literal, Unpack

import numpy as np

from ..._core.arguments import Values
from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._core.operator_function import Hints, InputPerFrame, OneOrMore, PerFrame, operator_function
from ..._core.values import Spec
from ._transform import Transform, known_width


class CropTransform(Transform):
    """Maps a box onto a box."""

    name = "transforms.crop"
    absolute: bool  # whether the corners of each box are put in order first

    def dimensions(self, specs: tuple[Spec, ...]) -> int:
        """The number of elements of the corners. A single number stands for all axes."""
        widths = {known_width(self.args.width(n, specs), n) for n in _CORNERS if n in self.args} - {1}
        if len(widths) > 1:
            raise ArgumentError(f"the corners have different numbers of elements: {sorted(widths)}")
        return widths.pop() if widths else 1

    def matrix(self, a: Values, ndim: int) -> np.ndarray:
        """A scale and an offset for each axis, see `Transform.matrix`."""
        corners = [a.vector(n, ndim, one_for_all=True) for n in _CORNERS]
        from_start, from_end, to_start, to_end = (x for x in corners if x is not None)
        if self.absolute:
            from_start, from_end = np.minimum(from_start, from_end), np.maximum(from_start, from_end)
            to_start, to_end = np.minimum(to_start, to_end), np.maximum(to_start, to_end)
        with np.errstate(divide="ignore", invalid="ignore"):  # infinite for an empty box, as in DALI
            factor = (to_end - to_start) / (from_end - from_start)
            offset = to_start - factor * from_start
        # Each coordinate is mapped on its own.
        diagonal = np.zeros((len(factor), ndim, ndim + 1))
        diagonal[:, np.arange(ndim), np.arange(ndim)] = factor
        diagonal[:, :, ndim] = offset
        return diagonal


_CORNERS = ("from_start", "from_end", "to_start", "to_end")


@operator_function(CropTransform)
def crop(
    input: InputPerFrame | None = None,
    /,
    *,
    from_start: PerFrame[OneOrMore[float]] = 0.0,
    from_end: PerFrame[OneOrMore[float]] = 1.0,
    to_start: PerFrame[OneOrMore[float]] = 0.0,
    to_end: PerFrame[OneOrMore[float]] = 1.0,
    absolute: bool = False,
    reverse_order: bool = False,
    device: Literal["cpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """Makes the transform that maps one box to another, for example coordinates in a crop to those in the image.

    Args:
      input: another transform, ``f32[D, D+1]``, to combine with. May be per frame.
      from_start, from_end: lower and upper corner of the box that is mapped, D coordinates or one for all. May be per
        sample or frame.
      to_start, to_end: corners of the box it is mapped onto. May be per sample or frame.
      absolute: whether the corners of a box are put in order first. By default, boxes may be mirrored.
      reverse_order: whether the new transform is applied before that of the input. By default the input's is applied
        first.

    Returns:
      ``f32[D, D+1]``, a host value; it has an axis F in front if an input or argument is per frame.

    Raises:
      ArgumentError: the numbers of dimensions differ.

    Example:
      >>> to_pixels = fn.transforms.crop(to_end=(640.0, 480.0))
    """
    ...
