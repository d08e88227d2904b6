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

# Chroma subsampling: the rows and columns of luma for one sample of chroma.
_SUBSAMPLING = {"420": (2, 2), "422": (1, 2), "444": (1, 1), "440": (2, 1)}
# FFmpeg's pixel formats of 8 bits, which are converted here as swscale does. "j" (JPEG) means the full range.
_PLANES_8_BITS = {f"yuv{j}{name}p": _SUBSAMPLING[name] for name in ("420", "422", "444") for j in ("", "j")}
# All formats whose planes are read here, and their subsampling. "a" has a fourth plane, alpha, which is not read.
_PLANES = {
    f"yuv{x}{name}p{end}": rows_and_columns
    for name, rows_and_columns in _SUBSAMPLING.items()
    for x in ("", "j", "a")
    for end in ("", "10le")
}
_PLANES |= {"gray": (2, 2), "gray10le": (2, 2)}
# By the extents (height, width) of chroma in a frame of 256x256 pixels.
_PLANAR_FORMATS = {(256, 256): "yuv444p", (256, 128): "yuv422p", (128, 128): "yuv420p"}
# Numbers of FFmpeg's libavutil/pixfmt.h; transfer characteristics and matrices are those of ITU-T H.273.
_LIMITED, _FULL = 1, 2  # AVCOL_RANGE_MPEG, AVCOL_RANGE_JPEG
_HDR = (16, 18)  # AVCOL_TRC_SMPTE2084 (PQ), AVCOL_TRC_ARIB_STD_B67 (HLG)
# AVCOL_SPC_*. 2 is unspecified and 3 reserved, which FFmpeg takes as BT.601; 5 is BT.470BG and 6 SMPTE 170M, which have
# the weights of BT.601; 9 is BT.2020 with non-constant luminance. Others (0 is RGB, 8 YCgCo, ...) have no such weights.
_MATRIX_NAMES = {1: "bt709", 2: "bt601", 3: "bt601", 4: "fcc", 5: "bt601", 6: "bt601", 7: "smpte240m", 9: "bt2020"}
_HALF_DEGREE = 0.0087  # its tangent; FFmpeg rounds smaller angles to 0


@dataclasses.dataclass(frozen=True)
class PixelForm:
    """The form of the pixels that frames become.

    Attributes:
      ycbcr: whether pixels are Y, Cb and Cr, instead of R, G and B.
      upright: whether frames are turned as the file says.
      color_matrix: the matrix of RGB: "bt601", as in DALI, or "stream", the one that the stream names.
    """

    ycbcr: bool = False
    upright: bool = False
    color_matrix: ColorMatrix = "bt601"


class Showing(NamedTuple):
    """How frames are to be shown.

    Attributes:
      turn: the bits TRANSPOSED, UPSIDE_DOWN and MIRRORED, by which they are turned upright, in this order.
      hdr: whether their transfer characteristics are those of HDR, PQ or HLG.
    """

    turn: int
    hdr: bool


def turn_of(frame: Any) -> int:
    """How a frame is turned upright, by FFmpeg's rules: the bits of `turned`, from its display matrix.

    0 if the angle is no multiple of 90 degrees.
    """
    data = frame.side_data.get("DISPLAYMATRIX")
    if data is None:
        return 0
    # The matrix of ISO/IEC 14496-12: a pixel (x, y) is shown at (a x + c y, b x + d y), apart from a translation.
    a, b, _, c, d, *_ = np.frombuffer(bytes(data), np.int32).astype(float)
    if max(abs(b), abs(c)) <= _HALF_DEGREE * min(abs(a), abs(d)):
        return UPSIDE_DOWN * bool(d < 0) + MIRRORED * bool(a < 0)
    if max(abs(a), abs(d)) <= _HALF_DEGREE * min(abs(b), abs(c)):
        return TRANSPOSED + UPSIDE_DOWN * bool(b < 0) + MIRRORED * bool(c < 0)
    return 0


def turned(x: np.ndarray, turn: int) -> np.ndarray:
    """A view of pixels ``[H, W, ...]``, turned: `TRANSPOSED`, then `UPSIDE_DOWN`, then `MIRRORED`."""
    x = x.swapaxes(0, 1) if turn & TRANSPOSED else x
    x = x[::-1] if turn & UPSIDE_DOWN else x
    return x[:, ::-1] if turn & MIRRORED else x


def is_hdr(frame: Any) -> bool:
    """Whether the transfer characteristics of a frame are PQ or HLG."""
    return frame.color_trc in _HDR


