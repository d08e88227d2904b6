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
from .resampling import LARGEST, nearest_float32, resampled

# Subtypes of files that libsndfile does not scale or saturate when it reads them as integers.
_FLOATS = ("FLOAT", "DOUBLE", "VORBIS", "OPUS")


def soundfile(operator: str) -> Any:
    """Imports the package. Raises ImportError, which says how to install it."""
    try:
        import soundfile
    except ImportError as e:
        raise ImportError(f'{operator} needs soundfile: pip install "jaxdali[audio]"') from e
    return soundfile


class _Content(io.BytesIO):
    """The content of a file. libsndfile seeks to places before the beginning of a damaged one, and cffi would print the
    exception: the position stays, which libsndfile takes for an error.
    """

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        try:
            return super().seek(offset, whence)
        except ValueError:
            return self.tell()


def _wav_samples(content: bytes | memoryview) -> tuple[np.ndarray, int] | None:
    """The samples ``int16[n, channels]`` of a WAV file of 16-bit PCM, as a view, and its rate. None for other files.

    Most speech is stored like this. libsndfile would call back into Python for each read, and take ten times as long.
    """
    if content[:4] != b"RIFF" or content[8:16] != b"WAVEfmt ":
        return None
    # Chunks begin behind "RIFF", the file's size, and "WAVE": 12 bytes. Each is a name and a size, then the content.
    position, format_fields = 12, None
    while position + 8 <= len(content):
        chunk_id, size = (
            content[position : position + 4],
            int.from_bytes(content[position + 4 : position + 8], "little"),
        )
        if chunk_id == b"fmt " and size >= 16 and position + 24 <= len(content):
            # Format tag (1: PCM), channels, samples per second, bytes per second, bytes per frame, bits per sample.
            format_fields = struct.unpack_from("<HHIIHH", content, position + 8)
        if chunk_id == b"data":
            if format_fields is None:
                return None
            tag, channels, rate, _, frame_size, bits = format_fields
            if tag != 1 or bits != 16 or frame_size != 2 * channels or not channels or not rate:
                return None
            # A file that is cut off, or still being written, is left to libsndfile.
            if size % frame_size or position + 8 + size > len(content):
                return None
            return np.frombuffer(content, "<i2", size // 2, position + 8).reshape(-1, channels), rate
        position += 8 + size + size % 2  # Chunks begin at even bytes.
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
    """Reads the signal of a file, or the part of it at `offset`. Only this part is decoded. Returns the signal, and the
    file's sampling rate.

    Args:
      content: the content of the file.
      storage: has the limit on the size of a signal, decoded and resampled.
      dtype: float32, int16 or int32. A file's floats become integers whose whole range is full scale; louder samples
        saturate.
      downmix: whether to return the mean of the channels, ``[samples]``, instead of ``[samples, channels]``.
      to: the rate to resample to, in Hz. 0: the file's.
      quality, antialias: of resampling.
      offset, duration: start and length of the part, in seconds. A negative duration: up to the end.

    Raises:
      ValueError: the file can't be decoded, or its signal is larger than `storage` allows.
    """
    package = soundfile("audio")
    plain, to = _wav_samples(content), nearest_float32(to)
    try:
        f = package.SoundFile(_Content(content)) if plain is None else None
        # `plain` is (samples ``[n, channels]``, rate).
        rate, length, channels = (f.samplerate, f.frames, f.channels) if f is not None else (plain[1], *plain[0].shape)  # pyright: ignore
        begin = max(math.floor(min(offset * rate, LARGEST)), 0)
        if begin > length:
            raise ValueError(f"it has {length} samples, its offset is {begin}")
        count = length - begin if duration < 0 else math.floor(min(duration * rate, length - begin))
        # Counted with 4 bytes per number, as of float32 and int32.
        if reason := storage.too_large(count * channels * 4):
            raise ValueError(f"it has {count} samples of {channels} channels: {reason}")
        is_resampled = to > 0 and to != rate
        if is_resampled:
            new_count = math.ceil(min(count * to / rate, LARGEST))
            if reason := storage.too_large(new_count * (1 if downmix else channels) * 4):
                raise ValueError(
                    f"its {count} samples at {rate} Hz would become {new_count} at sample_rate={to:g}: {reason}"
                )
        is_changed = (downmix and channels > 1) or is_resampled
        # Computed in float32 if the signal is mixed or resampled, and converted at the end.
        read_dtype = np.dtype(np.float32) if is_changed else dtype
        if f is not None:
            with f:
                if begin:
                    f.seek(begin)
                if read_dtype.kind == "i" and f.subtype in _FLOATS:
                    x = _integers(
                        f.read(count, "float64" if f.subtype == "DOUBLE" else "float32", always_2d=True), read_dtype
                    )
                else:
                    x = f.read(count, read_dtype.name, always_2d=True)
        else:
            x = _converted(plain[0][begin : begin + count], read_dtype)  # pyright: ignore[reportOptionalSubscript]
    # Its text names an object in memory.
    except package.LibsndfileError as e:
        raise ValueError(f"it can't be decoded: {e.error_string}") from None
    except package.SoundFileError as e:
        raise ValueError(str(e)) from e
    if downmix:
        x = _mixed(x)
    if is_resampled:
        x = resampled(x, to / rate, math.ceil(len(x) * to / rate), quality, antialias)
    return (x if x.dtype == dtype else as_type(x, dtype)), rate


def _mixed(x: np.ndarray) -> np.ndarray:
    """The mean of the channels of ``float32[samples, channels]``."""
    if x.shape[1] == 1:
        return x[:, 0]
    # One channel after the other: NumPy adds up short rows in many times the time.
    share = np.float32(1 / x.shape[1])
    mean = x[:, 0] * share
    for channel in range(1, x.shape[1]):
        mean += x[:, channel] * share
    return mean


def _integers(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Floats as integers, saturated. Those in range are converted as libsndfile does for Vorbis."""
    scale = np.float64(2**31) if dtype == np.int32 else x.dtype.type(np.iinfo(dtype).max)
    with np.errstate(over="ignore"):
        return convert(np, np.rint(x * scale), dtype)


def _converted(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """16-bit samples in another type, converted as libsndfile does."""
    # Full scale is 32768 as a float; an int32 has the 16 bits on top.
    if dtype.kind == "f":
        return np.multiply(x, np.float32(1 / 32768), dtype=np.float32)
    return x.astype(np.int32) << 16 if dtype == np.int32 else x.astype(np.int16)
