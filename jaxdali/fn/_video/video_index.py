"""The index of a video file: which packets there are, which of them are key frames, and when each frame is shown."""

from __future__ import annotations

import dataclasses
import functools
from fractions import Fraction

import numpy as np

from .pixels import TRANSPOSED

_VERSION = 3  # of what `VideoIndex.to_bytes` writes


@dataclasses.dataclass(frozen=True)
class VideoIndex:
    """The properties of a video, and when its frames are shown.

    Time stamps are integers in units of `time_base`.

    Attributes:
      size: height and width of the frames as they are coded, in pixels.
      turn: the bits TRANSPOSED, UPSIDE_DOWN and MIRRORED, by which frames are turned upright, in this order.
      halved: whether the codec gives planes whose chroma has half the extents of luma (4:2:0).
      bits: bits of a sample.
      hdr: whether the transfer characteristics are those of HDR, PQ or HLG.
      time_base: seconds of one unit of time.
      rate: frames per second on average; 0: unknown.
      pts: ``i64[frames]``, the time stamp at which each frame is shown, ascending.
      packet_pts: ``i64[packets]``, the same for each packet, in the order of decoding. Some packets have no frame.
      keys: ``i64[keys]``, the numbers of the packets that are key frames.
      is_counted: whether time stamps don't tell frames apart. Frames are then counted from the beginning of the file.
      cut: the number of the first packet at which errors are tolerated, since the file ends in the middle of a frame.
    """

    size: tuple[int, int]
    turn: int
    halved: bool
    bits: int
    hdr: bool
    time_base: Fraction
    rate: Fraction
    pts: np.ndarray
    packet_pts: np.ndarray
    keys: np.ndarray
    is_counted: bool
    cut: int

    def __len__(self) -> int:
        return len(self.pts)

    def extents(self, upright: bool) -> tuple[int, int]:
        """Height and width of the frames, turned upright or as they are coded."""
        height, width = self.size
        return (width, height) if upright and self.turn & TRANSPOSED else (height, width)

    @functools.cached_property
    def packet_of_frame(self) -> np.ndarray:
        """``i64[frames]``: the number of each frame's packet."""
        order = np.argsort(self.packet_pts, kind="stable")
        return order[np.searchsorted(self.packet_pts[order], self.pts)]

    @functools.cached_property
    def key_of_frame(self) -> np.ndarray:
        """``i64[frames]``: the index in `keys` of the key frame from which each frame is decoded.

        It is the last key frame that is shown no later than the frame.
        """
        key_pts = np.maximum.accumulate(self.packet_pts[self.keys])
        return np.maximum(np.searchsorted(key_pts, self.pts, "right") - 1, 0)

    def seconds(self, frames: np.ndarray) -> np.ndarray:
        """``f64``: when frames are shown, in seconds after the first frame; -1 for frame -1, which is padding."""
        if not len(self.pts):
            return np.full(len(frames), -1.0)
        ticks = (self.pts[frames] - self.pts[0]).astype(np.float64)
        return np.where(frames < 0, -1.0, ticks * self.time_base.numerator / self.time_base.denominator)

    def frame_at(self, seconds: float) -> float:
        """The number of the frame that is shown at a time, with a fraction for a time between two frames.

        With a constant frame rate, and for times before the first frame, it is the time multiplied by the rate, as in
        DALI.
        """
        # The rate is constant if the distances of frames differ by at most a unit of time, or by 0.1 %.
        distances = np.diff(self.pts)
        ticks = seconds / self.time_base
        if seconds < 0 or len(distances) < 2 or distances.max() - distances.min() <= max(1, 1e-3 * distances.mean()):
            # A file that states no rate: by the mean distance of its frames, or a unit of time if it has only one.
            return (
                seconds * float(self.rate)
                if self.rate
                else float(ticks / Fraction(float(distances.mean() if len(distances) else 1)))
            )
        # A variable frame rate. The end of the last frame is not in the file: it is assumed to last as long as the one
        # before it.
        stamps = np.append(self.pts - self.pts[0], 2 * self.pts[-1] - self.pts[-2] - self.pts[0])
        return float(np.interp(float(ticks), stamps, np.arange(len(stamps))))

    def to_bytes(self) -> bytes:
        """Serializes the index for `from_bytes`: 16 numbers, then `pts`, `packet_pts` and `keys`, all int64."""
        header = [
            _VERSION,
            *self.size,
            self.turn,
            self.halved,
            self.bits,
            self.hdr,
            self.time_base.numerator,
            self.time_base.denominator,
            self.rate.numerator,
            self.rate.denominator,
        ]
        header += [self.is_counted, self.cut, len(self.pts), len(self.packet_pts), len(self.keys)]
        return np.concatenate([np.array(header, "<i8"), self.pts, self.packet_pts, self.keys]).astype("<i8").tobytes()

    @staticmethod
    def from_bytes(data: bytes) -> VideoIndex | None:
        """Returns the index that `to_bytes` wrote, or None if another version of it did."""
        numbers = np.frombuffer(data, "<i8").astype(np.int64)
        # Numbers 13 to 15 are the lengths of the three arrays.
        if len(numbers) < 16 or numbers[0] != _VERSION or len(numbers) != 16 + numbers[13:16].sum():
            return None
        _, height, width, turn, halved, bits, hdr, *fractions, is_counted, cut = numbers[:13].tolist()
        time_base, rate = Fraction(*fractions[:2]), Fraction(*fractions[2:])
        pts, packet_pts, keys = np.split(numbers[16:], np.cumsum(numbers[13:16])[:2])
        form = (height, width), turn, bool(halved), bits, bool(hdr)
        return VideoIndex(*form, time_base, rate, pts, packet_pts, keys, is_counted=bool(is_counted), cut=cut)
