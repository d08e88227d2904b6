"""jitter: pixels moved at random."""

from __future__ import annotations

from typing import Annotated, Literal, Unpack

import numpy as np

from ... import types
from ..._core.context import HostContext
from ..._core.declaration import OneOf, Range
from ..._core.graph import DataNode
from ..._core.operator_function import Input, PerSample, SeededHints, operator_function
from ..._cpu import Border, Points
from .._families.displacement import Displacement
from .._families.drawing import uniforms


class Jitter(Displacement):
    """Each pixel moves at random."""

    name = "jitter"
    points = Points.JITTER
    random = True
    nDegree: int  # DALI's name; the square has nDegree + 1 pixels on each side
    seed: int

    @property
    def border_type(self) -> Border:
        return Border.REPLICATE

    def numbers(self, ctx: HostContext) -> np.ndarray:
        return np.column_stack([uniforms(ctx, self.seed, 1), np.full(ctx.N, self.nDegree + 1)])


@operator_function(Jitter)
def jitter(
    input: Input,
    /,
    *,
    fill_value: Annotated[float, Range(infinite=True)] = 0.0,
    interp_type: Annotated[types.DALIInterpType, OneOf(types.INTERP_NN, types.INTERP_LINEAR)] = types.INTERP_NN,
    mask: PerSample[int] = 1,
    nDegree: Annotated[int, Range(0, 1 << 16)] = 2,
    seed: int = -1,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[SeededHints],
) -> DataNode:
    """Replaces each pixel by a random one from the square of ``nDegree + 1`` pixels around it.

    DALI has this operator on the GPU only.

    Args:
      input: HWC or (not in DALI) FHWC; uint8, float32 or (not in DALI) int16, uint16, float16, bfloat16; any number of
        channels.
      fill_value: has no effect, as in DALI: pixels at the edge are repeated outside.
      interp_type: INTERP_NN or INTERP_LINEAR. Both give the same, as in DALI, because pixels move by whole numbers.
      mask: if 0, the image is not changed. May be per sample.
      nDegree: along each axis a pixel moves by a whole number from -nDegree / 2 to nDegree / 2, all equally likely.
      seed: fixes the random numbers regardless of the pipeline's seed and of the operator's place in the pipeline; a
        negative seed counts as not given.

    Returns:
      The input's shape, type and layout.

    Raises:
      ValueError: wrong layout or element type.

    Example:
      >>> fn.jitter(images, nDegree=4)
    """
    ...
