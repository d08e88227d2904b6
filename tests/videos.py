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
    pixels = np.stack([x * 4 + i * 9, y * 5 + i * 3, i * 12 + x * 2 + y], -1) % 256
    pixels[i % height, :, :] = 255
    return pixels.astype(np.uint8)


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
    color_trc: Any = None,
    turn: str = "",
    first: int = 0,
    **options: str,
) -> str:
    """Writes a video of n frames; skips the test if PyAV is missing, or its FFmpeg lacks the codec.

    Args:
      pts: when frames are shown, in milliseconds; first: the number of the first picture. Others are FFmpeg's.
      turn: what the display matrix says, a key of `TURNS`.
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
        if color_trc is not None:
            stream.codec_context.color_trc = color_trc
        if turn:
            (a, b), (c, d) = TURNS[turn]
            one = 1 << 16
            stream.set_display_matrix([a * one, b * one, 0, c * one, d * one, 0, 0, 0, 1 << 30])
        for i in range(n):
            frame = av.VideoFrame.from_ndarray(picture(first + i, *size), "rgb24")
            frame = frame.reformat(format=form, dst_colorspace=colorspace, dst_color_range=color_range)
            frame.pts, frame.time_base = i if pts is None else pts[i], base
            output.mux(stream.encode(frame))
        output.mux(stream.encode(None))
    return str(path)


TURNS = {  # rows of the display matrices: where x, and where y of the coded frame points in the one that is shown
    "none": ((1, 0), (0, 1)),
    "left": ((0, -1), (1, 0)),
    "over": ((-1, 0), (0, -1)),
    "right": ((0, 1), (-1, 0)),
    "mirror": ((-1, 0), (0, 1)),
    "flip": ((1, 0), (0, -1)),
    "transpose": ((0, 1), (1, 0)),
    "transverse": ((0, -1), (-1, 0)),
}


def upright(frames: np.ndarray, turn: str) -> np.ndarray:
    """Frames ``[F, H, W, C]`` as they are shown: each pixel goes where the matrix says."""
    (a, b), (c, d) = TURNS[turn]
    y, x = np.mgrid[: frames.shape[1], : frames.shape[2]]
    to_x, to_y = a * x + c * y, b * x + d * y
    to_x, to_y = to_x - to_x.min(), to_y - to_y.min()
    shown = np.zeros((len(frames), to_y.max() + 1, to_x.max() + 1, frames.shape[3]), frames.dtype)
    shown[:, to_y, to_x] = frames
    return shown


# Red and blue in luma.
WEIGHTS = {1: (0.2126, 0.0722), 2: (0.299, 0.114), 5: (0.299, 0.114), 6: (0.299, 0.114), 9: (0.2627, 0.0593)}


def exact(y: np.ndarray, u: np.ndarray, v: np.ndarray, matrix: int, full: bool, bits: int) -> np.ndarray:
    """Planes as RGB in floats, by the definition of the matrix with this number; with chroma interpolated as in
    `converted`.
    """
    red, blue = WEIGHTS[matrix]
    for axis in range(2):
        extent = y.shape[axis]
        u, v = (
            between(c.astype(float), axis).take(range(extent), axis) / 4 if c.shape[axis] != extent else c
            for c in (u, v)
        )
    largest, scale = (1 << bits) - 1, 1 << (bits - 8)
    luma = y / largest if full else (y - 16.0 * scale) / (219 * scale)
    u, v = ((c - 128.0 * scale) / (largest if full else 224 * scale) for c in (u, v))
    r, b = luma + 2 * (1 - red) * v, luma + 2 * (1 - blue) * u
    g = (luma - red * r - blue * b) / (1 - red - blue)
    return np.clip(255 * np.stack([r, g, b], -1), 0, 255)


def exact_rgb(path: str) -> np.ndarray:
    """All frames of a video by `exact`, with the matrix and the range that they name."""

    def plane(p: Any, bits: int) -> np.ndarray:
        return np.frombuffer(p, "<u2" if bits > 8 else np.uint8).reshape(p.height, -1)[:, : p.width]

    frames = []
    for f in decoded(path):
        bits = f.format.components[0].bits
        frames.append(exact(*(plane(p, bits) for p in f.planes), int(f.colorspace), f.color_range == 2, bits))
    return np.stack(frames)


def planes(frame: Any) -> bytes:
    """The frames as the decoder gives them, before any conversion."""
    wide = 2 if "10" in frame.format.name else 1
    return b"".join(
        np.frombuffer(p, np.uint8).reshape(-1, p.line_size)[:, : p.width * wide].tobytes() for p in frame.planes
    )


def decoded(path: str) -> Iterator[Any]:
    """The frames of a video, one after another."""
    av = pytest.importorskip("av")
    with av.open(path) as container:
        stream = container.streams.best("video")
        stream.codec_context.thread_count = 1
        yield from container.decode(stream)


# In units of 2^-13.
RANGES = {False: (9539, 16, 13075, 16525, -3209, -6660), True: (8192, 0, 11485, 14516, -2819, -5850)}


def between(x: np.ndarray, axis: int) -> np.ndarray:
    """Twice as many samples, between those that there are: three parts of the near one and one of the far one."""
    n = 2 * x.shape[axis]
    near = np.arange(n) // 2
    far = np.clip(near + np.where(np.arange(n) % 2, 1, -1), 0, n // 2 - 1)
    return 3 * x.take(near, axis) + x.take(far, axis)


def converted(y: np.ndarray, u: np.ndarray, v: np.ndarray, full: bool) -> np.ndarray:
    """Planes as RGB, as DALI converts them: by BT.601, in its range, with chroma interpolated linearly between the
    samples of luma.
    """
    luma, black, red_v, blue_u, green_u, green_v = RANGES[full]
    for axis in range(2):
        halved = y.shape[axis] != u.shape[axis]
        u, v = (between(x.astype(int), axis) if halved else 4 * x.astype(int) for x in (u, v))
    u, v, grey = u - 2048, v - 2048, 16 * (y.astype(int) - black) * luma + (1 << 16)
    return np.clip(
        np.stack([grey + v * red_v, grey + u * green_u + v * green_v, grey + u * blue_u], -1) >> 17, 0, 255
    ).astype(np.uint8)


def rgb(path: str) -> np.ndarray:
    """All frames of a video in RGB; its samples have 8 bits, and its extents are even."""

    def plane(p: Any) -> np.ndarray:
        return np.frombuffer(p, np.uint8).reshape(-1, p.line_size)[: p.height, : p.width]

    return np.stack([converted(*map(plane, f.planes[:3]), bool(f.color_range == 2)) for f in decoded(path)])
