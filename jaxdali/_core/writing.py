"""Writing of files that other processes may read at any time."""

from __future__ import annotations

import contextlib
import os


def write_whole(path: str | os.PathLike[str], data: bytes) -> None:
    """Writes a file ``path.new``, and renames it when it is complete. Until then, and after an error, the former file
    stays. A symbolic link stays, too, and pipes and devices are written to.

    Raises:
      OSError: it can't be written. The error of a full disk has no name of a file.
    """
    target = os.path.realpath(path)
    if os.path.exists(target) and not os.path.isfile(target):
        with open(target, "wb") as f:
            f.write(data)
        return
    part = f"{target}.new"
    try:
        with open(part, "wb") as f:
            f.write(data)
        os.replace(part, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.remove(part)
        raise
