"""Frames of video files by number, decoded by FFmpeg (package av).

A file is demuxed once, and one frame is decoded, to make its `VideoIndex`: which packets there are, which of them are
key frames, and when each frame is shown. A `FrameDecoder` is an open file. It seeks to the key frame before the
requested frames, and knows each decoded frame by its time stamp, so frame n is the one that FFmpeg gives as its n-th
when it decodes the whole file.

In this module a `frame` is the number of a frame in the video, and an `image` is a decoded frame (`av.VideoFrame`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from .._decode.formats import MAX_PIXELS
from .pixels import TRANSPOSED, PixelForm, Pixels, Showing, depth, is_halved, is_hdr, turn_of

_VERSION = 3  # of what `VideoIndex.to_bytes` writes
# Codecs whose frames without references to them ("NONREF" in FFmpeg) can be skipped without effect on others.
_SKIPPABLE_CODECS = ("h264", "hevc")

# Codecs of which each packet with a time stamp is a frame. Files of other codecs are decoded once for their index.
_FRAME_PER_PACKET = frozenset("av1 dnxhd ffv1 h264 hevc huffyuv mjpeg mpeg4 png prores rawvideo vp9".split())
# Containers that know their length, so that demuxing reports a file that was cut off.
_SIZED_CONTAINERS = frozenset("matroska webm mov mp4 m4a 3gp 3g2 mj2 avi".split())
_MAX_PROBED_PACKETS = 16  # one of the first 16 packets should give an image without the others
_NO_STAMP = np.iinfo(np.int64).min  # a time stamp before all others
UNKNOWN_SIZE = f"; the size of its frames is unknown, or above {MAX_PIXELS} pixels"
_SMALLEST_FRAME = 16  # bytes; a smaller packet of MPEG-4 may be a frame that is not coded (N-VOP)


def package(operator: str) -> Any:
    """The package av; ImportError says how to install it."""
    try:
        import av
    except ImportError as e:
        raise ImportError(f'{operator} needs PyAV: pip install "jaxdali[video]"') from e
    return av


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


def open_video(source: Any, strict: bool) -> tuple[Any, Any]:
    """Opens a container. Returns it and its video stream, which is decoded in one thread.

    Args:
      source: path of a file, or its contents.
      strict: whether errors in the data make decoding fail, instead of being concealed.

    Raises:
      OSError, ValueError: it can't be opened, has no video, or its frames have more than `MAX_PIXELS`.
    """
    import av
    from av.error import FFmpegError

    # Titles that are not UTF-8 are no error. PyAV 19 has no such option: it never refuses them.
    options: dict[str, Any] = {"metadata_errors": "replace"} if int(av.__version__.split(".")[0]) < 19 else {}
    # FFmpeg also decodes while it looks for streams. A frame may be larger than the container says.
    limit = {"max_pixels": str(MAX_PIXELS)}
    try:
        container = av.open(source if isinstance(source, str) else io.BytesIO(source), options=limit, **options)
    except (OSError, ValueError):
        raise
    except FFmpegError as e:
        raise ValueError(message_of(e)) from None
    try:
        stream = container.streams.best("video")
        if stream is None:
            raise ValueError("it has no video")
        context = stream.codec_context
        if context is None:
            raise ValueError("there is no decoder for its video")
        if context.width * context.height > MAX_PIXELS:
            raise ValueError(f"its frames have {context.height}x{context.width} pixels, more than {MAX_PIXELS}")
        context.thread_count = 1  # clips are decoded in parallel, not frames
        # "explode" is FFmpeg's name for: fail at the first error.
        context.options = limit | {"err_detect": "explode"} if strict else limit
    except BaseException:
        container.close()
        raise
    return container, stream


def demux(container: Any, stream: Any) -> Iterator[Any]:
    """The packets of a stream.

    Packets of streams that begin later in the file are left out: PyAV does not know these streams.
    """
    while True:
        try:
            yield from container.demux(stream)
            return
        # A packet of an unknown stream ends PyAV's generator, but the container has moved past the packet.
        except IndexError:
            continue


def make_index(source: Any, decodes: bool = True) -> VideoIndex:
    """The index of a video.

    Args:
      source: path of a file, or its contents.
      decodes: whether to decode a first frame, which takes some milliseconds. It is needed for `turn` and `hdr`, which
        are 0 and False otherwise.

    Raises:
      ValueError: the video can't be read, or has no frame.
    """
    from av.error import FFmpegError

    try:
        # Not strict: a damaged file gets an index, too, of the frames that come in spite of the errors.
        container, stream = open_video(source, strict=False)
        with container:
            return _index_stream(source, container, stream, _MAX_PROBED_PACKETS if decodes else 0)
    # OverflowError: a damaged file has a number that is out of the range of an integer type.
    except (FFmpegError, OverflowError) as e:
        raise ValueError(message_of(e)) from None


def _index_stream(source: Any, container: Any, stream: Any, max_probed: int) -> VideoIndex:
    """Makes the index of an open stream, which is demuxed to its end.

    Args:
      max_probed: the number of packets that are decoded alone at most, until one gives an image, for `turn` and `hdr`.
        0: none is decoded for that.

    Raises:
      ValueError: the stream has no frame that can be decoded.
    """
    from av.error import FFmpegError

    codec, time_base = stream.codec_context.name, Fraction(stream.time_base)
    rate = Fraction(stream.average_rate or stream.base_rate or 0)
    size = (stream.codec_context.height, stream.codec_context.width)
    pixel_format, first_image = stream.codec_context.pix_fmt or "", None
    # Of each packet: the time stamp, and whether it is a key frame and whether its frame is not shown.
    # `needs_decoding`: the packets don't tell which frames there are and when they are shown.
    stamps, flags, needs_decoding, is_corrupt = [], [], False, False
    try:
        for packet in demux(container, stream):
            if packet.size == 0:  # no data, as at the end of the stream
                continue
            if first_image is None and len(stamps) < max_probed:
                first_image = _decode_alone(stream.codec_context, packet)
            stamp = packet.pts
            needs_decoding |= stamp is None or (codec == "mpeg4" and packet.size < _SMALLEST_FRAME)
            is_corrupt |= packet.is_corrupt
            stamps.append(0 if stamp is None else stamp)
            flags.append((packet.is_keyframe, packet.is_discard))
    except FFmpegError:
        is_corrupt = True  # the packets before it can be read
    if first_image is None and max_probed:
        first_image = _first_image(source)
    packet_pts = np.array(stamps, np.int64)
    is_key, is_discarded = np.array(flags, bool).reshape(-1, 2).T
    keys = np.flatnonzero(is_key)
    pts = np.sort(packet_pts[~is_discarded])
    needs_decoding |= (
        (canonical_codec(codec) not in _FRAME_PER_PACKET)
        or bool((np.diff(pts) == 0).any())
        or not len(keys)
        or keys[0] != 0
    )
    # The first fields of `VideoIndex`: size, turn, halved, bits and hdr.
    form = (
        size,
        0 if first_image is None else turn_of(first_image),
        is_halved(pixel_format),
        depth(pixel_format),
        first_image is not None and is_hdr(first_image),
    )
    # If packets don't tell the frames, `pts` and `is_counted` are not known before `_refine_by_decoding`.
    index = VideoIndex(*form, time_base, rate, pts, packet_pts, keys, is_counted=needs_decoding, cut=len(packet_pts))
    if not needs_decoding and not size[0] * size[1]:  # the size is only known from a frame
        needs_decoding = True
    # A file that is whole, and that shows no frame before its first key frame, has a frame for each packet.
    if not needs_decoding and not (
        is_corrupt
        or _SIZED_CONTAINERS.isdisjoint(container.format.name.split(","))
        or (packet_pts < packet_pts[0]).any()
    ):
        return _nonempty(index)
    # The packets don't tell which frames come out. So a decoder is tried: on all of the file, or on its end and begin.
    index = _refine_by_decoding(source, index, whole=needs_decoding)
    return _nonempty(index)


def _decode_alone(context: Any, packet: Any) -> Any:
    """The image of one packet, decoded without others; None if the packet can't be decoded alone."""
    from av.error import FFmpegError

    with contextlib.suppress(FFmpegError):
        images = context.decode(packet) + context.decode(None)  # None: no packet follows, so nothing is held back
        if images:
            return images[0]
    context.flush_buffers()  # after None, a decoder takes further packets only if it is flushed
    return None


