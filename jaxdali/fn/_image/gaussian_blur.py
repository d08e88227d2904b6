"""Gaussian blur."""

from __future__ import annotations

from typing import Annotated, Literal, Unpack

import numpy as np

from ..._core.arguments import Values
from ..._core.context import HostContext
from ..._core.declaration import DType, Range
from ..._core.graph import DataNode
from ..._core.operator_function import Hints, Input, OneOrMore, PerFrame, operator_function
from ..._cpu import Status
from .._families import Separable


class GaussianBlur(Separable):
    """Windows of Gaussian weights."""

    name = "gaussian_blur"

    def windows(self, ctx: HostContext, axes: int, a: Values) -> tuple[np.ndarray, np.ndarray]:
        """The weights and sizes of the windows, see `Separable.windows`. 0 in `sigma` or `window_size` stands for the
        default.
        """
        sigma = a.vector("sigma", axes, one_for_all=True).astype(np.float32)  # pyright: ignore[reportOptionalMemberAccess]
        taps = a.vector("window_size", axes, one_for_all=True).astype(np.int64)  # pyright: ignore[reportOptionalMemberAccess]
        is_wrong = ((sigma == 0) & (taps == 0)) | ((taps != 0) & (taps % 2 == 0))
        for i in np.flatnonzero(is_wrong.any(axis=1) & ctx.present):
            reason = f"got sigma {sigma[i].tolist()} and window_size {taps[i].tolist()}"
            ctx.fail(int(i), Status.ARGUMENT, f"sigma or window_size must be above 0, and window_size odd; {reason}")
        sigma = np.where(is_wrong, 1, sigma)
        taps = np.where(is_wrong, 1, taps)
        # The defaults are DALI's: a window of three deviations on each side, and OpenCV's deviation for a given window.
        taps = np.where(taps == 0, 2 * np.ceil(sigma * 3).astype(np.int64) + 1, taps)
        sigma = np.where(sigma == 0, ((taps - 1) * 0.5 - 1) * 0.3 + 0.8, sigma)
        distance = np.arange(int(taps.max())) - taps[..., None] // 2
        weights = np.where(
            np.abs(distance) <= taps[..., None] // 2, np.exp(-(distance**2) / (2 * sigma[..., None] ** 2)), 0
        )
        return weights / weights.sum(axis=2, keepdims=True), taps


@operator_function(GaussianBlur)
def gaussian_blur(
    input: Input,
    /,
    *,
    dtype: DType | None = None,
    sigma: Annotated[PerFrame[OneOrMore[float]], Range(0)] = 0.0,
    window_size: Annotated[PerFrame[OneOrMore[int]], Range(0)] = 0,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """Blurs images, sequences or volumes with a Gaussian window.

    Borders are mirrored about the centre of the outermost pixel (reflect-101).

    Differs from DALI: sums are computed in float32 even for float16 images, where DALI rounds them to float16.

    Args:
      input: numbers, which are filtered as 32-bit floats, in a layout whose spatial axes are adjacent: HWC, CHW, FHWC,
        FCHW, DHWC, ...; without one all axes are spatial, at most three, as in DALI.
      dtype: element type of the result: the input's (default; integers are rounded) or FLOAT.
      sigma: standard deviation in pixels, one or one per spatial axis in the layout's order; 0 derives it from
        `window_size`: ``((window_size - 1) / 2 - 1) * 0.3 + 0.8``. May be per sample or frame.
      window_size: odd length of the window; 0 derives it from `sigma`: ``2 * ceil(3 * sigma) + 1``. May be per sample
        or frame.

    Returns:
      The input's shape and layout.

    Raises:
      ValueError: wrong layout or type. A sample without a positive `sigma` or `window_size` fails when its batch is
        made.

    Example:
      >>> fn.gaussian_blur(images, sigma=fn.random.uniform(range=(0.5, 2.0)))
    """
    ...
