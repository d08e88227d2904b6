"""Makes the index of a video file.

A file is demuxed once, and one frame is decoded. If the packets don't tell the frames, more of it is decoded.
"""

from __future__ import annotations

import contextlib
import dataclasses
from fractions import Fraction
from typing import Any

import numpy as np

from .frame_decoder import FrameDecoder, MissingFrame
from .pixels import depth, is_halved, is_hdr, turn_of
from .video_file import UNKNOWN_SIZE, canonical_codec, demux, message_of, open_video
from .video_index import VideoIndex

# Codecs of which each packet with a time stamp is a frame. Files of other codecs are decoded once for their index.
_FRAME_PER_PACKET = frozenset("av1 dnxhd ffv1 h264 hevc huffyuv mjpeg mpeg4 png prores rawvideo vp9".split())
# Containers that know their length, so that demuxing reports a file that was cut off.
_SIZED_CONTAINERS = frozenset("matroska webm mov mp4 m4a 3gp 3g2 mj2 avi".split())
_MAX_PROBED_PACKETS = 16  # one of the first 16 packets should give an image without the others
_SMALLEST_FRAME = 16  # bytes; a smaller packet of MPEG-4 may be a frame that is not coded (N-VOP)


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
