"""Signals at another sampling rate."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, Unpack

import numpy as np

from ..._core.arguments import Arguments
from ..._core.building import add, as_node, is_node
from ..._core.context import HostContext
from ..._core.declaration import DType, OneOf, Range
from ..._core.errors import ArgumentError
from ..._core.graph import DataNode
from ..._core.operator import HostOperator
from ..._core.operator_function import Hints, Input, PerSample, operator_function
from ..._core.values import Spec, Value
from ..._cpu import Status
from ..._data.storage import Storage
from .._families.layouts import spec_of
from .._tensor.copy import copy_to
from ..readers._reader import storage_of
from .amplitudes import as_floats, as_type, scaled
from .resampling import LARGEST, nearest_float32, resampled

_TYPES = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "float32")


class AudioResample(HostOperator):
    """Resamples signals: each new sample is a sum of the old ones, weighted by a windowed sinc."""

    name = "audio_resample"
    quality: float  # 0 to 100; it chooses the number of lobes of the filter
    antialias: bool  # whether frequencies that the new rate can't hold are removed
    dtype: np.dtype | None
    storage: Storage  # has the limit on the size of a result

    def __post_init__(self):
        """Raises ArgumentError unless exactly one way to tell the ratio of the rates is given."""
        rates = [n for n in ("in_rate", "out_rate") if n in self.args]
        # in_rate and out_rate are one way to tell the ratio.
        ways = [*(n for n in ("scale", "out_length") if n in self.args), *rates[:1]]
        if len(rates) == 1:
            raise ArgumentError("arguments in_rate and out_rate must be given together")
        if len(ways) != 1:
            raise ArgumentError(
                f"one of scale, out_length, or in_rate and out_rate must be given, got {' and '.join(ways) or 'none'}"
            )

    def infer(self, x: Spec, *arguments: Spec) -> tuple[Spec, ...]:
        """A signal of unknown length, with the channels and the layout of the input."""
        if x.dtype.name not in _TYPES:
            raise TypeError(f"the input must be integers of at most 32 bits or float32, got {x.dtype}")
        if x.ndim not in (1, 2):
            raise ArgumentError(f"the input must be [samples] or [samples, channels], got {x.ndim}-D data")
        return (spec_of(self.dtype or x.dtype, [None, *([x.extent(1)] if x.ndim == 2 else [])], x.layout),)

    def run(self, ctx: HostContext, x: Value, *arguments: Value) -> tuple[Any, ...]:
        """Resamples one sample after the other. Absent samples become signals without elements."""
        a, dtype = self.arguments(ctx, arguments), ctx.spec.dtype
        samples = [np.zeros((0, *x.shapes[i, 1:]), dtype) for i in range(ctx.N)]
        for i in np.flatnonzero(ctx.present).tolist():
            signal = x.sample(i)
            n = len(signal)
            if "out_length" in a:
                length = int(a.out_length[i])
                scale = length / max(n, 1)
            else:
                scale = (
                    nearest_float32(a.scale[i])
                    if "scale" in a
                    else nearest_float32(a.out_rate[i]) / nearest_float32(a.in_rate[i])
                )
                length = math.ceil(min(n * min(scale, LARGEST), LARGEST))
            # Computed in float32, whatever the element type is.
            if reason := self.storage.too_large(length * math.prod(signal.shape[1:]) * 4):
                ctx.fail(i, Status.RECORD, f"its {n} samples would become {length}, {scale:g} times as many: {reason}")
                continue
            # Scaled before it is resampled. The signal goes on with zeros outside its ends, and these become the
            # smallest unsigned integer, as in DALI, not the middle of the range.
            samples[i] = as_type(
                resampled(scaled(as_floats(signal), dtype), scale, length, self.quality, self.antialias), dtype
            )
        return (samples,)


@operator_function("audio_resample")
def audio_resample(
    input: Input,
    /,
    *,
    in_rate: Annotated[PerSample[float] | None, Range(0, above=True)] = None,
    out_rate: Annotated[PerSample[float] | None, Range(0)] = None,
    scale: Annotated[PerSample[float] | None, Range(0)] = None,
    out_length: Annotated[PerSample[int] | None, Range(0, LARGEST)] = None,
    quality: Annotated[float, Range(0, 100)] = 50.0,
    antialias: bool = False,
    dtype: Annotated[DType | None, OneOf(*map(np.dtype, _TYPES))] = None,
    device: Literal["cpu", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> DataNode:
    """Resamples signals. Computed on the host.

    Args:
      input: signals ``[samples]`` or ``[samples, channels]``, float32 or integers of at most 32 bits.
      in_rate, out_rate: the old and the new sampling rate, in any unit. May be per sample.
      scale: the new rate divided by the old one, in place of both rates. May be per sample.
      out_length: length of the result in samples, in place of all these. May be per sample.
      quality: 0 to 100: 3 to 64 lobes of a sinc in Hann's window (16 for 50).
      antialias: whether frequencies that the new rate can't hold are removed. Not in DALI, where they become others: a
        tone of 12 kHz, resampled from 44.1 to 16 kHz, becomes one of 4 kHz, of the same loudness. From `quality` 50
        on, what lies above 1.1 of the new Nyquist frequency is at least 80 dB weaker, and what lies below 0.85 of it
        changes by at most 0.1 dB.
      dtype: element type of the result. Default: the input's. Full scale stays full scale: -1 ... 1 of floats, and the
        range of integers.

    Returns:
      Signals of ``ceil(samples * scale)`` samples, of the input's layout.

    Raises:
      TypeError: another element type.
      ArgumentError: the input is neither 1-D nor 2-D; no or several ways to say the length.
      SampleError: the result of a signal would be larger, in bytes of float32, than the `Storage` of its reader
        allows (1 GiB unless it says otherwise).

    Example:
      >>> audio = fn.audio_resample(audio, in_rate=44100, out_rate=16000, antialias=True)
    """
    signal = as_node(input, "audio_resample")
    args, nodes = Arguments.of(
        {"in_rate": in_rate, "out_rate": out_rate, "scale": scale, "out_length": out_length}, is_node
    )
    limits = storage_of(signal)
    op = AudioResample(args=args, quality=quality, antialias=antialias, dtype=dtype, storage=limits)  # pyright: ignore[reportArgumentType]
    result = add(op, copy_to(signal, "cpu"), *nodes, name=name)
    return result.gpu() if (device or signal.device) == "gpu" else result
