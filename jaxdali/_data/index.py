"""Makes indices of containers that have none."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np

from .. import _cpu
from .compression import HEAD, refusal
from .files import Path

# The beginning of a record without data: its size, and the checksum of that. Others begin a hole of a sparse file.
_EMPTY_RECORD = bytes(8) + bytes.fromhex("29039807")

Progress = Callable[[int], object]  # is called with the number of bytes that were read since the last call


def tfrecord_extents(path: Path, progress: Progress = lambda n: None) -> np.ndarray:
    """Offset and size of each record of a TFRecord file, ``i64[n, 2]``.

    Raises:
      RuntimeError: the file can't be read, or ends within a record.
    """
    extents: list[int] = []
    try:
        with open(path, "rb") as f:
            fd, size, offset = f.fileno(), os.fstat(f.fileno()).st_size, 0
            while offset < size:
                head = os.pread(fd, 12, offset)
                # A record: size (8 bytes), its checksum (4), the data, their checksum (4).
                num_bytes = int.from_bytes(head[:8], "little") + 16
                if num_bytes == 16 and len(head) == 12 and head != _EMPTY_RECORD:
                    raise RuntimeError(
                        f"{os.fspath(path)}: record {len(extents) // 2} at index {offset} has no data, and no checksum of that: "
                        "the file is damaged, or not a TFRecord file"
                    )
                if len(head) < 12 or num_bytes > size - offset:
                    raise RuntimeError(
                        f"{os.fspath(path)}: record {len(extents) // 2} at index {offset} would have {num_bytes} bytes, but the file ends "
                        f"{size - offset} bytes later: it is truncated, damaged, or not a TFRecord file"
                    )
                extents += offset, num_bytes
                offset += num_bytes
                progress(num_bytes)
    except OSError as e:
        raise RuntimeError(f"can't read {os.fspath(path)}: {e.strerror}") from None
    return np.array(extents, np.int64).reshape(-1, 2)


def write_index(path: Path, index: Path, progress: Progress = lambda n: None) -> int:
    """Writes the index of a TFRecord file or a tar archive like DALI's tfrecord2idx and wds2idx (v1.2). Returns the
    number of records.
    """
    with open(path, "rb") as f:
        head = f.read(HEAD)
    if reason := refusal(head):
        raise RuntimeError(f"{os.fspath(path)}: {reason}")
    if head[257:262] == b"ustar":  # the magic bytes of a tar header
        lines, count, error = _cpu.tar_index(os.fsencode(path), progress)
        if error:
            raise RuntimeError(f"{os.fspath(path)}{error}")
        text = b"v1.2 %d\n" % count + lines
    else:
        extents = tfrecord_extents(path, progress).tolist()
        text, count = b"".join(b"%d %d\n" % (offset, size) for offset, size in extents), len(extents)
    with open(f"{os.fspath(index)}.new", "wb") as f:
        f.write(text)
    os.replace(f"{os.fspath(index)}.new", index)
    return count
