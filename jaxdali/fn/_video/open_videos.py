"""Decoders that stay open, and the pixels of frames that they decode."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .frame_decoder import FrameDecoder
from .pixels import PixelForm, Pixels, Showing, is_hdr, turn_of
from .video_index import VideoIndex


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
