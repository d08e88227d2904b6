"""Frames of a video file by number, decoded by FFmpeg (package av).

A `FrameDecoder` is an open file. It seeks to the key frame before the requested frames, and knows each decoded frame by
its time stamp, so frame n is the one that FFmpeg gives as its n-th when it decodes the whole file.

In this module a `frame` is the number of a frame in the video, and an `image` is a decoded frame (`av.VideoFrame`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from .video_file import UNKNOWN_SIZE, canonical_codec, demux, message_of, open_video
from .video_index import VideoIndex

# Codecs whose frames without references to them ("NONREF" in FFmpeg) can be skipped without effect on others.
_SKIPPABLE_CODECS = ("h264", "hevc")
_NO_STAMP = np.iinfo(np.int64).min  # a time stamp before all others


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
