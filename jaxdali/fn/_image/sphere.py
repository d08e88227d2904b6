"""sphere: images on a ball."""

from __future__ import annotations

from typing import Annotated, Literal, Unpack

import numpy as np

from ... import types
from ..._core.context import HostContext
from ..._core.declaration import OneOf, Range
from ..._core.graph import DataNode
from ..._core.operator_function import Hints, Input, PerSample, operator_function
from ..._cpu import Points
from .._families.displacement import Displacement


class Sphere(Displacement):
    """Images bulged as if on a ball."""

    name = "sphere"
    points = Points.SPHERE

    def numbers(self, ctx: HostContext) -> np.ndarray:
        return np.zeros((ctx.N, 0))


@operator_function(Sphere)
def sphere(
    input: Input,
    /,
    *,
    fill_value: Annotated[float, Range(infinite=True)] = 0.0,
    interp_type: Annotated[types.DALIInterpType, OneOf(types.INTERP_NN, types.INTERP_LINEAR)] = types.INTERP_NN,
    mask: PerSample[int] = 1,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """Bulges images as if they were on a ball.

    A pixel at distance r from the centre shows the one at r * r / (longer side / 2).

    Args:
      input: HWC or (not in DALI) FHWC; uint8, float32 or (not in DALI) int16, uint16, float16, bfloat16; any number of
        channels.
      fill_value: the value of points outside the image, rounded and clipped to the element type; DALI cuts it, and
        wraps around.
      interp_type: INTERP_NN or INTERP_LINEAR.
      mask: if 0, the image is not changed. May be per sample.

    Returns:
      The input's shape, type and layout.

    Raises:
      ValueError: wrong layout or element type.

    Example:
      >>> fn.sphere(images, mask=fn.random.coin_flip())
    """
    ...
