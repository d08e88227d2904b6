"""The errors of what is too large: larger than `Storage.max_record_bytes`, or than memory."""

from __future__ import annotations

import errno

UNCHECKED_BYTES = 256 << 20  # bytes of local files up to which memory is not looked up


class TooLargeError(OSError):
    """A file is larger than its limit."""


def too_large_error(size: int | None, limit: int) -> TooLargeError:
    """The error of a file that is larger than its limit, see `beyond_limit`."""
    return TooLargeError(errno.EFBIG, beyond_limit(size, limit))


def beyond_limit(size: int | None, limit: int) -> str:
    """The reason why something is not read or computed: it has `size` bytes, or an unknown number of them (None), which
    are more than the limit.
    """
    shown = f"more than {limit}" if size is None else size
    return f"it would take {shown} bytes, Storage(max_record_bytes={limit}) allows no more"


def beyond_memory(size: int, room: float) -> str:
    """The reason why `size` bytes of a local file are not read: memory has room for fewer."""
    return f"it would take {size} bytes, and memory has room for {int(room)}"
