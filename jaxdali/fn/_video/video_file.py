"""Video files as FFmpeg (package av) opens them."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

from .._decode.formats import MAX_PIXELS

UNKNOWN_SIZE = f"; the size of its frames is unknown, or above {MAX_PIXELS} pixels"


def package(operator: str) -> Any:
    """The package av; ImportError says how to install it."""
    try:
        import av
    except ImportError as e:
        raise ImportError(f'{operator} needs PyAV: pip install "jaxdali[video]"') from e
    return av


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


def canonical_codec(codec: str) -> str:
    """The name of a codec, whichever decoder of it FFmpeg prefers (``libdav1d``, ``libvpx-vp9``, ...)."""
    return {"libdav1d": "av1", "libaom-av1": "av1", "libvpx-vp9": "vp9", "libvpx": "vp8"}.get(codec, codec)


def message_of(e: Exception) -> str:
    """The message of an error, without the path with which FFmpeg's messages end."""
    return getattr(e, "strerror", None) or str(e)
