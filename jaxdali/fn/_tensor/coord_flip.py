"""coord_flip: mirrored points."""

from __future__ import annotations

from typing import Literal, Unpack

import numpy as np

from ..._core.arguments import Values
from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._core.operator_function import Hints, Input, PerSample, operator_function
from ..._core.values import Spec
from .points import PointMap, mapped


class CoordFlip(PointMap):
    """Mirrors points about a centre: ``center - (x - center)``."""

    name = "coord_flip"
    layout: str  # the order of the coordinates, such as "yx"; "": x, y, z

    def _letters(self, dims: int) -> str:
        """The name of each coordinate: x, y or z."""
        if dims > 3:
            raise ArgumentError(f"points have 1 to 3 coordinates, got {dims}")
        letters = self.layout or "xyz"[:dims]
        if len(letters) != dims or sorted(letters) != sorted("xyz"[:dims]):
            raise ArgumentError(
                f"the layout of {dims} coordinates must consist of {', '.join('xyz'[:dims])}, got {letters!r}"
            )
        return letters

    def infer(self, x: Spec, *arguments: Spec) -> tuple[Spec, ...]:
        """The input, which must be points of float32."""
        dims = x.extent(x.ndim - 1) if x.ndim else 0
        if x.dtype != np.float32 or x.ndim < 1:
            raise ArgumentError(f"the input must be float32 points [..., D], got {x.ndim}-D {x.dtype}")
        # Raises ArgumentError if the layout does not fit.
        if dims is not None:
            self._letters(dims)
        return mapped(x, dims, x.dtype)

    def affine(self, a: Values, dims: int) -> tuple[np.ndarray, np.ndarray]:
        """Matrices and offsets, see `PointMap.affine`: ``x`` becomes ``2 * center - x`` along the mirrored axes."""
        letters = self._letters(dims)
        is_flipped = np.stack([a[f"flip_{c}"] != 0 for c in letters], axis=1)
        center = np.stack([a[f"center_{c}"] for c in letters], axis=1)
        return np.where(is_flipped, -1.0, 1.0)[:, :, None] * np.eye(dims), np.where(is_flipped, 2 * center, 0)


@operator_function(CoordFlip)
def coord_flip(
    input: Input,
    /,
    *,
    flip_x: PerSample[int] = 1,
    flip_y: PerSample[int] = 0,
    flip_z: PerSample[int] = 0,
    center_x: PerSample[float] = 0.5,
    center_y: PerSample[float] = 0.5,
    center_z: PerSample[float] = 0.5,
    layout: str = "",
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """Mirrors points.

    Args:
      input: points ``[..., D]``, float32, of 1 to 3 coordinates.
      flip_x, flip_y, flip_z: whether a coordinate c becomes ``2 * center - c``: 0 or 1. May be per sample.
      center_x, center_y, center_z: the centre's coordinates. May be per sample.
      layout: the coordinates' order, e.g. ``"yx"``. Default: x, y, z.

    Returns:
      Points with the same shape.

    Raises:
      ArgumentError: the input has another type or shape, or the layout does not fit it.

    Example:
      >>> landmarks = fn.coord_flip(landmarks, flip_x=mirror)
    """
    ...
