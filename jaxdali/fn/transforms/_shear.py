"""Shear."""

from __future__ import annotations

from typing import Annotated, Literal, Unpack

import numpy as np

from ..._core.arguments import Values
from ..._core.declaration import Len
from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._core.operator_function import Hints, InputPerFrame, ListOf, OneOrMore, PerFrame, operator_function
from ..._core.values import Spec
from ._transform import Transform, known_width


class Shear(Transform):
    """Adds to each coordinate multiples of the others."""

    name = "transforms.shear"

    def dimensions(self, specs: tuple[Spec, ...]) -> int:
        """2 or 3, by the number of factors: one for each pair of different axes."""
        names = [n for n in ("shear", "angles") if n in self.args]
        if len(names) != 1:
            raise ArgumentError("give either shear or angles")
        width = known_width(self.args.width(names[0], specs), names[0])
        if width not in (2, 6):
            raise ArgumentError(f"{names[0]} must have 2 elements (in the plane) or 6 (in space), got {width}")
        return 2 if width == 2 else 3

    def matrix(self, a: Values, ndim: int) -> np.ndarray:
        """Ones on the diagonal, and the factors elsewhere, row by row. An angle stands for its tangent."""
        factors = np.tan(np.deg2rad(a.angles)) if "angles" in a else a.shear
        out = np.ones((len(factors), ndim * ndim))
        out[:, _FACTORS[ndim]] = factors
        return out.reshape(-1, ndim, ndim)


_FACTORS = {ndim: np.flatnonzero(~np.eye(ndim, dtype=bool)) for ndim in (2, 3)}  # all but the diagonal


@operator_function(Shear)
def shear(
    input: InputPerFrame | None = None,
    /,
    *,
    shear: Annotated[PerFrame[ListOf[float]] | None, Len(2, 6)] = None,
    angles: Annotated[PerFrame[ListOf[float]] | None, Len(2, 6)] = None,
    center: PerFrame[OneOrMore[float]] | None = None,
    reverse_order: bool = False,
    device: Literal["cpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """Makes a shear.

    Args:
      input: another transform, ``f32[D, D+1]``, to combine with. May be per frame.
      shear: in the plane (x by y, y by x); in space (x by y, x by z, y by x, y by z, z by x, z by y). May be per sample
        or frame; or
      angles: the same as angles in degrees, whose tangents are these factors. May be per sample or frame.
      center: the point that does not move. Default: the origin. May be per sample or frame.
      reverse_order: whether the new transform is applied before that of the input. By default the input's is applied
        first.

    Returns:
      ``f32[2, 3]`` or ``f32[3, 4]``, a host value; it has an axis F in front if an input or argument is per frame.

    Raises:
      ArgumentError: none or both of `shear` and `angles` are given, or numbers of dimensions differ.

    Example:
      >>> fn.transforms.shear(angles=(10.0, 0.0))
    """
    ...
