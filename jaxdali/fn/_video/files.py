"""Frames of video files by number, decoded by FFmpeg (package av).

A file is demuxed once, and one frame is decoded, to make its `VideoIndex`: which packets there are, which of them are
key frames, and when each frame is shown. A `Decoder` is an open file. It seeks to the key frame before the frames that
are wanted, and knows each decoded frame by its time stamp, so frame n is the one that FFmpeg gives as its n-th when it
decodes the whole file.
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

from .pixels import TRANSPOSED, PixelForm, Pixels, Showing, depth, is_halved, is_hdr, turn_of

_VERSION = 3  # of what `VideoIndex.to_bytes` writes
# Codecs of which frames that no other frame refers to can be left out, without effect on others.
_SKIPPABLE = ("h264", "hevc")

# Codecs and containers of which each packet with a time stamp is a frame. Files of others are decoded once for their
# index.
_ONE_FRAME_EACH = frozenset("av1 dnxhd ffv1 h264 hevc huffyuv mjpeg mpeg4 png prores rawvideo vp9".split())
_WHOLE = frozenset("matroska webm mov mp4 m4a 3gp 3g2 mj2 avi".split())  # which say where a file is cut
_MOST_TRIED = 16  # packets of which one alone should give a frame
_NONE = np.iinfo(np.int64).min  # a time stamp before all others
_SMALLEST_FRAME = 16  # bytes; a smaller packet of MPEG-4 may be a frame that is not coded


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

    Attributes:
      size: height and width of the frames as they are coded, in pixels.
      turn: how frames are turned upright, see `pixels.turned`.
      halved: whether the codec gives planes whose chroma has half the extents of luma.
      bits: of a sample.
      hdr: whether amplitudes are those of HDR, PQ or HLG.
      time_base: seconds of one unit of time.
      rate: frames per second on average; 0: unknown.
      pts: ``i64[frames]``, when each frame is shown, ascending.
      packets: ``i64[packets]``, the same for each packet, in the order in which they are decoded. Packets can lack a
        frame.
      keys: ``i64[keys]``, which packets are key frames.
      counted: whether time stamps don't tell frames apart. They are then counted from the beginning of the file.
      cut: the packet from which on errors are tolerated, since the file ends in the middle of a frame.
    """

    size: tuple[int, int]
    turn: int
    halved: bool
    bits: int
    hdr: bool
    time_base: Fraction
    rate: Fraction
    pts: np.ndarray
    packets: np.ndarray
    keys: np.ndarray
    counted: bool
    cut: int

    def __len__(self) -> int:
        return len(self.pts)

    def extents(self, upright: bool) -> tuple[int, int]:
        """Height and width of the frames, turned upright or as they are coded."""
        height, width = self.size
        return (width, height) if upright and self.turn & TRANSPOSED else (height, width)

    @functools.cached_property
    def positions(self) -> np.ndarray:
        """``i64[frames]``: which packet has each frame."""
        order = np.argsort(self.packets, kind="stable")
        return order[np.searchsorted(self.packets[order], self.pts)]

    @functools.cached_property
    def begins(self) -> np.ndarray:
        """``i64[frames]``: which of `keys` each frame is decoded from: the last one that is shown no later."""
        shown = np.maximum.accumulate(self.packets[self.keys])
        return np.maximum(np.searchsorted(shown, self.pts, "right") - 1, 0)

    def seconds(self, frames: np.ndarray) -> np.ndarray:
        """``f64``: when frames are shown, since the first one; -1 for frame -1, which stands for none."""
        if not len(self.pts):
            return np.full(len(frames), -1.0)
        ticks = (self.pts[frames] - self.pts[0]).astype(np.float64)
        return np.where(frames < 0, -1.0, ticks * self.time_base.numerator / self.time_base.denominator)

    def place(self, seconds: float) -> float:
        """The place of a time among the frames: the number of a frame, and a fraction where the time is between two of
        them.

        It is the time in units of the average frame's where the frames have one distance, as in DALI, also before the
        first one.
        """
        distances = np.diff(self.pts)
        ticks = seconds / self.time_base
        if seconds < 0 or len(distances) < 2 or distances.max() - distances.min() <= max(1, 1e-3 * distances.mean()):
            return (
                seconds * float(self.rate)
                if self.rate
                else float(ticks / Fraction(float(distances.mean() if len(distances) else 1)))
            )
        # And the end of the last one.
        stamps = np.append(self.pts - self.pts[0], 2 * self.pts[-1] - self.pts[-2] - self.pts[0])
        return float(np.interp(float(ticks), stamps, np.arange(len(stamps))))

    def to_bytes(self) -> bytes:
        """For `from_bytes`."""
        head = [
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
        head += [self.counted, self.cut, len(self.pts), len(self.packets), len(self.keys)]
        return np.concatenate([np.array(head, "<i8"), self.pts, self.packets, self.keys]).astype("<i8").tobytes()

    @staticmethod
    def from_bytes(data: bytes) -> VideoIndex | None:
        """None: another version has written it."""
        numbers = np.frombuffer(data, "<i8").astype(np.int64)
        if len(numbers) < 16 or numbers[0] != _VERSION or len(numbers) != 16 + numbers[13:16].sum():
            return None
        _, height, width, turn, halved, bits, hdr, a, b, c, d, counted, cut, *counts = numbers[:16].tolist()
        pts, packets, keys = np.split(numbers[16:], np.cumsum(counts)[:2])
        form = (height, width), turn, bool(halved), bits, bool(hdr)
        return VideoIndex(*form, Fraction(a, b), Fraction(c, d), pts, packets, keys, bool(counted), cut)


def _opened(source: Any, strict: bool) -> tuple[Any, Any]:
    """A container and its video stream, decoded in one thread."""
    import av
    from av.error import FFmpegError

    # Titles that are not UTF-8 are no error. PyAV 19 has no such option: it never refuses them.
    options: dict[str, Any] = {"metadata_errors": "replace"} if int(av.__version__.split(".")[0]) < 19 else {}
    try:
        container = av.open(source if isinstance(source, str) else io.BytesIO(source), **options)
    except (OSError, ValueError):
        raise
    except FFmpegError as e:
        raise ValueError(_text(e)) from None
    try:
        stream = container.streams.best("video")
        if stream is None:
            raise ValueError("it has no video")
        context = stream.codec_context
        if context is None:
            raise ValueError("there is no decoder for its video")
        context.thread_count = 1  # clips are decoded in parallel, not frames
        if strict:
            context.options = {"err_detect": "explode"}
    except BaseException:
        container.close()
        raise
    return container, stream


def _demuxed(container: Any, stream: Any) -> Iterator[Any]:
    """The packets of a stream. Those of streams that begin later in the file, which PyAV does not know, are left out."""
    while True:
        try:
            yield from container.demux(stream)
            return
        except IndexError:  # each of them ends the generator, and the container is behind it
            continue


def make_index(source: Any, decodes: bool = True) -> VideoIndex:
    """The index of a video.

    Args:
      source: path of a file, or its contents.
      decodes: whether to decode a first frame, which takes some milliseconds and gives `turn` and `hdr`; otherwise
        these say nothing.

    Raises:
      ValueError: it can't be read, or has no frame.
    """
    from av.error import FFmpegError

    try:
        container, stream = _opened(source, False)
        with container:
            return _indexed(source, container, stream, _MOST_TRIED if decodes else 0)
    except (FFmpegError, OverflowError) as e:
        raise ValueError(_text(e)) from None


def _indexed(source: Any, container: Any, stream: Any, most_tried: int) -> VideoIndex:
    from av.error import FFmpegError

    codec, time_base = stream.codec_context.name, Fraction(stream.time_base)
    rate = Fraction(stream.average_rate or stream.base_rate or 0)
    size = (stream.codec_context.height, stream.codec_context.width)
    name, first = stream.codec_context.pix_fmt or "", None
    stamps, flags, suspect, corrupt = [], [], False, False
    try:
        for packet in _demuxed(container, stream):
            if packet.size == 0:
                continue
            if first is None and len(stamps) < most_tried:
                first = _alone(stream.codec_context, packet)
            stamp = packet.pts
            suspect |= stamp is None or (codec == "mpeg4" and packet.size < _SMALLEST_FRAME)
            corrupt |= packet.is_corrupt
            stamps.append(0 if stamp is None else stamp)
            flags.append((packet.is_keyframe, packet.is_discard))
    except FFmpegError:
        corrupt = True  # what comes before it can be read
    if first is None and most_tried:
        first = _first_shown(source)
    packets = np.array(stamps, np.int64)
    is_key, discarded = np.array(flags, bool).reshape(-1, 2).T
    keys = np.flatnonzero(is_key)
    pts = np.sort(packets[~discarded])
    suspect |= (
        (_canonical(codec) not in _ONE_FRAME_EACH) or bool((np.diff(pts) == 0).any()) or not len(keys) or keys[0] != 0
    )
    form = (
        size,
        0 if first is None else turn_of(first),
        is_halved(name),
        depth(name),
        first is not None and is_hdr(first),
    )
    index = VideoIndex(*form, time_base, rate, pts, packets, keys, suspect, len(packets))
    if not suspect and not size[0] * size[1]:
        suspect = True
    if not suspect and not (
        corrupt or _WHOLE.isdisjoint(container.format.name.split(",")) or (packets < packets[0]).any()
    ):
        return _nonempty(index)
    # What the decoder makes of it has to be tried: of all of it, or of its end and beginning.
    index = _decoded(source, index, whole=suspect)
    return _nonempty(index)


def _alone(context: Any, packet: Any) -> Any:
    """The frame of one packet, decoded without others; None: the packet can't be decoded so."""
    from av.error import FFmpegError

    with contextlib.suppress(FFmpegError):
        frames = context.decode(packet) + context.decode(None)
        if frames:
            return frames[0]
    context.flush_buffers()
    return None


def _first_shown(source: Any) -> Any:
    """The first frame that the decoder of a video gives; None: it has none. Decoders drop what an edit list hides, such
    as the key frame and others in clips that a phone has trimmed.
    """
    from av.error import FFmpegError

    container, stream = _opened(source, False)
    with container, contextlib.suppress(FFmpegError):
        for packet in _demuxed(container, stream):
            with contextlib.suppress(FFmpegError):
                if frames := stream.codec_context.decode(packet):
                    return frames[0]
    return None


def _canonical(codec: str) -> str:
    """The name of a codec, whichever decoder of it FFmpeg prefers (``libdav1d``, ``libvpx-vp9``, ...)."""
    return {"libdav1d": "av1", "libaom-av1": "av1", "libvpx-vp9": "vp9", "libvpx": "vp8"}.get(codec, codec)


def _nonempty(index: VideoIndex) -> VideoIndex:
    if not len(index):
        raise ValueError("it has no frame that can be decoded")
    return index


def _decoded(source: Any, index: VideoIndex, whole: bool) -> VideoIndex:
    """The index with those frames only that the decoder gives.

    Args:
      whole: try all frames; otherwise those before the second key frame, and those from the last one on.
    """

    def given(first: int, end: int, strict: bool) -> tuple[list[int | None], tuple[int, int], bool]:
        """Time stamps of the frames that packets `first` .. `end` give, their size, and whether there was no error."""
        found, size, good = list[int | None](), index.size, True
        decoder = Decoder(source, index, strict)
        try:
            for images, fine in decoder.attempt(first, end):
                found += [f.pts for f in images]
                size = (images[0].height, images[0].width) if images else size
                good = good and fine
        except Missing:
            return index.packets[first:end].tolist(), size, False
        finally:
            decoder.close()
        return found, size, good

    count = len(index.packets)
    if whole:
        stamps, size, _ = given(0, count, False)
        times = [x for x in stamps if x is not None]
        known = (
            len(times) == len(stamps)
            and bool((np.diff(times) > 0).all())
            and not len(np.setdiff1d(times, index.packets))
        )
        known = known and len(np.unique(index.packets)) == count and len(index.keys) > 0 and index.keys[0] == 0
        if not known:
            rate = index.rate or Fraction(25)
            times = np.round(np.arange(len(stamps)) / float(rate * index.time_base)).astype(np.int64).tolist()
        index = dataclasses.replace(
            index, pts=np.array(times, np.int64), size=size if len(stamps) else index.size, counted=not known
        )
        return index
    last = int(index.keys[-1])
    stamps, _, _ = given(last, count, False)
    begin = index.packets[last]
    shown = np.array([x for x in stamps if x is not None and x >= begin], np.int64)
    pts = np.concatenate([index.pts[index.pts < begin], np.intersect1d(index.pts[index.pts >= begin], shown)])
    second = int(index.keys[1]) if len(index.keys) > 1 else count
    # Frames that are shown before the first key frame may lack what they refer to.
    if (index.packets < index.packets[0]).any():
        first = {x for x in given(0, second, False)[0] if x is not None}
        early = pts < index.packets[0]
        pts = np.concatenate([[x for x in pts[early].tolist() if x in first], pts[~early]]).astype(np.int64)
    good = given(last, count, True)[2]
    return dataclasses.replace(index, pts=pts, cut=count if good else last)


class Missing(Exception):
    """The decoder did not give a frame that the index has."""


class Decoder:
    """An open video.

    Args:
      source: path of a file, or its contents.
      index: of it.
      strict: whether errors in the data are errors, instead of being concealed.
    """

    def __init__(self, source: Any, index: VideoIndex, strict: bool = True):
        self.index, self.strict = index, strict
        self._source = source
        self._container, self._stream = _opened(source, strict)
        self._context = self._stream.codec_context
        self._skips = _canonical(self._context.name) in _SKIPPABLE
        self._packets: Iterator[Any] | None = None
        self._next = -1  # the packet that is decoded next; -1: it has to seek first
        self._damaged: int | None = None  # time stamp of the packet that was refused last
        self._shown = 0  # time stamp of the last frame that it gave, or how many frames it has counted
        self.size = 0 if isinstance(source, str) else len(source)

    def close(self):
        self._container.close()

    def ready_for(self, frame: int) -> bool:
        """Whether the frame can be decoded without going back to a key frame."""
        if self._next < 0:
            return False
        if self.index.counted:
            return self._shown <= frame
        return self._shown < self.index.pts[frame] and self._key_of(frame) <= self._next

    def _key_of(self, frame: int) -> int:
        """The packet with which decoding begins for a frame."""
        return int(self.index.keys[self.index.begins[frame]])

    def read(self, frames: Sequence[int], give: Callable[[int, Any], None], onward: bool = False) -> None:
        """Decodes frames.

        Args:
          frames: their numbers, ascending.
          give: is called with the number and the frame of av, for each of them.
          onward: whether those that follow are likely to be read next.

        Raises:
          ValueError: a frame can't be decoded; says which, and when it is shown.
        """
        from av.error import FFmpegError

        at, self._damaged = frames[0], None

        def given(frame: int, image: Any):
            nonlocal at
            if (image.height, image.width) != self.index.size:
                raise ValueError(
                    f"it is {image.height}x{image.width}, and the video {self.index.size[0]}x{self.index.size[1]}"
                )
            if image.is_corrupt and self.strict:
                raise ValueError("its data are damaged")
            give(frame, image)
            at = frame + 1

        try:
            if self.index.counted:
                self._count(frames, given)
                return
            begin = 0
            while begin < len(frames):  # as many as are best decoded in one go
                end = begin + 1
                reach = int(self.index.positions[frames[begin]])
                while end < len(frames) and self._key_of(frames[end]) <= reach + 1:
                    reach = max(reach, int(self.index.positions[frames[end]]))
                    end += 1
                self._run(frames[begin:end], given, onward)
                begin = end
        except (FFmpegError, ValueError, Missing) as e:
            self._next = -1
            damaged = next(
                (f for f in frames if self._damaged is not None and self.index.pts[f] == self._damaged), None
            )
            at = damaged if damaged is not None else next((f for f in frames if f >= at), frames[-1])
            when = float(self.index.seconds(np.array([at]))[0])
            raise ValueError(f"frame {at} ({when:.3f} s): {_text(e)}") from None

    def _run(self, frames: Sequence[int], give: Callable[[int, Any], None], onward: bool) -> None:
        """Frames of one key frame, or of several that follow each other."""
        rest, why = list(frames), Missing("the decoder does not give it")
        if self.ready_for(frames[0]):
            rest, why = self._decode(rest, give, onward, self._skips)
        # A recovery point is called a key frame, too, but may give whole frames only some time after it.
        begin = int(self.index.begins[frames[0]])
        keys = self.index.keys[max(begin - 2, 0) : begin + 1][::-1].tolist()
        # At first as is best for what is read next; then without what could be damaged behind it; then from earlier key
        # frames.
        for attempt, key in enumerate([keys[0], *keys, int(self.index.keys[0])]):
            if not rest:
                return
            self._seek(key)
            rest, why = self._decode(rest, give, onward and not attempt, self._skips and not attempt)
        if rest:
            raise why

    def _decode(
        self, frames: Sequence[int], give: Callable[[int, Any], None], onward: bool, skips: bool
    ) -> tuple[list[int], Exception]:
        """Decodes from where it is; returns the frames that did not come, and why."""
        from av.error import FFmpegError

        wanted = {int(self.index.pts[f]): f for f in frames}
        last, final = int(self.index.positions[list(frames)].max()), max(wanted)
        begin = (
            self.index.packets[self._next] if self._shown == _NONE and self._next < len(self.index.packets) else _NONE
        )
        count, skipping, why = len(self.index.packets), False, Missing("the decoder does not give it")
        while wanted:
            ends = self._next >= count or (not onward and self._next > last)
            packet = None if ends else self._packet()
            skip = packet is not None and skips and packet.pts not in wanted and packet.pts < final
            if skip != skipping:
                self._context.skip_frame = "NONREF" if skip else "DEFAULT"
                skipping = skip
            try:
                images = self._context.decode(packet)
            except FFmpegError as e:
                if packet is not None and packet.pts < begin:  # it refers to what comes before the key frame
                    continue
                self._next, why, ends = -1, e, True
                self._damaged = packet.pts if packet is not None else None
                images = [f for f in self._delayed() if packet is not None and f.pts is not None and f.pts < packet.pts]
            for image in images:
                if (frame := wanted.pop(image.pts, None)) is not None:
                    give(frame, image)
                self._shown = image.pts if image.pts is not None else self._shown
            if ends:
                self._next = -1
                break
        if skipping:
            self._context.skip_frame = "DEFAULT"
        return sorted(wanted.values()), why

    def _delayed(self) -> list[Any]:
        """Frames that were decoded before an error, and would have come after it."""
        from av.error import FFmpegError

        with contextlib.suppress(FFmpegError):
            return self._context.decode(None)
        return []

    def attempt(self, first: int, end: int) -> Iterator[tuple[list[Any], bool]]:
        """What packets `first` .. `end` give, whatever it is: frames of av, and whether there was no error, one packet
        after another.
        """
        from av.error import FFmpegError

        if first:
            self._seek(first)
            packets = self._packets
        else:
            packets = (p for p in _demuxed(self._container, self._stream) if p.size)
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
        self._next = -1

    def _packet(self) -> Any:
        """The next packet."""
        assert self._packets is not None
        for packet in self._packets:
            if packet.size:
                if packet.pts != self.index.packets[self._next]:
                    break
                self._next += 1
                return packet
        raise ValueError("the file has changed since its index was made")

    def _seek(self, key: int) -> None:
        """Makes a key frame, given by the number of its packet, what is decoded next."""
        from av.error import FFmpegError

        stamp = int(self.index.packets[key])
        self._next = -1
        for target in (stamp, stamp - 1, None):  # some containers look for the time of decoding, which is earlier
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
            self._packets = (p for p in _demuxed(self._container, self._stream) if p.size)
            for packet in self._packets:
                if packet.pts == stamp and packet.is_keyframe:
                    self._packets = _before(packet, self._packets)
                    self._next, self._shown = key, _NONE
                    return
                if packet.dts is not None and packet.dts > stamp:
                    break
        raise Missing("its key frame can't be found")

    def _count(self, frames: Sequence[int], give: Callable[[int, Any], None]) -> None:
        """As `read`, for a file whose frames are counted."""
        from av.error import FFmpegError

        if not self.ready_for(frames[0]):
            if self._packets is not None:  # a file without time stamps may not be able to seek
                self._container.close()
                self._container, self._stream = _opened(self._source, self.strict)
                self._context = self._stream.codec_context
            self._packets = _demuxed(self._container, self._stream)
            self._next = self._shown = 0
        wanted = set(frames)
        assert self._packets is not None
        for packet in self._packets:
            self._next += 1
            try:
                images = self._context.decode(packet)
            except FFmpegError:
                if self.strict:
                    raise
                images = []
            for image in images:
                if self._shown in wanted:
                    wanted.remove(self._shown)
                    give(self._shown, image)
                self._shown += 1
            if not wanted:
                return
        self._next = -1
        raise Missing("the decoder does not give it")


def _before(first: Any, rest: Iterator[Any]) -> Iterator[Any]:
    yield first
    yield from rest


def _text(e: Exception) -> str:
    """The reason of an error, without the path that FFmpeg's errors end with."""
    return getattr(e, "strerror", None) or str(e)


class OpenVideos:
    """Decoders that stay open, so that files are not opened for each clip. Threads share them; each uses one at a time.

    Args:
      most: how many may stay open.
      bytes: how many bytes of files that are in memory may stay.
    """

    def __init__(self, most: int = 64, bytes: int = 256 << 20):
        self._most, self._bytes = most, bytes
        self._lock = threading.Lock()  # guards `_idle` and `_number`
        # The one that was used last is the last.
        self._idle: OrderedDict[int, tuple[Any, Decoder, Pixels]] = OrderedDict()
        self._number = 0

    def take(self, key: Any, frame: int, strict: bool) -> tuple[Decoder, Pixels] | None:
        """An idle decoder of a video, if possible one that can go on to the frame."""
        with self._lock:
            fitting = [n for n, (k, d, _) in self._idle.items() if k == key and d.strict == strict]
            if not fitting:
                return None
            chosen = next((n for n in fitting if self._idle[n][1].ready_for(frame)), fitting[0])
            return self._idle.pop(chosen)[1:]

    def has(self, key: Any) -> bool:
        with self._lock:
            return any(k == key for k, *_ in self._idle.values())

    def give_back(self, key: Any, decoder: Decoder, pixels: Pixels) -> None:
        closed = []
        with self._lock:
            self._number += 1
            self._idle[self._number] = key, decoder, pixels
            while len(self._idle) > self._most or (
                len(self._idle) > 1 and sum(d.size for _, d, _ in self._idle.values()) > self._bytes
            ):
                closed.append(self._idle.popitem(last=False)[1][1])
        for old in closed:
            old.close()

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
      open_videos: where decoders stay open; None: nowhere.
      key: of the video in it.
      source: gives the path or the contents of the file, where it has to be opened.
      frames: numbers, ascending, each once.
      place: where the pixels of a frame go; several places get the same.
      form: of the pixels.

    Returns:
      How these frames are to be shown.

    Raises:
      ValueError: a frame can't be decoded.
    """
    strict = not index.counted and int(index.keys[index.begins[frames[-1]]]) < index.cut
    found = open_videos.take(key, frames[0], strict) if open_videos is not None else None
    decoder, pixels = found or (Decoder(source(), index, strict), Pixels(form, index.turn))

    showing = Showing(0, False)

    def put(frame: int, image: Any):
        nonlocal showing
        showing = Showing(showing.turn or turn_of(image), showing.hdr or is_hdr(image))
        first, *others = place(frame)
        pixels.convert(image, first)
        for other in others:
            other[:] = first

    try:
        decoder.read(frames, put, onward)
    except BaseException:
        decoder.close()
        raise
    if open_videos is None:
        decoder.close()
    else:
        open_videos.give_back(key, decoder, pixels)
    return showing


def stamp_of(path: str) -> tuple[int, int]:
    """What tells whether a local file has changed: its size and the time of its last change."""
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns
