"""Rotation."""

from __future__ import annotations

from typing import Annotated, Literal, Unpack

import numpy as np

from ..._core.arguments import Values
from ..._core.declaration import Len
from ..._core.graph import DataNode
from ..._core.operator_function import Hints, InputPerFrame, ListOf, OneOrMore, PerFrame, operator_function
from ..._core.values import Spec
from .._image.rotate import rotation as about_axis
from ._transform import Transform


class Rotation(Transform):
    """Rotates about a point, or about a line through it."""

    name = "transforms.rotation"

    def dimensions(self, specs: tuple[Spec, ...]) -> int:
        return 3 if "axis" in self.args else 2

    def matrix(self, a: Values, ndim: int) -> np.ndarray:
        c, s = np.cos(np.deg2rad(a.angle)), np.sin(np.deg2rad(a.angle))
        if ndim == 2:
            return np.stack([np.stack([c, -s], axis=1), np.stack([s, c], axis=1)], axis=1)
        return about_axis(a.axis, c, s)


@operator_function(Rotation)
def rotation(
    input: InputPerFrame | None = None,
    /,
    *,
    angle: PerFrame[float],
    axis: Annotated[PerFrame[ListOf[float]] | None, Len(3)] = None,
    center: PerFrame[OneOrMore[float]] | None = None,
    reverse_order: bool = False,
    device: Literal["cpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """Makes a rotation of the plane, or of space about an axis.

    Args:
      input: another transform, ``f32[D, D+1]``, to combine with. May be per frame.
      angle: the angle in degrees; a positive angle turns the x axis towards the y axis (in images: clockwise). May be
        per sample or frame.
      axis: the axis (x, y, z) of a rotation in space, of any length. May be per sample or frame.
      center: the point that does not move. Default: the origin. May be per sample or frame.
      reverse_order: whether the new transform is applied before that of the input. By default the input's is applied
        first.

    Returns:
      ``f32[2, 3]``, or ``f32[3, 4]`` with an axis, a host value; it has an axis F in front if an input or argument is
      per frame.

    Raises:
      ArgumentError: the numbers of dimensions differ.

    Example:
      >>> fn.transforms.rotation(angle=fn.random.uniform(range=(-10.0, 10.0)), center=(128.0, 128.0))
    """
    ...
