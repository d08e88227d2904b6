"""The Laplacian."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, Literal, Unpack

import jax.numpy as jnp
import numpy as np

from ..._core.arguments import Values
from ..._core.context import HostContext, LowerContext
from ..._core.declaration import DType, Range
from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._core.operator_function import Hints, Input, OneOrMore, PerFrame, operator_function
from ..._core.ragged import Ragged
from ..._cpu import Status
from .._families import Separable
from .._families.conversion import convert

_MAX_SIZE = 31  # of windows, as in DALI


class Laplacian(Separable):
    """The sum of second derivatives. Each is a separable filter: a derivative window along one axis, and binomial
    windows along the others.
    """

    name = "laplacian"
    only_kernels = False  # The program also adds the derivatives.
    normalized_kernel: bool  # whether each derivative is divided by the sum of its windows' weights

    def __post_init__(self):
        if self.normalized_kernel and (not self.args.is_static("scale") or self.args.get("scale") != (1.0,)):
            raise ArgumentError("scale must not be given with normalized_kernel=True")

    def windows(self, ctx: HostContext, axes: int, a: Values) -> tuple[np.ndarray, np.ndarray]:
        """Weights ``f64[N, derivatives, axes, longest]``, and how many of them each window has, ``i64[N, derivatives,
        axes]``. There is one derivative for each axis. Its scale is a factor of the first window.
        """
        derivative = self._sizes(ctx, a, "window_size", axes, smallest=3)
        smoothing = self._sizes(ctx, a, "smoothing_size", axes, smallest=1) if "smoothing_size" in a else None
        scale = a.vector("scale", axes, one_for_all=True)
        assert scale is not None
        # taps[:, k, d]: the window of derivative `k` along axis `d`. The default of a smoothing window is the size of
        # the derivative window.
        taps = np.repeat(
            derivative[:, :, None] if smoothing is None else smoothing[:, None, :],
            axes,
            axis=2 if smoothing is None else 1,
        )
        diagonal = np.arange(axes)
        taps[:, diagonal, diagonal] = derivative
        if self.normalized_kernel:
            # The weights of a binomial window have the sum 2 ** (taps - 1), by which they are divided. A derivative
            # window is [1, -2, 1], convolved with a binomial window of taps - 2 weights, of the sum 2 ** (taps - 3).
            # Exponents are added up: -(sum of taps - (axes - 1) - 3).
            scale = 2.0 ** (axes + 2 - taps.sum(axis=2))
        weights = np.zeros((*taps.shape, int(taps.max())))
        for n in np.unique(taps):
            weights[taps == n, :n] = binomial(n)
            is_derivative = (taps == n) & np.eye(axes, dtype=bool)
            if n >= 3:
                # A smoothed second derivative, as in OpenCV's getDerivKernels.
                weights[is_derivative, :n] = np.convolve(binomial(n - 2), [1, -2, 1])
        weights[:, :, 0] *= scale[:, :, None]
        return weights, taps

    def _sizes(self, ctx: HostContext, a: Values, name: str, axes: int, smallest: int) -> np.ndarray:
        """The window sizes of an argument, ``i64[N, axes]``. A sample fails if one is even, or not in `smallest` ...
        `_MAX_SIZE`, and continues with `smallest`.
        """
        sizes = a.vector(name, axes, one_for_all=True)
        assert sizes is not None
        sizes = sizes.astype(np.int64)
        is_wrong = (sizes % 2 == 0) | (sizes < smallest) | (sizes > _MAX_SIZE)
        for i in np.flatnonzero(is_wrong.any(axis=1) & ctx.present):
            ctx.fail(
                int(i),
                Status.ARGUMENT,
                f"{name} must be odd and in {smallest} ... {_MAX_SIZE}, got {sizes[i].tolist()}",
            )
        return np.where(is_wrong, smallest, sizes)

    def lower(self, ctx: LowerContext, *arrays: Any) -> Any:
        """Filters once for each derivative, in float32, and adds up the results."""
        float_spec = dataclasses.replace(ctx.spec, dtype=np.float32)
        weights, taps = ctx.params["weights"], ctx.params["taps"]
        derivatives = [
            self.filtered(ctx, arrays[0], float_spec, weights[:, k], taps[:, k]) for k in range(weights.shape[1])
        ]
        data = [y.data if isinstance(y, Ragged) else y for y, _ in derivatives]
        total = convert(jnp, sum(data[1:], data[0]), ctx.spec.dtype)
        out, status = derivatives[0]  # All derivatives have the same shapes and statuses.
        return (dataclasses.replace(out, data=total) if isinstance(out, Ragged) else total,), status


def binomial(n: int) -> np.ndarray:
    """A smoothing window of `n` weights: the binomial coefficients of n - 1."""
    row = np.ones(1)
    for _ in range(n - 1):
        row = np.convolve(row, [1, 1])
    return row


@operator_function(Laplacian)
def laplacian(
    input: Input,
    /,
    *,
    dtype: DType | None = None,
    normalized_kernel: bool = False,
    scale: PerFrame[OneOrMore[float]] = (1.0,),
    smoothing_size: PerFrame[OneOrMore[int]] | None = None,
    window_size: Annotated[PerFrame[OneOrMore[int]], Range(0)] = (3,),
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """The Laplacian of images, sequences or volumes: the sum of their second derivatives along all spatial axes.

    Each derivative is a separable filter: ``[1, -2, 1]``, widened by binomial smoothing to `window_size`, along its own
    axis, and binomial windows along the others. Sums are computed in float32; borders are mirrored about the centre of
    the outermost pixel.

    Differs from DALI: sums are computed in float32 even for float16 images. DALI rounds products and sums to float16,
    so that derivatives of large numbers lose most of their precision.

    Args:
      input: numbers, which are filtered as 32-bit floats, in a layout whose spatial axes are adjacent: HWC, CHW, FHWC,
        FCHW, DHWC, ...; without one all axes are spatial, at most three, as in DALI.
      dtype: element type of the result: the input's (default; integers are rounded and saturated) or FLOAT.
      normalized_kernel: whether to divide each derivative by the sum of its windows' weights, ``2 ** (sum of window
        sizes - axes - 2)``.
      scale: factors for the derivatives, one or one per spatial axis. May be per sample or frame.
      smoothing_size: odd lengths of the windows across the derivative's axis, 1 to 31, one or one per spatial axis; 1
        does not smooth. Default: the length of the derivative's window. May be per sample or frame.
      window_size: odd lengths of the derivatives' windows, 3 to 31, one or one per spatial axis. May be per sample or
        frame.

    Returns:
      The input's shape and layout.

    Raises:
      ArgumentError: `scale` together with `normalized_kernel`.
      ValueError: wrong layout or type. A sample whose window sizes are even or out of range fails when its batch is
        made.

    Example:
      >>> edges = fn.laplacian(images, window_size=5, normalized_kernel=True, dtype=types.FLOAT)
    """
    ...