def doubts_about(videos: Iterable[Any], apply_rotation: bool | None, counts: bool = True) -> dict[str, str]:
    """Texts for warnings about videos, by the subject of each.

    Args:
      videos: the index or the `Showing` of each.
      apply_rotation: the operator's argument; None: it is not given.
      counts: whether texts say how many videos they are about. The numbers differ from batch to batch, and each new
        text is a new warning, so texts about a batch have none.
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

    With BT.601 the pixels are DALI's, which uses swscale with its options for accuracy. As swscale is slow, frames with
    even extents are converted by `yuv_to_rgb` instead, to the same numbers in a sixth of the time. With the stream's
    matrix `yuv_to_rgb` also converts frames with odd extents, and frames with 10 bits without rounding them to 8 bits
    first. Chroma between its samples is interpolated linearly.

    Args:
      form: the form of the pixels.
      turn: how the frames of the video are turned upright, the bits TRANSPOSED, UPSIDE_DOWN and MIRRORED, see `turned`.
        It has no effect unless `form.upright`.
    """

    def __init__(self, form: PixelForm, turn: int = 0):
        from av.video.reformatter import Colorspace, Interpolation, VideoReformatter

        self._form, self._turn = form, turn if form.upright else 0
        self._reformatter = VideoReformatter()
        # Of swscale: DALI's options for accuracy.
        self._options = {
            "interpolation": Interpolation.BILINEAR | Interpolation.FULL_CHR_H_INT | Interpolation.ACCURATE_RND,
            "src_colorspace": Colorspace.ITU601,
            "dst_colorspace": Colorspace.ITU601,
        }

    def convert(self, frame: Any, out: np.ndarray) -> None:
        """Writes the pixels of a frame into `out`, or its planes if `out` has one axis: see `planes.nbytes`.

        Raises:
          ValueError: the stream names a matrix that can't be converted.
        """
        if out.ndim == 1:
            self._copy_planes(frame, out)
            return
        # The pixel format whose planes `yuv_to_rgb` converts; "": swscale converts the frame.
        format_name, matrix = "", "bt601"
        if self._form.color_matrix == "stream":
            format_name = _lossless_format(frame.format.name)
            matrix = _matrix(frame) if format_name else ""
        elif not (self._form.ycbcr or frame.width % 2 or frame.height % 2):
            format_name = _planar_8_bits(frame.format.name)
        if format_name:
            planar = self._in_format(frame, format_name)
            multipliers = factors(matrix, _is_full(planar), depth(format_name))
            if self._turn & (UPSIDE_DOWN | MIRRORED) and (frame.width % 2 or frame.height % 2):
                # With odd extents the last sample of chroma belongs to only one row or column of luma. Turned planes
                # would begin with it, and it would get two rows; so the pixels are turned, not the planes.
                coded = np.empty((frame.height, frame.width, 3), np.uint8)
                y, u, v = _read_planes(planar)
                _cpu.yuv_to_rgb(y, u, v, multipliers, coded)
                out[:] = turned(coded, self._turn)
                return
            y, u, v = map(self._upright, _read_planes(planar))
            _cpu.yuv_to_rgb(y, u, v, multipliers, out)
            return
        # swscale converts the frame. Samples Y, Cb and Cr keep the range of the stream.
        options = self._options
        if self._form.ycbcr:
            options = options | {"src_color_range": frame.color_range, "dst_color_range": frame.color_range}
        converted = self._reformatter.reformat(frame, format="yuv444p" if self._form.ycbcr else "rgb24", **options)
        height, width = frame.height, frame.width
        # PyAV's rows have padding at their ends.
        if not self._form.ycbcr:
            out[:] = turned(_rows(converted.planes[0])[:height, : 3 * width].reshape(height, width, 3), self._turn)
            return
        for c in range(3):
            out[..., c] = turned(_rows(converted.planes[c])[:height, :width], self._turn)

    def _copy_planes(self, frame: Any, out: np.ndarray) -> None:
        """Writes planes Y, U and V of a frame, as 4:2:0, and the byte of its matrix and range into `out`."""
        matrix = _matrix(frame) if self._form.color_matrix == "stream" else "bt601"
        # Frames whose chroma is not halved along both axes become 4:2:0 by swscale.
        planar = _planar_8_bits(frame.format.name)
        converted = self._in_format(frame, planar if _PLANES.get(planar) == (2, 2) else "yuv420p")
        begin = 0
        if len(out) != nbytes(frame.height, frame.width):
            raise ValueError(f"a frame has {frame.height}x{frame.width} pixels, unlike the video")
        for plane in _read_planes(converted):
            plane = turned(plane, self._turn)
            out[begin : begin + plane.size].reshape(plane.shape)[...] = plane
            begin += plane.size
        out[begin] = code_of(matrix, _is_full(converted))

    def _upright(self, plane: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(turned(plane, self._turn)) if self._turn else plane

    def _in_format(self, frame: Any, name: str) -> Any:
        """Converts a frame to another pixel format (fewer bits, or another arrangement) with the same range."""
        if name == frame.format.name:
            return frame
        return self._reformatter.reformat(
            frame, format=name, **self._options, src_color_range=frame.color_range, dst_color_range=frame.color_range
        )


def _is_full(frame: Any) -> bool:
    """Whether the samples of a frame have the full range.

    FFmpeg takes the samples of grey frames as full, unless the stream says otherwise.
    """
    name = frame.format.name
    return (
        frame.color_range == _FULL
        or name.startswith("yuvj")
        or (name.startswith("gray") and frame.color_range != _LIMITED)
    )


def _matrix(frame: Any) -> str:
    """The matrix that a frame names; BT.601 if it names none, as in FFmpeg.

    Raises:
      ValueError: the matrix has no factors Kr and Kb.
    """
    number = int(frame.colorspace)
    if number not in _MATRIX_NAMES:
        raise ValueError(
            f'color_matrix="stream": the stream has matrix {number} of ISO/IEC 23091-2, which has no factors; pass "bt601"'
        )
    return _MATRIX_NAMES[number]


def _read_planes(frame: Any) -> list[np.ndarray]:
    """The planes Y, U and V of a frame in one of the formats `_PLANES`: u8, or u16 for more than 8 bits.

    U and V of a grey frame have the value of no colour, the middle of the range.
    """
    name = frame.format.name
    rows, columns = _PLANES[name]
    height, width = frame.height, frame.width
    dtype = "<u2" if depth(name) > 8 else "u1"
    extents = -(-height // rows), -(-width // columns)  # of chroma, rounded up
    y, *chroma = (_rows(plane, dtype) for plane in frame.planes[:3])
    chroma = chroma or [np.full(extents, 1 << (depth(name) - 1), dtype)] * 2
    return [y[:height, :width], *(c[: extents[0], : extents[1]] for c in chroma)]


def depth(name: str) -> int:
    """The number of bits of a sample in a pixel format."""
    return _format(name).components[0].bits if name else 8


def is_halved(name: str) -> bool:
    """Whether frames of a pixel format have, or become, 4:2:0 planes: chroma has half the extents of luma."""
    return _PLANES.get(_planar_8_bits(name)) == (2, 2)


@functools.lru_cache
def _format(name: str) -> Any:
    """FFmpeg's description of a pixel format, for frames of 256x256 pixels."""
    import av

    return av.VideoFormat(name, 256, 256)


@functools.lru_cache
def _planar_8_bits(name: str) -> str:
    """The format of three planes with 8 bits that keeps the chroma of a pixel format; "" if there is none."""
    if not name:
        return ""
    video_format = _format(name)
    if name in _PLANES_8_BITS or video_format.is_rgb or len(video_format.components) != 3:
        return name if name in _PLANES_8_BITS else ""
    return _PLANAR_FORMATS.get((video_format.chroma_height(256), video_format.chroma_width(256)), "")


@functools.lru_cache
def _lossless_format(name: str) -> str:
    """The format in `_PLANES` that keeps the samples of a pixel format, with 10 bits if it has more than 8.

    "" if the format has R, G and B, or a palette.
    """
    video_format = _format(name)
    # FFmpeg's "pal" has a palette, "mono" 1 bit, "xyz" CIE XYZ, and "bayer" the colours of a sensor's filters.
    if name in _PLANES or video_format.is_rgb or name.startswith(("pal", "mono", "xyz", "bayer")):
        return name if name in _PLANES else ""
    planar = (
        "gray"
        if len(video_format.components) < 3
        else _PLANAR_FORMATS.get((video_format.chroma_height(256), video_format.chroma_width(256)), "yuv444p")
    )
    return f"{planar}10le" if depth(name) > 8 else planar


def _rows(plane: Any, dtype: str = "u1") -> np.ndarray:
    """The memory of a plane of PyAV as rows, with the padding at their ends."""
    x = np.frombuffer(plane, dtype)
    return x.reshape(-1, plane.line_size // x.itemsize)
