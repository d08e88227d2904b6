"""Power spectra of signals."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Unpack

from ..._core.declaration import Range
from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._core.operator_function import Hints, Input, operator_function
from ..._core.values import Spec
from .columns import AlongAxis, check_floats


def magnitudes(xp: Any, x: Any, nfft: int, power: int) -> Any:
    """The amplitudes (`power` 1) or powers (2) of the frequencies of real vectors along the last axis. They are padded
    with zeros to `nfft` elements.
    """
    spectrum = xp.fft.rfft(x, nfft)
    squares = spectrum.real * spectrum.real + spectrum.imag * spectrum.imag
    return squares if power == 2 else xp.sqrt(squares)


class PowerSpectrum(AlongAxis):
    """The Fourier transform along an axis."""

    name = "power_spectrum"
    nfft: int | None  # None or 0: the length of the vectors
    power: int  # 1: amplitudes; 2: powers
    axis: int  # the axis that is transformed; negative: counted from the end

    def check(self, x: Spec) -> None:
        """Raises an error unless the input is float32 and has the axis, with elements to transform."""
        check_floats(x)
        if not -x.ndim <= self.axis < x.ndim:
            raise ArgumentError(f"argument axis must be one of the input's {x.ndim} dimensions, got {self.axis}")
        if not self.nfft and x.extent(self.axis_of(x)) == 0:
            raise ArgumentError("there is nothing to transform along an axis without elements")

    def axis_of(self, x: Spec) -> int:
        return self.axis % x.ndim

    def length(self, n: int) -> int:
        return (self.nfft or n) // 2 + 1

    def vectors(self, xp: Any, x: Any) -> Any:
        return magnitudes(xp, x, self.nfft or x.shape[-1], self.power)


@operator_function(PowerSpectrum)
def power_spectrum(
    input: Input,
    /,
    *,
    nfft: Annotated[int | None, Range(0)] = None,
    power: Annotated[int, Range(1, 2)] = 2,
    axis: int = -1,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """The spectrum of signals: magnitudes of their Fourier transform.

    Args:
      input: signals, float32, of any shape.
      nfft: length of the transform: zeros are added to shorter signals, longer ones are cut off. Default, and 0: the
        signal's length.
      power: 2 for power, 1 for amplitude.
      axis: the axis that is transformed. Negative: counted from the end.

    Returns:
      float32, with ``nfft // 2 + 1`` frequencies along `axis`, of the input's layout.

    Raises:
      TypeError: the input is not float32.
      ArgumentError: there is no such axis.

    Example:
      >>> power = fn.power_spectrum(signals, nfft=512)
    """
    ...
