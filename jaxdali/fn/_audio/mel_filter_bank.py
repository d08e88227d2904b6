"""Mel spectrograms of spectrograms."""

from __future__ import annotations

import functools
import itertools
import math
from typing import Annotated, Any, Literal, Unpack

import jax.numpy as jnp
import numpy as np

from ... import _cpu
from ..._core.declaration import Range
from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._core.operator import Operator
from ..._core.operator_function import Hints, Input, operator_function
from ..._core.values import Spec
from .columns import AlongAxis, check_floats
from .spectrogram import Spectrogram

_F = np.float32
# The mel scale of Slaney's Auditory Toolbox (1998): linear up to 1 kHz, with 200 / 3 Hz per mel, and logarithmic above,
# with 27 mel from 1 kHz to 6.4 kHz. The other scale is HTK's: 2595 log10(1 + f / 700) = 1127 ln(1 + f / 700).
_BREAK, _STEP = _F(1000), _F(200 / 3)
_LOG_STEP = _F(np.log(6.4) / 27)


def _mel(hz: np.float32, htk: bool) -> np.float32:
    """A frequency in mel, by the formula of HTK or of Slaney: see above. The logarithm is the C library's."""
    if htk:
        return _F(1127) * _F(_cpu.logf(float(_F(1) + hz / _F(700))))
    return _BREAK / _STEP + _F(_cpu.logf(float(hz / _BREAK))) / _LOG_STEP if hz >= _BREAK else hz / _STEP


def _hz(mel: np.float32, htk: bool) -> np.float32:
    """A frequency in Hz: the inverse of `_mel`, with the C library's exponential."""
    if htk:
        return _F(700) * (_F(_cpu.expf(float(mel / _F(1127)))) - _F(1))
    first = _BREAK / _STEP
    return _BREAK * _F(_cpu.expf(float(_LOG_STEP * (mel - first)))) if mel >= first else mel * _STEP


@functools.lru_cache(maxsize=64)
def filters(bins: int, nfilter: int, rate: float, low: float, high: float, htk: bool, normalize: bool) -> np.ndarray:
    """The filters as rows, ``float32[nfilter, bins]``: triangles between points that have equal distances in mel.

    Points are rounded to single precision by the C library's functions, as in DALI: narrow filters far above 0 Hz
    depend on it. Only bins from `low` on and below `high` have weights; these limits are also rounded as in DALI.

    Args:
      bins: the number of frequencies, from 0 to half the sampling rate.
      nfilter: the number of filters.
      rate: the sampling rate, in Hz.
      low, high: the ends of the first and the last filter, in Hz.
      htk: whether the mel scale is that of HTK, not that of Slaney.
      normalize: whether the filters have the same area.
    """
    # The corners of the triangles: filter i rises from point i to point i + 1, and falls to point i + 2.
    ends = [float(_mel(_F(low), htk)), float(_mel(_F(high), htk))]
    step = (ends[1] - ends[0]) / (nfilter + 1)
    mel = [*itertools.accumulate([ends[0]] + [step] * nfilter), ends[1]]
    points = np.array([_hz(_F(m), htk) for m in mel], np.float64)
    width = float(_F(rate)) / max(2 * (bins - 1), 1)  # of a bin
    first, last = (math.ceil(float(_F(f)) * (1 / width)) for f in (low, high))
    covered = np.arange(first, min(last, bins))
    # The interval that each bin is in: from point `interval` to the next one.
    interval = np.searchsorted(points[1:], covered * width, side="right")
    covered, interval = covered[interval <= nfilter], interval[interval <= nfilter]
    hz = covered * width
    # The weight in the filter that falls over the interval; the next filter rises by the rest.
    falling = ((points[interval + 1] - hz) / (points[interval + 1] - points[interval])).astype(_F)
    # With a filter before the first and one after the last, so that every interval has a falling and a rising one.
    norms = np.ones(nfilter + 2, _F)
    if normalize:  # to the same area, in Hz
        norms[1:-1] = 2 / (points[2:] - points[:-2])
    weights = np.zeros((nfilter + 2, bins), _F)
    weights[interval, covered] = falling * norms[interval]
    weights[interval + 1, covered] = (_F(1) - falling) * norms[interval + 1]
    return weights[1:-1]