def _first_image(source: Any) -> Any:
    """The first image that the decoder of a video gives; None if there is none.

    Decoders drop the frames that an edit list hides, such as the key frame in clips that a phone has trimmed.
    """
    from av.error import FFmpegError

    container, stream = open_video(source, strict=False)
    with container, contextlib.suppress(FFmpegError):
        for packet in demux(container, stream):
            with contextlib.suppress(FFmpegError):
                if images := stream.codec_context.decode(packet):
                    return images[0]
    return None


def canonical_codec(codec: str) -> str:
    """The name of a codec, whichever decoder of it FFmpeg prefers (``libdav1d``, ``libvpx-vp9``, ...)."""
    return {"libdav1d": "av1", "libaom-av1": "av1", "libvpx-vp9": "vp9", "libvpx": "vp8"}.get(codec, codec)


def _nonempty(index: VideoIndex) -> VideoIndex:
    """Returns the index. Raises ValueError if it has no frame."""
    if not len(index):
        raise ValueError(f"it has no frame that can be decoded{'' if any(index.size) else UNKNOWN_SIZE}")
    return index


def _refine_by_decoding(source: Any, index: VideoIndex, whole: bool) -> VideoIndex:
    """The index, reduced to the frames that the decoder gives.

    Args:
      whole: whether to try all frames; otherwise only those before the second key frame, and from the last one on.
    """

    def decode_range(first: int, end: int, strict: bool) -> tuple[list[int | None], tuple[int, int], bool]:
        """Time stamps of the images of packets `first` .. `end - 1`, their size, and whether there was no error."""
        stamps, size, is_good = list[int | None](), index.size, True
        decoder = FrameDecoder(source, index, strict)
        try:
            for images, is_decoded in decoder.decode_packets(first, end):
                stamps += [image.pts for image in images]
                size = (images[0].height, images[0].width) if images else size
                is_good = is_good and is_decoded
        # The key frame in packet `first` can't be found: each packet is assumed to be a frame.
        except MissingFrame:
            return index.packet_pts[first:end].tolist(), size, False
        finally:
            decoder.close()
        return stamps, size, is_good

    count = len(index.packet_pts)
    if whole:
        stamps, size, _ = decode_range(0, count, strict=False)
        times = [x for x in stamps if x is not None]
        # Time stamps tell frames apart if each frame and each packet has one of its own, and the first packet is a key.
        is_stamped = (
            len(times) == len(stamps)
            and bool((np.diff(times) > 0).all())
            and not len(np.setdiff1d(times, index.packet_pts))
        )
        is_stamped = (
            is_stamped and len(np.unique(index.packet_pts)) == count and len(index.keys) > 0 and index.keys[0] == 0
        )
        if not is_stamped:
            rate = index.rate or Fraction(25)  # FFmpeg's default for streams without a rate
            times = np.round(np.arange(len(stamps)) / float(rate * index.time_base)).astype(np.int64).tolist()
        index = dataclasses.replace(
            index, pts=np.array(times, np.int64), size=size if len(stamps) else index.size, is_counted=not is_stamped
        )
        return index
    last_key = int(index.keys[-1])
    # The frames from the last key frame on are those that the decoder gives.
    stamps, _, _ = decode_range(last_key, count, strict=False)
    last_key_pts = index.packet_pts[last_key]
    shown = np.array([x for x in stamps if x is not None and x >= last_key_pts], np.int64)
    pts = np.concatenate(
        [index.pts[index.pts < last_key_pts], np.intersect1d(index.pts[index.pts >= last_key_pts], shown)]
    )
    second_key = int(index.keys[1]) if len(index.keys) > 1 else count
    # Frames that are shown before the first key frame may lack what they refer to.
    if (index.packet_pts < index.packet_pts[0]).any():
        stamps, _, _ = decode_range(0, second_key, strict=False)
        early_pts = {x for x in stamps if x is not None}
        is_early = pts < index.packet_pts[0]
        pts = np.concatenate([[x for x in pts[is_early].tolist() if x in early_pts], pts[~is_early]]).astype(np.int64)
    _, _, has_good_end = decode_range(last_key, count, strict=True)
    return dataclasses.replace(index, pts=pts, cut=count if has_good_end else last_key)


