"""Translation."""

from __future__ import annotations

from typing import Literal, Unpack

import numpy as np

from ..._core.arguments import Values
from ..._core.graph import DataNode
from ..._core.operator_function import Hints, InputPerFrame, OneOrMore, PerFrame, operator_function
from ..._core.values import Spec
from ._transform import Transform, known_width


class Translation(Transform):
    """Adds an offset."""

    name = "transforms.translation"

    def dimensions(self, specs: tuple[Spec, ...]) -> int:
        return known_width(self.args.width("offset", specs), "offset")

    def matrix(self, a: Values, ndim: int) -> np.ndarray:
        out = np.zeros((a.samples, ndim, ndim + 1))
        out[:, range(ndim), range(ndim)] = 1
        out[:, :, ndim] = a.offset
        return out


@operator_function(Translation)
def translation(
    input: InputPerFrame | None = None,
    /,
    *,
    offset: PerFrame[OneOrMore[float]],
    reverse_order: bool = False,
    device: Literal["cpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """Makes a translation.

    Args:
      input: another transform, ``f32[D, D+1]``, to combine with. May be per frame.
      offset: the numbers added to the D coordinates. May be per sample or frame.
      reverse_order: whether the new transform is applied before that of the input. By default the input's is applied
        first.

    Returns:
      ``f32[D, D+1]``, a host value; it has an axis F in front if an input or argument is per frame.

    Raises:
      ArgumentError: the input has another number of dimensions.

    Example:
      >>> fn.warp_affine(images, fn.transforms.translation(offset=(8.0, -4.0)))
    """
    ...
