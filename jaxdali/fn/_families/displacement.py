"""The family of displacements: each pixel gets the value of another pixel of its image."""

from __future__ import annotations

import numpy as np

from ... import types
from ..._core.context import HostContext
from ..._core.operator import Setup
from ..._core.values import Value
from .._families import PointGather


class Displacement(PointGather):
    """A gather by a formula. Pixels whose point is outside the image are filled."""

    interp_type: types.DALIInterpType
    fill_value: float

    @property
    def interpolation(self) -> types.DALIInterpType:
        return self.interp_type

    def numbers(self, ctx: HostContext) -> np.ndarray:
        """The parameters of the formula, ``f64[N, count]``, see ffi/remap/remap.h."""
        raise NotImplementedError(self.name)

    def setup(self, ctx: HostContext, *values: Value) -> Setup:
        a = self.arguments(ctx, values)
        return self.setup_of(ctx, values[0], self.numbers(ctx), fill=self.fill_value, applied=a.mask)