class MissingFrame(Exception):
    """Raised if the decoder does not give a frame that the index has."""


class FrameDecoder:
    """An open video.

    Args:
      source: path of a file, or its contents.
      index: the index of the file.
      strict: whether errors in the data raise an exception, instead of being concealed.

    `_packets` are the packets from the current position on, and `_next_index` is the number of the one that is decoded
    next; -1: a seek has to come first. `_last_shown` is the time stamp of the last image, or, if the index
    `is_counted`, the number of images so far. `_skips` is whether the decoder may skip frames to which no other refers.
    """

    def __init__(self, source: Any, index: VideoIndex, strict: bool = True):
        self.index, self.strict = index, strict
        self._source = source
        self._container, self._stream = open_video(source, strict)
        self._context = self._stream.codec_context
        self._skips = canonical_codec(self._context.name) in _SKIPPABLE_CODECS
        self._packets: Iterator[Any] | None = None
        self._next_index = -1
        self._damaged_pts: int | None = None  # time stamp of the packet that was refused last
        self._last_shown = 0
        self.size = 0 if isinstance(source, str) else len(source)  # bytes in memory

    def close(self):
        self._container.close()

    def ready_for(self, frame: int) -> bool:
        """Whether the frame can be decoded without going back to a key frame."""
        if self._next_index < 0:
            return False
        if self.index.is_counted:
            return self._last_shown <= frame
        return self._last_shown < self.index.pts[frame] and self._key_packet(frame) <= self._next_index

    def _key_packet(self, frame: int) -> int:
        """The number of the packet with which decoding begins for a frame."""
        return int(self.index.keys[self.index.key_of_frame[frame]])

    def read(self, frames: Sequence[int], on_frame: Callable[[int, Any], None], onward: bool = False) -> None:
        """Decodes frames.

        Args:
          frames: numbers of frames, ascending.
          on_frame: called for each frame with its number and its image.
          onward: whether the frames that follow are likely to be read next.

        Raises:
          ValueError: a frame can't be decoded; the message has its number and its time.
        """
        from av.error import FFmpegError

        next_frame, self._damaged_pts = frames[0], None

        def check_and_pass_on(frame: int, image: Any):
            """Calls `on_frame`, and moves `next_frame`, from which on frames are missing after an error."""
            nonlocal next_frame
            if (image.height, image.width) != self.index.size:
                raise ValueError(
                    f"it is {image.height}x{image.width}, and the video {self.index.size[0]}x{self.index.size[1]}"
                )
            if image.is_corrupt and self.strict:
                raise ValueError("its data are damaged")
            on_frame(frame, image)
            next_frame = frame + 1

        try:
            if self.index.is_counted:
                self._read_counted(frames, check_and_pass_on)
                return
            begin = 0
            while begin < len(frames):
                # One run has all frames whose key frame comes no later than the packet after those decoded so far.
                end = begin + 1
                reach = int(self.index.packet_of_frame[frames[begin]])
                while end < len(frames) and self._key_packet(frames[end]) <= reach + 1:
                    reach = max(reach, int(self.index.packet_of_frame[frames[end]]))
                    end += 1
                self._read_run(frames[begin:end], check_and_pass_on, onward)
                begin = end
        except (FFmpegError, ValueError, MissingFrame) as e:
            self._next_index = -1
            # The frame of the packet that was refused, otherwise the first one that did not come.
            damaged = next(
                (f for f in frames if self._damaged_pts is not None and self.index.pts[f] == self._damaged_pts), None
            )
            bad_frame = damaged if damaged is not None else next((f for f in frames if f >= next_frame), frames[-1])
            seconds = float(self.index.seconds(np.array([bad_frame]))[0])
            # FFmpeg's decoder has no size after it has refused that of a frame.
            advice = UNKNOWN_SIZE if isinstance(e, FFmpegError) and not self._context.width else ""
            raise ValueError(f"frame {bad_frame} ({seconds:.3f} s): {message_of(e)}{advice}") from None

    def _read_run(self, frames: Sequence[int], on_frame: Callable[[int, Any], None], onward: bool) -> None:
        """Decodes frames of one key frame, or of several that follow each other."""
        remaining, error = list(frames), MissingFrame("the decoder does not give it")
        if self.ready_for(frames[0]):
            remaining, error = self._decode(remaining, on_frame, onward, self._skips)
        # A recovery point is called a key frame, too, but may give whole frames only some time after it.
        k = int(self.index.key_of_frame[frames[0]])
        keys = self.index.keys[max(k - 2, 0) : k + 1][::-1].tolist()
        # The first attempt suits the frames that are read next. The second one stops at the last requested frame, as
        # the packets after it may be damaged. Later attempts begin with earlier key frames.
        for attempt, key in enumerate([keys[0], *keys, int(self.index.keys[0])]):
            if not remaining:
                return
            self._seek(key)
            remaining, error = self._decode(remaining, on_frame, onward and not attempt, self._skips and not attempt)
        if remaining:
            raise error

    def _decode(
        self, frames: Sequence[int], on_frame: Callable[[int, Any], None], onward: bool, skips: bool
    ) -> tuple[list[int], Exception]:
        """Decodes frames from the current packet on. Returns the frames that did not come, and the reason.

        Args:
          onward: as in `read`. Otherwise no packet after those of the frames is decoded.
          skips: whether the codec may skip frames to which no other refers, see `_SKIPPABLE_CODECS`.
        """
        from av.error import FFmpegError

        frame_by_pts = {int(self.index.pts[f]): f for f in frames}  # those that are still to come
        last_packet, last_pts = int(self.index.packet_of_frame[list(frames)].max()), max(frame_by_pts)
        # After a seek, the time of the key frame: frames that are shown before it may refer to what was skipped.
        key_pts = (
            self.index.packet_pts[self._next_index]
            if self._last_shown == _NO_STAMP and self._next_index < len(self.index.packet_pts)
            else _NO_STAMP
        )
        count, is_skipping, error = len(self.index.packet_pts), False, MissingFrame("the decoder does not give it")
        while frame_by_pts:
            ends = self._next_index >= count or (not onward and self._next_index > last_packet)
            packet = None if ends else self._next_packet()  # None lets the decoder give the images that it holds back
            # Frames that are not requested need not be decoded if no other refers to them.
            skip = packet is not None and skips and packet.pts not in frame_by_pts and packet.pts < last_pts
            if skip != is_skipping:
                self._context.skip_frame = "NONREF" if skip else "DEFAULT"
                is_skipping = skip
            try:
                images = self._context.decode(packet)
            except FFmpegError as e:
                if packet is not None and packet.pts < key_pts:  # it refers to frames before the key frame
                    continue
                self._next_index, error, ends = -1, e, True
                self._damaged_pts = packet.pts if packet is not None else None
                # Images of the packets before the damaged one are good.
                images = [x for x in self._delayed() if packet is not None and x.pts is not None and x.pts < packet.pts]
            for image in images:
                if (frame := frame_by_pts.pop(image.pts, None)) is not None:
                    on_frame(frame, image)
                self._last_shown = image.pts if image.pts is not None else self._last_shown
            if ends:
                self._next_index = -1
                break
        if is_skipping:
            self._context.skip_frame = "DEFAULT"
        return sorted(frame_by_pts.values()), error

    def _delayed(self) -> list[Any]:
        """The images that were decoded before an error, and that the decoder still holds back."""
        from av.error import FFmpegError

        with contextlib.suppress(FFmpegError):
            return self._context.decode(None)
        return []

    def decode_packets(self, first: int, end: int) -> Iterator[tuple[list[Any], bool]]:
        """Decodes packets `first` .. `end - 1`. Yields the images of each packet, and whether decoding succeeded;
        at the end, the images that the decoder held back.
        """
        from av.error import FFmpegError

        if first:
            self._seek(first)
            packets = self._packets
        else:
            packets = (p for p in demux(self._container, self._stream) if p.size)
        assert packets is not None
        try:
            for _, packet in zip(range(end - first), packets):
                try:
                    yield self._context.decode(packet), True
                except FFmpegError:
                    yield [], False
            yield self._context.decode(None), True
        except FFmpegError:
            yield [], False
        self._next_index = -1

    def _next_packet(self) -> Any:
        """The next packet with data. Raises ValueError if it is not the one that the index has in its place."""
        assert self._packets is not None
        for packet in self._packets:
            if packet.size:
                if packet.pts != self.index.packet_pts[self._next_index]:
                    break
                self._next_index += 1
                return packet
        raise ValueError("the file has changed since its index was made")

    def _seek(self, key: int) -> None:
        """Seeks to the key frame in packet `key`."""
        from av.error import FFmpegError

        stamp = int(self.index.packet_pts[key])
        self._next_index = -1
        # Some containers seek by the time of decoding, which is earlier than that of showing. None: the file's begin.
        for target in (stamp, stamp - 1, None):
            try:
                if target is None:
                    self._container.seek(0)
                else:
                    self._container.seek(target, stream=self._stream)
            except FFmpegError:
                if target is None:
                    raise
                continue
            self._context.flush_buffers()
            self._packets = (p for p in demux(self._container, self._stream) if p.size)
            for packet in self._packets:
                if packet.pts == stamp and packet.is_keyframe:
                    self._packets = _prepend(packet, self._packets)
                    self._next_index, self._last_shown = key, _NO_STAMP
                    return
                # No frame is decoded after it is shown, so the seek went past the key frame: an earlier target is tried.
                if packet.dts is not None and packet.dts > stamp:
                    break
        raise MissingFrame("its key frame can't be found")

    def _read_counted(self, frames: Sequence[int], on_frame: Callable[[int, Any], None]) -> None:
        """As `read`, for a file whose frames are counted from its beginning, as time stamps don't tell them apart."""
        from av.error import FFmpegError

        if not self.ready_for(frames[0]):
            if self._packets is not None:  # a file without time stamps may not be able to seek
                self._container.close()
                self._container, self._stream = open_video(self._source, self.strict)
                self._context = self._stream.codec_context
            self._packets = demux(self._container, self._stream)
            self._next_index = self._last_shown = 0
        remaining = set(frames)
        assert self._packets is not None
        for packet in self._packets:
            self._next_index += 1
            try:
                images = self._context.decode(packet)
            except FFmpegError:
                if self.strict:
                    raise
                images = []
            for image in images:
                if self._last_shown in remaining:
                    remaining.remove(self._last_shown)
                    on_frame(self._last_shown, image)
                self._last_shown += 1
            if not remaining:
                return
        self._next_index = -1
        raise MissingFrame("the decoder does not give it")


