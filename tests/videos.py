"""Small videos for tests, written by PyAV."""

import pathlib
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest


def picture(i: int, height: int, width: int) -> np.ndarray:
    """RGB pixels that differ between frames, with edges and smooth parts."""
    y, x = np.mgrid[:height, :width]
    found = np.stack([x * 4 + i * 9, y * 5 + i * 3, i * 12 + x * 2 + y], -1) % 256
    found[i % height, :, :] = 255
    return found.astype(np.uint8)


def write(
    path: pathlib.Path | str,
    n: int = 20,
    codec: str = "libx264",
    *,
    size: tuple[int, int] = (48, 64),
    form: str = "yuv420p",
    rate: int = 25,
    gop: int = 8,
    pts: Sequence[int] | None = None,
    container: str | None = None,
    colorspace: Any = None,
    color_range: Any = None,
    first: int = 0,
    **options: str,
) -> str:
    """Writes a video of n frames; skips the test if PyAV is missing, or its FFmpeg lacks the codec.

    Args:
      pts: when frames are shown, in milliseconds; first: the number of the first picture. Others are FFmpeg's.
    """
    av = pytest.importorskip("av")
    try:
        av.codec.Codec(codec, "w")
    except av.codec.codec.UnknownCodecError:
        pytest.skip(f"FFmpeg has no {codec}")
    base = Fraction(1, 1000 if pts is not None else rate)
    with av.open(str(path), "w", format=container) as output:
        stream = output.add_stream(codec, rate=rate)
        stream.height, stream.width = size
        stream.pix_fmt = form
        stream.codec_context.gop_size = gop
        stream.time_base = stream.codec_context.time_base = base
        stream.options = {"x265-params": "log-level=none", **options} if codec == "libx265" else options
        if colorspace is not None:
            stream.codec_context.colorspace = colorspace
        if color_range is not None:
            stream.codec_context.color_range = color_range
        for i in range(n):
            frame = av.VideoFrame.from_ndarray(picture(first + i, *size), "rgb24")
            frame = frame.reformat(format=form, dst_colorspace=colorspace, dst_color_range=color_range)
            frame.pts, frame.time_base = i if pts is None else pts[i], base
            output.mux(stream.encode(frame))
        output.mux(stream.encode(None))
    return str(path)


def planes(frame: Any) -> bytes:
    """What the decoder gives, before any conversion."""
    wide = 2 if "10" in frame.format.name else 1
    return b"".join(np.frombuffer(p, np.uint8).reshape(-1, p.line_size)[:, : p.width * wide].tobytes() for p in frame.planes)


def decoded(path: str) -> Iterator[Any]:
    """The frames of a video, one after another."""
    av = pytest.importorskip("av")
    with av.open(path) as container:
        stream = container.streams.best("video")
        stream.codec_context.thread_count = 1
        yield from container.decode(stream)


def rgb(path: str) -> np.ndarray:
    """All frames of a video, converted as DALI converts them: BT.601, chroma interpolated linearly."""
    from av.video.reformatter import Interpolation

    how = Interpolation.BILINEAR | Interpolation.FULL_CHR_H_INT | Interpolation.ACCURATE_RND
    frames = decoded(path)
    return np.stack([f.to_ndarray(format="rgb24", interpolation=how, src_colorspace="ITU601", dst_colorspace="ITU601") for f in frames])
