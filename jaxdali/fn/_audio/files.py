"""Signals from the contents of audio files, by libsndfile (package soundfile)."""

from __future__ import annotations

import io
import math
import struct
from typing import Any

import numpy as np

from ..._data.storage import Storage
from .._families.conversion import convert
from .amplitudes import as_type
from .resampling import resampled

# Kinds of samples that libsndfile does not scale or saturate where it gives integers.
_FLOATS = ("FLOAT", "DOUBLE", "VORBIS", "OPUS")


def soundfile(operator: str) -> Any:
    """The package; ImportError says how to install it."""
    try:
        import soundfile
    except ImportError as e:
        raise ImportError(f'{operator} needs soundfile: pip install "jaxdali[audio]"') from e
    return soundfile


def _plain(content: bytes | memoryview) -> tuple[np.ndarray, int] | None:
    """The samples ``int16[n, channels]`` of a WAV file of 16-bit PCM, as a view, and its rate; None: it is another
    file.

    Most speech is stored so, and libsndfile would read it through calls back into Python, in ten times the time.
    """
    if content[:4] != b"RIFF" or content[8:16] != b"WAVEfmt ":
        return None
    at, form = 12, None
    while at + 8 <= len(content):
        kind, size = content[at : at + 4], int.from_bytes(content[at + 4 : at + 8], "little")
        if kind == b"fmt " and size >= 16 and at + 24 <= len(content):
            form = struct.unpack_from("<HHIIHH", content, at + 8)
        if kind == b"data":
            if form is None or form[0] != 1 or form[5] != 16 or form[4] != 2 * form[1] or not form[1] or not form[2]:
                return None
            # Cut off, or still being written: libsndfile knows what to do.
            if size % form[4] or at + 8 + size > len(content):
                return None
            return np.frombuffer(content, "<i2", size // 2, at + 8).reshape(-1, form[1]), form[2]
        at += 8 + size + size % 2
    return None


def read(
    content: bytes | memoryview,
    storage: Storage,
    dtype: np.dtype,
    downmix: bool,
    to: float = 0,
    quality: float = 50,
    antialias: bool = False,
    offset: float = 0,
    duration: float = -1,
) -> tuple[np.ndarray, int]:
    """The signal of a file, and the file's sampling rate. Only the part that is asked for is decoded.

    Args:
      content: of the file.
      storage: bounds what is decoded of a file.
      dtype: float32, int16 or int32. Floats of a file become integers so that full scale is their whole range; louder
        ones saturate.
      downmix: give the mean of the channels, ``[samples]``; otherwise ``[samples, channels]``.
      to: the rate to resample to, in Hz; 0: none.
      quality, antialias: of resampling.
      offset, duration: of the part, in seconds; a negative duration for all that there is.

    Raises:
      ValueError: the file can't be decoded, or its signal is larger than `storage` allows.
    """
    package = soundfile("audio")
    plain = _plain(content)
    try:
        f = package.SoundFile(io.BytesIO(content)) if plain is None else None
        rate, length, channels = (f.samplerate, f.frames, f.channels) if f is not None else (plain[1], *plain[0].shape)  # pyright: ignore
        begin = max(math.floor(offset * rate), 0)
        if begin > length:
            raise ValueError(f"it has {length} samples, its offset is {begin}")
        count = length - begin if duration < 0 else min(math.floor(duration * rate), length - begin)
        if why := storage.too_large(count * channels * 4):
            raise ValueError(f"it has {count} samples of {channels} channels: {why}")
        changed = (downmix and channels > 1) or (to > 0 and to != rate)
        wanted = np.dtype(np.float32) if changed else dtype
        if f is not None:
            with f:
                if begin:
                    f.seek(begin)
                if wanted.kind == "i" and f.subtype in _FLOATS:
                    x = _integers(
                        f.read(count, "float64" if f.subtype == "DOUBLE" else "float32", always_2d=True), wanted
                    )
                else:
                    x = f.read(count, wanted.name, always_2d=True)
        else:
            x = _converted(plain[0][begin : begin + count], wanted)  # pyright: ignore[reportOptionalSubscript]
    except package.SoundFileError as e:
        raise ValueError(str(e)) from e
    if downmix:
        x = x[:, 0] if x.shape[1] == 1 else (x * np.float32(1 / x.shape[1])).sum(1, dtype=np.float32)
    if to > 0 and to != rate:
        x = resampled(x, to / rate, math.ceil(len(x) * to / rate), quality, antialias)
    return (x if x.dtype == dtype else as_type(x, dtype)), rate


def _integers(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Floats as integers, saturated. Those in range are what libsndfile gives for Vorbis."""
    scale = np.float64(2**31) if dtype == np.int32 else x.dtype.type(np.iinfo(dtype).max)
    with np.errstate(over="ignore"):
        return convert(np, np.rint(x * scale), dtype)


def _converted(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """16-bit samples as libsndfile gives them."""
    if dtype.kind == "f":
        return np.multiply(x, np.float32(1 / 32768), dtype=np.float32)
    return x.astype(np.int32) << 16 if dtype == np.int32 else x.astype(np.int16)
