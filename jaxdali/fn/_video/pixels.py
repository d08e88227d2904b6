"""Pixels of decoded frames: the matrix of their colours, their range, and how they stand upright."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from ... import _cpu
from .planes import ColorMatrix, code_of, factors, nbytes

TRANSPOSED, UPSIDE_DOWN, MIRRORED = 1, 2, 4  # the bits of a turn, which are done in this order

# How many rows and columns of luma share a sample of chroma.
_SHARING = {"420": (2, 2), "422": (1, 2), "444": (1, 1), "440": (2, 1)}
# Converted here, as swscale does.
_BYTES = {f"yuv{j}{name}p": _SHARING[name] for name in ("420", "422", "444") for j in ("", "j")}
_PLANES = {
    f"yuv{x}{name}p{end}": shared for name, shared in _SHARING.items() for x in ("", "j", "a") for end in ("", "10le")
}
_PLANES |= {"gray": (2, 2), "gray10le": (2, 2)}
# By the extents of chroma in 256x256 pixels.
_SHARED = {(256, 256): "yuv444p", (256, 128): "yuv422p", (128, 128): "yuv420p"}
_LIMITED, _FULL = 1, 2  # AVCOL_RANGE_MPEG, AVCOL_RANGE_JPEG
_HDR = (16, 18)  # AVCOL_TRC_SMPTE2084, AVCOL_TRC_ARIB_STD_B67
# AVCOL_SPC_*.
_NAMED = {1: "bt709", 2: "bt601", 3: "bt601", 4: "fcc", 5: "bt601", 6: "bt601", 7: "smpte240m", 9: "bt2020"}
_STRAIGHT = 0.0087  # the tangent of half a degree, which FFmpeg rounds to 0


@dataclasses.dataclass(frozen=True)
class PixelForm:
    """The form of the pixels that frames become.

    Attributes:
      ycbcr: whether pixels are Y, Cb and Cr, instead of R, G and B.
      upright: whether frames are turned as the file says.
      color_matrix: the matrix of RGB: "bt601", as in DALI, or what the stream names.
    """

    ycbcr: bool = False
    upright: bool = False
    color_matrix: ColorMatrix = "bt601"


class Showing(NamedTuple):
    """How frames are to be shown.

    Attributes:
      turn: how they are turned upright, see `turned`.
      hdr: whether their amplitudes are those of HDR, PQ or HLG.
    """

    turn: int
    hdr: bool


def turn_of(frame: Any) -> int:
    """How a frame is turned upright, by FFmpeg's rules: the bits of its display matrix; 0 if its angle is no multiple
    of 90 degrees.
    """
    data = frame.side_data.get("DISPLAYMATRIX")
    if data is None:
        return 0
    a, b, _, c, d, *_ = np.frombuffer(bytes(data), np.int32).astype(float)  # x = a x + c y, y = b x + d y
    if max(abs(b), abs(c)) <= _STRAIGHT * min(abs(a), abs(d)):
        return UPSIDE_DOWN * bool(d < 0) + MIRRORED * bool(a < 0)
    if max(abs(a), abs(d)) <= _STRAIGHT * min(abs(b), abs(c)):
        return TRANSPOSED + UPSIDE_DOWN * bool(b < 0) + MIRRORED * bool(c < 0)
    return 0


def turned(x: np.ndarray, turn: int) -> np.ndarray:
    """A view of pixels ``[H, W, ...]``, turned: `TRANSPOSED`, then `UPSIDE_DOWN`, then `MIRRORED`."""
    x = x.swapaxes(0, 1) if turn & TRANSPOSED else x
    x = x[::-1] if turn & UPSIDE_DOWN else x
    return x[:, ::-1] if turn & MIRRORED else x


def is_hdr(frame: Any) -> bool:
    """Whether its amplitudes are PQ or HLG."""
    return frame.color_trc in _HDR


def doubts_about(videos: Iterable[Any], apply_rotation: bool | None, counts: bool = True) -> dict[str, str]:
    """Texts for warnings of videos; by the subject of each.

    Args:
      videos: the index or the `Showing` of each.
      apply_rotation: the argument; None: it is not given.
      counts: whether texts say how many videos they are about. Those of each batch would be other texts, each with a
        warning of its own.
    """
    videos, texts = list(videos), {}

    def subject(count: int) -> str:
        return f"{count} of {len(videos)} videos" if counts else "some videos"

    if apply_rotation is None and (count := sum(x.turn != 0 for x in videos)):
        texts["rotation"] = (
            f"{subject(count)} are to be shown rotated or mirrored, as phones film, and their frames are returned as "
            "they are coded: apply_rotation=True turns them upright, and False ends this warning"
        )
    if count := sum(x.hdr for x in videos):
        texts["hdr"] = (
            f"{subject(count)} are HDR (PQ or HLG), and their values are returned without tone mapping, so that they "
            "look flat: FFmpeg's filters zscale and tonemap convert such files"
        )
    return texts


class Pixels:
    """Turns frames into pixels ``uint8[H, W, 3]``.

    With BT.601 they are DALI's, which takes swscale with its options for accuracy. It is slow, so frames with even
    extents are converted here, in a sixth of the time, to the same numbers; with the stream's matrix so are odd ones,
    and those with 10 bits without rounding them to 8 bits first. Chroma between its samples is interpolated linearly.

    Args:
      turn: of the video, see `turned`.
    """

    def __init__(self, form: PixelForm, turn: int = 0):
        from av.video.reformatter import Colorspace, Interpolation, VideoReformatter

        self._form, self._turn = form, turn if form.upright else 0
        self._reformatter = VideoReformatter()
        self._options = {
            "interpolation": Interpolation.BILINEAR | Interpolation.FULL_CHR_H_INT | Interpolation.ACCURATE_RND,
            "src_colorspace": Colorspace.ITU601,
            "dst_colorspace": Colorspace.ITU601,
        }

    def convert(self, frame: Any, out: np.ndarray) -> None:
        """Writes the pixels of a frame to their place, or its planes if that has one axis: see `planes.nbytes`.

        Raises:
          ValueError: the stream names a matrix that can't be converted.
        """
        if out.ndim == 1:
            self._copy_planes(frame, out)
            return
        name, matrix = "", "bt601"
        if self._form.color_matrix == "stream":
            name = _exact(frame.format.name)
            matrix = _matrix(frame) if name else ""
        elif not (self._form.ycbcr or frame.width % 2 or frame.height % 2):
            name = _planar(frame.format.name)
        if name:
            image = self._in_format(frame, name)
            numbers = factors(matrix, _is_full(image), depth(name))
            if self._turn & (UPSIDE_DOWN | MIRRORED) and (frame.width % 2 or frame.height % 2):
                # The last sample of chroma belongs to one row or column of luma; turned planes would begin with it, and
                # it would get two.
                coded = np.empty((frame.height, frame.width, 3), np.uint8)
                y, u, v = _planes(image)
                _cpu.yuv_to_rgb(y, u, v, numbers, coded)
                out[:] = turned(coded, self._turn)
                return
            y, u, v = map(self._upright, _planes(image))
            _cpu.yuv_to_rgb(y, u, v, numbers, out)
            return
        options = self._options
        if self._form.ycbcr:
            options = options | {"src_color_range": frame.color_range, "dst_color_range": frame.color_range}
        image = self._reformatter.reformat(frame, format="yuv444p" if self._form.ycbcr else "rgb24", **options)
        height, width = frame.height, frame.width
        if not self._form.ycbcr:
            out[:] = turned(_rows(image.planes[0])[:height, : 3 * width].reshape(height, width, 3), self._turn)
            return
        for c in range(3):
            out[..., c] = turned(_rows(image.planes[c])[:height, :width], self._turn)

    def _copy_planes(self, frame: Any, out: np.ndarray) -> None:
        matrix = _matrix(frame) if self._form.color_matrix == "stream" else "bt601"
        planar = _planar(frame.format.name)
        image = self._in_format(frame, planar if _PLANES.get(planar) == (2, 2) else "yuv420p")
        begin = 0
        if len(out) != nbytes(frame.height, frame.width):
            raise ValueError(f"a frame has {frame.height}x{frame.width} pixels, unlike the video")
        for plane in _planes(image):
            plane = turned(plane, self._turn)
            out[begin : begin + plane.size].reshape(plane.shape)[...] = plane
            begin += plane.size
        out[begin] = code_of(matrix, _is_full(image))

    def _upright(self, plane: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(turned(plane, self._turn)) if self._turn else plane

    def _in_format(self, frame: Any, name: str) -> Any:
        """The frame in another format of the same range: one with fewer bits, or another arrangement."""
        if name == frame.format.name:
            return frame
        return self._reformatter.reformat(
            frame, format=name, **self._options, src_color_range=frame.color_range, dst_color_range=frame.color_range
        )


def _is_full(frame: Any) -> bool:
    """Whether its samples have the full range. FFmpeg takes those of grey frames as such unless the stream says
    otherwise.
    """
    name = frame.format.name
    return (
        frame.color_range == _FULL
        or name.startswith("yuvj")
        or (name.startswith("gray") and frame.color_range != _LIMITED)
    )


def _matrix(frame: Any) -> str:
    """The matrix that a frame names, by FFmpeg's rule BT.601 if it names none. ValueError: there is no such factor as
    it asks for.
    """
    number = int(frame.colorspace)
    if number not in _NAMED:
        raise ValueError(
            f'color_matrix="stream": the stream has matrix {number} of ISO/IEC 23091-2, which has no factors; pass "bt601"'
        )
    return _NAMED[number]


def _planes(frame: Any) -> list[np.ndarray]:
    """The planes of a frame in one of the formats `_PLANES`; a grey one has no colour."""
    name = frame.format.name
    rows, columns = _PLANES[name]
    height, width = frame.height, frame.width
    dtype = "<u2" if depth(name) > 8 else "u1"
    extents = -(-height // rows), -(-width // columns)
    y, *chroma = (_rows(plane, dtype) for plane in frame.planes[:3])
    chroma = chroma or [np.full(extents, 1 << (depth(name) - 1), dtype)] * 2
    return [y[:height, :width], *(c[: extents[0], : extents[1]] for c in chroma)]


def depth(name: str) -> int:
    """How many bits a sample of a format has."""
    return _format(name).components[0].bits if name else 8


def is_halved(name: str) -> bool:
    """Whether frames of a format have, or become, three planes whose chroma has half the extents of luma."""
    return _PLANES.get(_planar(name)) == (2, 2)


@functools.lru_cache
def _format(name: str) -> Any:
    import av

    return av.VideoFormat(name, 256, 256)


@functools.lru_cache
def _planar(name: str) -> str:
    """The format of three planes with 8 bits that keeps the chroma of a format; "": it has none of its own."""
    if not name:
        return ""
    form = _format(name)
    if name in _BYTES or form.is_rgb or len(form.components) != 3:
        return name if name in _BYTES else ""
    return _SHARED.get((form.chroma_height(256), form.chroma_width(256)), "")


@functools.lru_cache
def _exact(name: str) -> str:
    """The format in `_PLANES` that keeps the samples of a format, with 10 bits if it has more than 8; "": it is of R, G
    and B.
    """
    form = _format(name)
    if name in _PLANES or form.is_rgb or name.startswith(("pal", "mono", "xyz", "bayer")):
        return name if name in _PLANES else ""
    planar = (
        "gray"
        if len(form.components) < 3
        else _SHARED.get((form.chroma_height(256), form.chroma_width(256)), "yuv444p")
    )
    return f"{planar}10le" if depth(name) > 8 else planar


def _rows(plane: Any, dtype: str = "u1") -> np.ndarray:
    x = np.frombuffer(plane, dtype)
    return x.reshape(-1, plane.line_size // x.itemsize)
