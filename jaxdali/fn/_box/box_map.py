"""Affine maps of bounding boxes."""

from __future__ import annotations

import numpy as np

from ..._core.arguments import Values
from ..._core.errors import ArgumentError
from ..._core.values import Spec
from .._tensor.points import PointMap, mapped


class BoxMap(PointMap):
    """An affine map of boxes, which are points of four coordinates.

    Attributes:
      ltrb: whether the coordinates are two corners. If not, they are the upper left corner, the width and the height.
    """

    ltrb: bool

    def box_affine(self, a: Values) -> tuple[np.ndarray, np.ndarray]:
        """The matrix ``[N, 4, 4]`` and the offset ``[N, 4]``."""
        raise NotImplementedError(self.name)

    def infer(self, x: Spec, *arguments: Spec) -> tuple[Spec, ...]:
        if x.dtype != np.float32 or x.ndim < 1 or x.extent(x.ndim - 1) not in (4, None):
            raise ArgumentError(
                f"the input must be float32 boxes [..., 4], got {x.dtype} of shape {x.shape or f'{x.ndim}-D'}"
            )
        return mapped(x, 4, x.dtype)

    def affine(self, a: Values, dims: int) -> tuple[np.ndarray, np.ndarray]:
        if dims != 4:
            raise ValueError(f"boxes have 4 coordinates, got {dims}")
        return self.box_affine(a)