class MelFilterBank(AlongAxis):
    """Multiplies the frequencies of each window by the matrix of the filters."""

    name = "mel_filter_bank"
    nfilter: int  # the number of filters
    sample_rate: float  # of the signal, in Hz
    freq_low: float  # the beginning of the first filter, in Hz
    freq_high: float  # the end of the last filter, in Hz; 0: half of `sample_rate`
    normalize: bool  # whether the filters have the same area
    mel_formula: str  # "slaney" or "htk"

    def __post_init__(self):
        if not self.freq_low < self._high <= self.sample_rate:
            raise ArgumentError(
                f"argument freq_high must be above freq_low={self.freq_low:g} and at most sample_rate={self.sample_rate:g}, "
                f"got {self._high:g}"
            )

    @property
    def _high(self) -> float:
        return self.freq_high or self.sample_rate / 2  # by default the Nyquist frequency

    def check(self, x: Spec) -> None:
        """Raises an error unless the input is float32 and has an axis of frequencies."""
        check_floats(x)
        if not x.ndim:
            raise ArgumentError("the input must have an axis of frequencies, got a scalar")
        if x.layout and "f" not in x.layout:
            raise ArgumentError(
                f'the input must have an axis of frequencies, "f" in its layout, got layout {x.layout!r}'
            )

    def axis_of(self, x: Spec) -> int:
        return x.layout.index("f") if x.layout else max(x.ndim - 2, 0)

    def length(self, n: int) -> int:
        return self.nfilter

    def vectors(self, xp: Any, x: Any) -> Any:
        return xp.matmul(x, self.weights(x.shape[-1]).T, **({} if xp is np else {"precision": "highest"}))

    def weights(self, bins: int) -> np.ndarray:
        """The filters as rows, ``float32[nfilter, bins]``."""
        htk = self.mel_formula == "htk"
        return filters(bins, self.nfilter, self.sample_rate, self.freq_low, self._high, htk, self.normalize)

    def absorb(self, i: int, inner: Operator) -> Operator | None:
        """A spectrogram with this filter bank, if the input is made by one. See `Operator.absorb`."""
        # A subclass has filters already.
        if type(inner) is not Spectrogram:
            return None
        fields = {f.name: getattr(inner, f.name) for f in inner.fields()}
        return _MelSpectrogram(**fields, filters=self)


class _MelSpectrogram(Spectrogram):
    """A spectrogram and its mel filters in one step, so that the frequencies of a window are still in the cache."""

    name = "mel_filter_bank"
    filters: MelFilterBank

    @property
    def _bins(self) -> int:
        return self.filters.nfilter

    def _filters(self) -> tuple[np.ndarray, np.ndarray]:
        """See `Spectrogram._filters`. A frequency has two weights: of its first filter and of the next one."""
        weights = self.filters.weights(self._nfft // 2 + 1)
        first = (weights != 0).argmax(axis=0)  # A bin lies under two neighbouring triangles at most.
        # The filter behind the last one has no weights.
        padded = np.concatenate([weights, np.zeros_like(weights[:1])])
        bins = np.arange(weights.shape[1])
        return first.astype(np.int32), np.stack([padded[first, bins], padded[first + 1, bins]], axis=1)

    def _spectra(self, frames: Any) -> Any:
        return self.filters.vectors(jnp, super()._spectra(frames))


@operator_function(MelFilterBank)
def mel_filter_bank(
    input: Input,
    /,
    *,
    nfilter: Annotated[int, Range(1)] = 128,
    sample_rate: Annotated[float, Range(0, above=True)] = 44100.0,
    freq_low: Annotated[float, Range(0)] = 0.0,
    freq_high: Annotated[float, Range(0)] = 0.0,
    normalize: bool = True,
    mel_formula: Literal["slaney", "htk"] = "slaney",
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """Makes mel spectrograms of spectrograms, by a bank of triangular filters, as librosa does.

    Args:
      input: spectrograms, float32. The frequencies are the axis "f" of the layout; without a layout the last but one,
        or the only one.
      nfilter: number of filters.
      sample_rate: of the signal, in Hz.
      freq_low, freq_high: where the first filter begins and the last one ends, in Hz; at most `sample_rate`. If
        `freq_high` is 0, half of `sample_rate`.
      normalize: whether the integral of each filter is 1. Otherwise its peak is 1.
      mel_formula: "slaney" (linear up to 1 kHz, logarithmic above) or "htk" (``2595 * log10(1 + f / 700)``).

    Returns:
      float32, with `nfilter` in place of the number of frequencies, of the input's layout.

    Raises:
      TypeError: the input is not float32.
      ArgumentError: no axis of frequencies, or `freq_high` does not lie above `freq_low`, or lies above `sample_rate`.

    Example:
      >>> mel = fn.mel_filter_bank(fn.spectrogram(audio, nfft=512), nfilter=80, sample_rate=16000)
    """
    ...
