"""Displacements of pixels: sphere, water and jitter."""

from __future__ import annotations

from typing import Annotated, Literal, Unpack

import numpy as np

from ... import types
from ..._core.context import HostContext
from ..._core.declaration import OneOf, Range
from ..._core.graph import DataNode
from ..._core.operator import Setup
from ..._core.operator_function import Hints, Input, PerSample, SeededHints, operator_function
from ..._core.values import Value
from ..._cpu import Border, Points
from .._families import Remap
from .._families.drawing import uniforms


class Displacement(Remap):
    """Pixels move within their image; those that come from outside are filled."""

    interp_type: types.DALIInterpType
    fill_value: float

    @property
    def interpolation(self) -> types.DALIInterpType:
        return self.interp_type

    def numbers(self, ctx: HostContext) -> np.ndarray:
        """``f64[N, count]``, see ffi/remap/remap.h."""
        raise NotImplementedError(self.name)

    def setup(self, ctx: HostContext, *values: Value) -> Setup:
        a = self.arguments(ctx, values)
        return self.setup_of(ctx, values[0], self.numbers(ctx), fill=self.fill_value, applied=a.mask)


class Sphere(Displacement):
    """As if the image were on a ball."""

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
    """Bulges images as if they were on a ball: a pixel at distance r from the centre shows what is at r * r / (longer side / 2).

    Args:
      input: HWC or (not in DALI) FHWC; uint8, float32 or (not in DALI) int16, uint16, float16, bfloat16; any number of channels.
      fill_value: of what is outside the image, rounded and clipped to the element type.
      interp_type: INTERP_NN or INTERP_LINEAR.
      mask: 0: the image stays as it is. May be per sample.

    Returns:
      The input's shape, type and layout.

    Raises:
      ValueError: wrong layout or element type.

    Example:
      >>> fn.sphere(images, mask=fn.random.coin_flip())
    """
    ...


class Water(Displacement):
    """Waves along both axes."""

    name = "water"
    points = Points.WATER
    ampl_x: float
    ampl_y: float
    freq_x: float
    freq_y: float
    phase_x: float
    phase_y: float

    def numbers(self, ctx: HostContext) -> np.ndarray:
        return np.tile([self.ampl_x, self.freq_x, self.phase_x, self.ampl_y, self.freq_y, self.phase_y], (ctx.N, 1))


@operator_function(Water)
def water(
    input: Input,
    /,
    *,
    ampl_x: float = 10.0,
    ampl_y: float = 10.0,
    fill_value: Annotated[float, Range(infinite=True)] = 0.0,
    freq_x: float = 0.04908738521234052,
    freq_y: float = 0.04908738521234052,
    interp_type: Annotated[types.DALIInterpType, OneOf(types.INTERP_NN, types.INTERP_LINEAR)] = types.INTERP_NN,
    mask: PerSample[int] = 1,
    phase_x: float = 0.0,
    phase_y: float = 0.0,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """Makes images look as if they were under water.

    Pixel (x, y) shows the point ``(x + ampl_x * sin(freq_x * y + phase_x), y + ampl_y * cos(freq_y * x + phase_y))``. As in DALI, these are
    corners of pixels, so that INTERP_LINEAR moves the image by half a pixel.

    Args:
      input: HWC or (not in DALI) FHWC; uint8, float32 or (not in DALI) int16, uint16, float16, bfloat16; any number of channels.
      ampl_x, ampl_y: how far the waves move pixels along x and y, in pixels.
      fill_value: of what is outside the image, rounded and clipped to the element type.
      freq_x, freq_y: of the waves, in radians per pixel. Default: pi / 64.
      interp_type: INTERP_NN or INTERP_LINEAR.
      mask: 0: the image stays as it is. May be per sample.
      phase_x, phase_y: of the waves at the image's edge, in radians.

    Returns:
      The input's shape, type and layout.

    Raises:
      ValueError: wrong layout or element type.

    Example:
      >>> fn.water(images, ampl_x=4.0, ampl_y=4.0, interp_type=types.INTERP_LINEAR)
    """
    ...


class Jitter(Displacement):
    """Each pixel moves at random."""

    name = "jitter"
    points = Points.JITTER
    random = True
    nDegree: int
    seed: int

    @property
    def beyond(self) -> Border:
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
    """Each pixel shows another one, drawn from the square of ``nDegree + 1`` pixels around it.

    In DALI it is an operator of the GPU alone.

    Args:
      input: HWC or (not in DALI) FHWC; uint8, float32 or (not in DALI) int16, uint16, float16, bfloat16; any number of channels.
      fill_value: without effect, as in DALI: pixels of the edge stand for those outside.
      interp_type: INTERP_NN or INTERP_LINEAR; the same, as in DALI: pixels move by whole numbers.
      mask: 0: the image stays as it is. May be per sample.
      nDegree: pixels move by -nDegree / 2 to nDegree / 2 along each axis, whole numbers, all equally likely.
      seed: fixes the numbers, whatever the pipeline's seed and the operator's place; negative: not given.

    Returns:
      The input's shape, type and layout.

    Raises:
      ValueError: wrong layout or element type.

    Example:
      >>> fn.jitter(images, nDegree=4)
    """
    ...
