"""Signals at another sampling rate: by DALI's filter, or by one that also takes away what the new rate can't hold."""

from __future__ import annotations

import functools
import math

import numpy as np

_BLOCK = 256  # samples between which DALI adds up positions in single precision
_POINTS = 512  # of the exact filter's table, for each lobe
_MOST_PHASES = 2048


def lobes_of(quality: float) -> int:
    """How many lobes DALI's filter has on each side: 3, 16 and 64 for 0, 50 and 100."""
    return round(0.007 * quality * quality - 0.09 * quality + 3)


@functools.lru_cache(maxsize=8)
def _hann(lobes: int) -> np.ndarray:
    """A sinc of so many lobes in Hann's window, 32 values for each, with zeros around: index 1 + 32 * (x + lobes)."""
    n = 64 * lobes + 1
    i = (np.arange(n) - n // 2).astype(np.float32)
    x, y = i / np.float32(32), i * (np.float32(2) / np.float32(n))
    values = np.zeros(n + 5, np.float32)
    values[1 : n + 1] = np.sinc(x.astype(np.float64)) * 0.5 * (1 + np.cos(np.pi * y.astype(np.float64)))
    return values


def resampled(x: np.ndarray, scale: float, length: int, quality: float, antialias: bool = False) -> np.ndarray:
    """A signal at another sampling rate.

    Args:
      x: ``float32[samples, ...]``.
      scale: the new rate divided by the old one.
      length: samples of the result.
      quality: 0 to 100.
      antialias: with a low-pass at the lower one of both Nyquist frequencies; otherwise as DALI, at the old one's.
    """
    if not length or not len(x):
        return np.zeros((length, *x.shape[1:]), np.float32)
    return _with_low_pass(x, scale, length, quality) if antialias else _as_dali(x, scale, length, quality)


def _as_dali(x: np.ndarray, scale: float, length: int, quality: float) -> np.ndarray:
    lobes, n, step = lobes_of(quality), len(x), 1 / scale
    window = _hann(lobes)
    result = np.empty((length, *x.shape[1:]), np.float32)
    for begin in range(0, length, _BLOCK):
        whole = math.floor(begin * step)
        position = np.full(min(_BLOCK, length - begin), step, np.float32)
        position[0] = begin * step - whole
        position = np.add.accumulate(position, dtype=np.float32)[:, None]
        i = np.ceil(position).astype(np.int64) - lobes + np.arange(2 * lobes)
        at = (i.astype(np.float32) - position) * np.float32(32) + np.float32(32 * lobes + 1)
        left = np.floor(at).astype(np.int64)
        weights = window[left] + (at - left.astype(np.float32)) * (window[left + 1] - window[left])
        i += whole
        weights = np.where((i >= 0) & (i < n), weights, np.float32(0))
        result[begin : begin + len(i)] = np.einsum("ok,ok...->o...", weights, x[np.clip(i, 0, n - 1)])
    return result


# DALI's resampler interpolates at the old rate, whatever the new one is: a tone of 12 kHz taken from 44.1 to 16 kHz
# comes out as one of 4 kHz, at full amplitude. With `antialias` the sinc is stretched to the lower rate, in a Kaiser
# window of 24 lobes or more from quality 50 on: 86 dB, and a transition from 0.86 to 1.09 of the new Nyquist frequency
# (5.7 / 24 wide, around 0.975).
_KAISER, _LOBES, _CUTOFF = 8.6, 24, 0.975


@functools.lru_cache(maxsize=8)
def _kaiser(lobes: int) -> np.ndarray:
    """A sinc in Kaiser's window from its middle on, `_POINTS` values for each lobe, and zeros behind."""
    x = np.arange(lobes * _POINTS + 2) / _POINTS
    values = np.sinc(x) * np.i0(_KAISER * np.sqrt(np.maximum(1 - (x / lobes) ** 2, 0))) / np.i0(_KAISER)
    values[lobes * _POINTS + 1 :] = 0
    return values


def _weights(distance: np.ndarray, cutoff: float, lobes: int) -> np.ndarray:
    """The filter at distances in samples of the old rate; `cutoff` relative to its Nyquist frequency."""
    table = _kaiser(lobes)
    at = np.minimum(np.abs(distance) * (cutoff * _POINTS), lobes * _POINTS)
    left = at.astype(np.int64)
    return cutoff * (table[left] + (at - left) * (table[left + 1] - table[left]))


def _with_low_pass(x: np.ndarray, scale: float, length: int, quality: float) -> np.ndarray:
    lobes = max(lobes_of(quality), _LOBES if quality >= 50 else 3)
    cutoff = min(scale, 1.0) * _CUTOFF
    half = math.ceil(lobes / cutoff)
    from fractions import Fraction  # not before one is needed: it comes with decimal, 3 ms

    ratio = Fraction(1 / scale).limit_denominator(_MOST_PHASES)
    exact = abs(float(ratio) - 1 / scale) * length < 1e-3  # of a sample, at the end of the signal
    padded = np.zeros((half + len(x) + 2 * half + 1, *x.shape[1:]), np.float32)
    padded[half : half + len(x)] = x
    result = np.empty((length, *x.shape[1:]), np.float32)
    taps = np.arange(-half + 1, half + 1)
    # [place, ..., tap]: of x[place - half ...].
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * half, axis=0)
    phases = ratio.denominator if exact and ratio.denominator < length else 0
    # Every so many samples of the result the same weights, as far as the rates are integers.
    for phase in range(phases):
        position = phase * ratio.numerator / phases
        first = math.floor(position)
        weights = _weights(taps - (position - first), cutoff, lobes).astype(np.float32)
        count = len(range(phase, length, phases))
        places = np.minimum(first + 1 + np.arange(count) * ratio.numerator, len(windows) - 1)
        result[phase::phases] = windows[places] @ weights
    for begin in range(0, 0 if phases else length, _BLOCK):
        position = np.arange(begin, min(begin + _BLOCK, length)) / scale
        first = np.floor(position).astype(np.int64)
        weights = _weights(taps - (position - first)[:, None], cutoff, lobes).astype(np.float32)
        places = np.minimum(first + 1, len(windows) - 1)
        result[begin : begin + len(position)] = np.einsum("o...k,ok->o...", windows[places], weights)
    return result
