"""Resampling of signals, by DALI's filter or by a low-pass that removes frequencies which the new rate can't hold."""

from __future__ import annotations

import functools
import math

import numpy as np

from ..._cpu import resample

LARGEST = float(1 << 62)  # samples: no signal has so many, and integers can hold the number
_POINTS = 512  # values per lobe in the table of the low-pass
_MAX_PHASES = 2048  # largest denominator of the ratio of the rates
_MAX_REACH = 1 << 16  # old samples on each side that the low-pass may see in any signal, however short that is
_MAX_ROWS = 256  # results with weights of their own that the low-pass computes at a time
_MAX_TERMS = 1 << 22  # products of samples and weights that are in memory at a time


def lobes_of(quality: float) -> int:
    """The number of lobes of DALI's filter on each side: 3, 16 and 64 for the qualities 0, 50 and 100."""
    return round(0.007 * quality * quality - 0.09 * quality + 3)


@functools.lru_cache(maxsize=8)
def _hann(lobes: int) -> np.ndarray:
    """The table of DALI's filter: a sinc in Hann's window, 32 values per lobe, with zeros around. The value at x has
    the index 1 + 32 * (x + lobes).
    """
    n = 64 * lobes + 1
    i = (np.arange(n) - n // 2).astype(np.float32)
    x, y = i / np.float32(32), i * (np.float32(2) / np.float32(n))
    values = np.zeros(n + 5, np.float32)
    values[1 : n + 1] = np.sinc(x.astype(np.float64)) * 0.5 * (1 + np.cos(np.pi * y.astype(np.float64)))
    return values


def nearest_float32(number: float) -> float:
    """The float32 next to a rate, or to a ratio of rates: DALI's type of them. It is finite, and positive if `number`
    is.
    """
    limits = np.finfo(np.float32)
    nearest = float(np.float32(min(max(number, float(limits.min)), float(limits.max))))
    return nearest or float(limits.smallest_subnormal) * (number > 0)


def resampled(x: np.ndarray, scale: float, length: int, quality: float, antialias: bool = False) -> np.ndarray:
    """Resamples a signal.

    Args:
      x: ``float32[samples, ...]``.
      scale: the new rate divided by the old one.
      length: samples of the result.
      quality: 0 to 100.
      antialias: whether to use a low-pass at the lower of both Nyquist frequencies. DALI's filter is at the old one.
    """
    if not length or not len(x):
        return np.zeros((length, *x.shape[1:]), np.float32)
    return _with_low_pass(x, scale, length, quality) if antialias else _as_dali(x, scale, length, quality)


def _as_dali(x: np.ndarray, scale: float, length: int, quality: float) -> np.ndarray:
    """Resamples with DALI's filter, and with its rounding."""
    channels = math.prod(x.shape[1:])
    result = np.empty((length, *x.shape[1:]), np.float32)
    # A larger step makes no difference: the result then has one sample.
    resample(
        x.reshape(len(x), channels),
        min(1 / scale, len(x)),
        _hann(lobes_of(quality)),
        result.reshape(length, channels),
    )
    return result


# DALI's filter has the bandwidth of the old rate, whatever the new one is: a tone of 12 kHz, resampled from 44.1 to 16
# kHz, becomes one of 4 kHz at full amplitude. With `antialias`, the sinc is stretched to the lower rate, in a Kaiser
# window (beta 8.6) with at least 24 lobes from quality 50 on. It attenuates by 86 dB, with a transition from 0.86 to
# 1.09 of the new Nyquist frequency (5.7 / 24 wide, around 0.975).
_KAISER, _LOBES, _CUTOFF = 8.6, 24, 0.975


@functools.lru_cache(maxsize=8)
def _kaiser(lobes: int) -> np.ndarray:
    """The right half of a sinc in Kaiser's window, `_POINTS` values per lobe, and zeros behind."""
    x = np.arange(lobes * _POINTS + 2) / _POINTS
    values = np.sinc(x) * np.i0(_KAISER * np.sqrt(np.maximum(1 - (x / lobes) ** 2, 0))) / np.i0(_KAISER)
    values[lobes * _POINTS + 1 :] = 0
    return values


def _weights(distance: np.ndarray, cutoff: float, lobes: int) -> np.ndarray:
    """The low-pass at distances in samples of the old rate. `cutoff` is relative to the old Nyquist frequency."""
    table = _kaiser(lobes)
    position = np.minimum(np.abs(distance) * (cutoff * _POINTS), lobes * _POINTS)
    index = position.astype(np.int64)
    return cutoff * (table[index] + (position - index) * (table[index + 1] - table[index]))


def _with_low_pass(x: np.ndarray, scale: float, length: int, quality: float) -> np.ndarray:
    """Resamples with the low-pass. If the rates have a ratio of small integers, weights are computed once per phase."""
    lobes = max(lobes_of(quality), _LOBES if quality >= 50 else 3)
    cutoff = min(scale, 1.0) * _CUTOFF
    # The reach of the low-pass, in old samples. Beyond the signal there are only zeros.
    half = math.ceil(min(lobes / cutoff, max(len(x) + 1, _MAX_REACH)))
    from fractions import Fraction  # imported here, because it brings decimal, which takes 3 ms

    step = min(1 / scale, len(x))  # a larger one makes no difference: the result then has one sample
    ratio = Fraction(step).limit_denominator(_MAX_PHASES)
    is_rational = abs(float(ratio) - step) * length < 1e-3  # of a sample, at the end of the signal
    # `half` zeros before the signal and 2 * half + 1 behind it, for the neighbourhoods of its first and last samples.
    padded = np.zeros((half + len(x) + 2 * half + 1, *x.shape[1:]), np.float32)
    padded[half : half + len(x)] = x
    result = np.empty((length, *x.shape[1:]), np.float32)
    taps = np.arange(-half + 1, half + 1)
    # ``[start, ..., tap]``: 2 * half samples, from x[start - half] on.
    neighbourhoods = np.lib.stride_tricks.sliding_window_view(padded, 2 * half, axis=0)
    phases = ratio.denominator if is_rational and ratio.denominator < length else 0
    # Results that are computed at a time, rounded to a multiple of those that BLAS does together.
    rows = max(_MAX_TERMS // (2 * half * math.prod(x.shape[1:])) // 64 * 64, 1)
    # Samples of the result at a distance of `phases` have the same weights, because they have the same fractional
    # position.
    for phase in range(phases):
        position = phase * ratio.numerator / phases
        first = math.floor(position)
        weights = _weights(taps - (position - first), cutoff, lobes).astype(np.float32)
        count = len(range(phase, length, phases))
        # Neighbourhood `first + 1` begins at x[first + 1 - half], as `taps` do. The last one has only zeros, and stands
        # for all behind it.
        starts = np.minimum(first + 1 + np.arange(count) * ratio.numerator, len(neighbourhoods) - 1)
        of_phase = result[phase::phases]
        for begin in range(0, count, rows):
            of_phase[begin : begin + rows] = neighbourhoods[starts[begin : begin + rows]] @ weights
    # Otherwise, each sample of the result has weights of its own.
    rows = min(rows, _MAX_ROWS)
    for begin in range(0, 0 if phases else length, rows):
        position = np.arange(begin, min(begin + rows, length)) / scale
        first = np.floor(position).astype(np.int64)
        weights = _weights(taps - (position - first)[:, None], cutoff, lobes).astype(np.float32)
        starts = np.minimum(first + 1, len(neighbourhoods) - 1)
        result[begin : begin + len(position)] = np.einsum("o...k,ok->o...", neighbourhoods[starts], weights)
    return result