def _prepend(packet: Any, packets: Iterator[Any]) -> Iterator[Any]:
    yield packet
    yield from packets


def message_of(e: Exception) -> str:
    """The message of an error, without the path with which FFmpeg's messages end."""
    return getattr(e, "strerror", None) or str(e)


class OpenVideos:
    """Decoders that stay open, so that files are not opened for each clip. Threads share them; each uses one at a time.

    Args:
      max_open: number of decoders that may stay open.
      max_bytes: total size of the files in memory that may stay open.
    """

    def __init__(self, max_open: int = 64, max_bytes: int = 256 << 20):
        self._max_open, self._max_bytes = max_open, max_bytes
        self._lock = threading.Lock()  # guards `_idle` and `_number`
        # (key, decoder, pixels) by a running number; the least recently used decoder comes first.
        self._idle: OrderedDict[int, tuple[Any, FrameDecoder, Pixels]] = OrderedDict()
        self._number = 0

    def take(self, key: Any, frame: int, strict: bool) -> tuple[FrameDecoder, Pixels] | None:
        """Takes an idle decoder of a video, if possible one that can go on to the frame without seeking.

        Returns None if there is none with this `key` and this `strict`.
        """
        with self._lock:
            fitting = [n for n, (k, d, _) in self._idle.items() if k == key and d.strict == strict]
            if not fitting:
                return None
            chosen = next((n for n in fitting if self._idle[n][1].ready_for(frame)), fitting[0])
            _, decoder, pixels = self._idle.pop(chosen)
            return decoder, pixels

    def has(self, key: Any) -> bool:
        with self._lock:
            return any(k == key for k, *_ in self._idle.values())

    def give_back(self, key: Any, decoder: FrameDecoder, pixels: Pixels) -> None:
        """Keeps a decoder for the next `take`, and closes the least recently used ones beyond the limits."""
        surplus = []
        with self._lock:
            self._number += 1
            self._idle[self._number] = key, decoder, pixels
            while len(self._idle) > self._max_open or (
                len(self._idle) > 1 and sum(d.size for _, d, _ in self._idle.values()) > self._max_bytes
            ):
                _, (_, oldest, _) = self._idle.popitem(last=False)
                surplus.append(oldest)
        for surplus_decoder in surplus:
            surplus_decoder.close()

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, OrderedDict()
        for _, decoder, _ in idle.values():
            decoder.close()


