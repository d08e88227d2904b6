"""decoders.audio: signals from the contents of audio files."""

from __future__ import annotations

import functools
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, Literal, Unpack, cast

import numpy as np

from ... import types
from ..._core.arguments import Arguments
from ..._core.building import add, as_node, is_node
from ..._core.context import BuildContext, HostContext
from ..._core.declaration import DType, OneOf, Range
from ..._core.graph import DataNode
from ..._core.operator import HostOperator, Operator
from ..._core.operator_function import Hints, Input, PerSample, operator_function
from ..._core.system import thread_pool
from ..._core.values import Spec, Value
from ..._cpu import Status
from ..._data.storage import Storage
from .._audio import files
from .._decode.foreign import path_advice
from .._tensor.copy import copy_to
from ..readers._reader import storage_of

_DTYPES = (np.dtype(np.float32), np.dtype(np.int16), np.dtype(np.int32))


@functools.lru_cache(maxsize=8)
def _threads(num_threads: int) -> ThreadPoolExecutor:
    return thread_pool(num_threads, "jaxdali-audio")


class DecodeAudio(HostOperator):
    """Decodes the signal of each file, and its sampling rate."""

    name = "decoders.audio"
    downmix: bool
    dtype: np.dtype
    quality: float
    antialias: bool
    storage: Storage

    @property
    def num_outputs(self) -> int:
        return 2

    def bind(self, ctx: BuildContext, *specs: Spec) -> Operator:
        files.soundfile("decoders.audio")
        return self

    def infer(self, data: Spec, *arguments: Spec) -> tuple[Spec, ...]:
        if data.ndim != 1 or data.dtype != np.uint8:
            raise TypeError(f"the input must be encoded files, 1-D uint8, got {data.ndim}-D {data.dtype}")
        return Spec(self.dtype, 1 if self.downmix else 2, None), Spec(np.dtype(np.float32), 0, ())

    def run(self, ctx: HostContext, data: Value, *arguments: Value) -> tuple[Any, ...]:
        """See `HostOperator.run`: the signals, and their rates in Hz."""
        rates = self.arguments(ctx, arguments).get("sample_rate")
        present = np.flatnonzero(ctx.present).tolist()

        def decode(i: int) -> tuple[np.ndarray, float] | str:
            """The signal and its rate, or the reason why the file can't be decoded."""
            new_rate = 0.0 if rates is None else float(rates[i])
            try:
                x, rate = files.read(
                    data.sample(i).data,
                    self.storage,
                    dtype=self.dtype,
                    downmix=self.downmix,
                    to=new_rate,
                    quality=self.quality,
                    antialias=self.antialias,
                )
            except ValueError as e:
                return path_advice(data.sample(i).data) or str(e)
            return x, new_rate or rate

        results = (
            map(decode, present)
            if ctx.num_threads == 1 or len(present) < 2
            else _threads(ctx.num_threads).map(decode, present)
        )
        signals = [np.zeros((0,) * ctx.spec.ndim, self.dtype)] * ctx.N
        output_rates = np.zeros(ctx.N, np.float32)
        for i, result in zip(present, results, strict=True):
            if isinstance(result, str):
                ctx.fail(i, Status.RECORD, result)
            else:
                signals[i], output_rates[i] = result
        return signals, output_rates


@operator_function("decoders.audio")
def audio(
    input: Input,
    /,
    *,
    downmix: bool = False,
    dtype: Annotated[DType, OneOf(*_DTYPES)] = types.FLOAT,
    sample_rate: Annotated[PerSample[float], Range(0)] = 0.0,
    quality: Annotated[float, Range(0, 100)] = 50.0,
    antialias: bool = False,
    device: Literal["cpu", "mixed", "gpu"] | None = None,
    name: str | None = None,
    **hints: Unpack[Hints],
) -> list[DataNode]:
    """Decodes audio files: WAV, FLAC, Ogg Vorbis, Opus, MP3 and what else libsndfile knows (package soundfile).

    Done on the host.

    Args:
      input: the files, 1-D uint8.
      downmix: give the mean of the channels.
      dtype: FLOAT (full scale is 1), INT16 or INT32. Floats of a file are scaled to the whole range of integers, and
        saturate.
      sample_rate: resample to this rate, in Hz. 0: keep the file's own. May be per sample.
      quality: of resampling, 0 to 100: 3 to 64 lobes of a sinc in Hann's window.
      antialias: when resampling, also take away the frequencies that the new rate can't hold; beyond DALI, see
        `audio_resample`.

    Returns:
      The signal, ``[samples, channels]``, with `downmix` ``[samples]``; and its rate in Hz (after resampling), a
      ``float32`` scalar.

    Raises:
      TypeError: the input is not 1-D uint8.
      ImportError: at build, soundfile (``pip install "jaxdali[audio]"``) is not there.
      SampleError: a file can't be decoded, or its signal is larger, also if resampled, than the `Storage` of its reader
        allows (1 GiB unless it says otherwise).

    Differs from DALI: integers of a WAV file of floats are its samples; DALI gives 0, without scaling. Loud sound of
    Vorbis and Opus saturates; in DALI it wraps around.

    Example:
      >>> audio, rate = fn.decoders.audio(files, downmix=True, sample_rate=16000, antialias=True)
    """
    encoded = as_node(input, "decoders.audio")
    args, nodes = Arguments.of({"sample_rate": sample_rate}, is_node)
    op = DecodeAudio(
        args=args,
        downmix=downmix,
        dtype=cast(np.dtype, dtype),
        quality=quality,
        antialias=antialias,
        storage=storage_of(encoded),
    )
    outputs = add(op, copy_to(encoded, "cpu"), *nodes, name=name)
    return [x.gpu() for x in outputs] if device in ("mixed", "gpu") or encoded.device == "gpu" else outputs
