"""The files in sequences of encoded images: a sequence is an array with a row of bytes for each image."""

from __future__ import annotations

import numpy as np


def file_of(row: np.ndarray) -> np.ndarray:
    """The file in a row of a sequence, ``u8[bytes]``, without the zeros behind it, as far as its format tells.

    If a file is cut off, zeros behind it would be decoded as a part of the image.
    """
    if not row.size or row[-1]:
        return row
    header = row[:12].tobytes()
    if header.startswith((b"\xff\xd8", b"\x89PNG", b"GIF8")):  # files of these formats do not end with zeros
        return row[: _content(row)]
    return row[: _end_of_webp(row)] if header[:4] == b"RIFF" and header[8:] == b"WEBP" else row


def _content(row: np.ndarray) -> int:
    """The number of bytes before the zeros at the end."""
    end, step = row.size, 1 << 16
    while end > 0 and not row[max(end - step, 0) : end].any():
        end -= step
    begin = max(end - step, 0)
    return begin + len(row[begin : max(end, 0)].tobytes().rstrip(b"\0"))


def _end_of_webp(row: np.ndarray) -> int:
    """Where a WebP file ends: its header of 12 bytes and each of its chunks tell their sizes."""

    def size_at(offset: int) -> int:
        return int.from_bytes(row[offset : offset + 4].tobytes(), "little")

    content, offset = _content(row), 12
    while offset + 8 <= content:
        end = offset + 8 + size_at(offset + 4)
        if row[offset : offset + 4].tobytes() in (b"VP8 ", b"VP8L") and content < end - _MOST_ZEROS:
            return content  # the compressed image is cut off
        offset = end + end % 2
    return 8 + size_at(4)


_MOST_ZEROS = 16  # bytes at the end of a compressed image