def read_frames(
    open_videos: OpenVideos | None, key: Any, source: Callable[[], Any], index: VideoIndex, frames: Sequence[int],
    place: Callable[[int], Sequence[np.ndarray]], form: PixelForm, onward: bool = False,
) -> Showing:  # fmt: skip
    """Decodes frames of a video to their places.

    Args:
      open_videos: keeps decoders open; None: the decoder is closed at the end.
      key: the key of the video in `open_videos`.
      source: returns the path or the contents of the file. It is called if the file has to be opened.
      frames: numbers of frames, ascending, each once.
      place: returns the arrays into which the pixels of a frame are written; all get the same pixels.
      form: the form of the pixels.
      onward: whether the frames that follow are likely to be read next.

    Returns:
      How these frames are to be shown.

    Raises:
      ValueError: a frame can't be decoded.
    """
    # Errors are tolerated in files whose frames are counted, and from packet `cut` on.
    strict = not index.is_counted and int(index.keys[index.key_of_frame[frames[-1]]]) < index.cut
    idle = open_videos.take(key, frames[0], strict) if open_videos is not None else None
    decoder, pixels = idle or (FrameDecoder(source(), index, strict), Pixels(form, index.turn))

    showing = Showing(turn=0, hdr=False)

    def write_pixels(frame: int, image: Any):
        """Converts an image to its first place, and copies the pixels to the others."""
        nonlocal showing
        showing = Showing(showing.turn or turn_of(image), showing.hdr or is_hdr(image))
        out, *copies = place(frame)
        pixels.convert(image, out)
        for copied in copies:
            copied[:] = out

    try:
        decoder.read(frames, write_pixels, onward)
    except BaseException:
        decoder.close()
        raise
    if open_videos is None:
        decoder.close()
    else:
        open_videos.give_back(key, decoder, pixels)
    return showing


def file_stamp(path: str) -> tuple[int, int]:
    """The size of a local file and the time of its last change, in ns: they differ once the file has changed."""
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns
