"""The indices that lie beside containers, ``FILE.idx``, as ``python -m jaxdali.index`` and ``jaxdali.pack`` write them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from .._core.building import warn
from .._core.redaction import redacted
from .files import Files
from .urls import is_url

_THREADS = 16  # containers that are looked at at the same time
_HEADER = 512  # bytes, in a tar archive
_MAKE_LOCALLY = "python -m jaxdali.index makes it from a local copy"

# Returns the reason why the index of container `k` can't be used, or "". Raises RuntimeError if the index is damaged.
Check = Callable[[int, str], str]


def own_index(files: Files, k: int, check: Check) -> tuple[str | None, str]:
    """Finds the index beside container `k`.

    The user has not named this file, so it is used only if it fits: it is not older than the container (remote files
    have no times here), and `check` agrees. That of a compressed file is never used, because nothing tells where the
    last record has to end.

    Returns:
      (its path, or None if there is none that can be used; the reason why it can't be used, or "").
    """
    path = files.path(k)
    index = f"{path}.idx"
    if not files.store.is_file(index):
        return None, ""
    if k in files.compression:
        return None, f"{redacted(index)} can't be compared with its compressed file"
    try:
        if not is_url(path) and os.stat(index).st_mtime_ns < os.stat(path).st_mtime_ns:
            return None, f"{index} is older than its file"
        reason = check(k, index)
    except OSError as e:
        reason = f"can't read {redacted(index)}: {e.strerror}"
    except RuntimeError as e:
        reason = str(e)
    return (None, reason) if reason else (index, "")


def own_indices(reader: str, files: Files, check: Check) -> list[str | None]:
    """Finds the index beside each container; None for those that must be made in memory, of which warnings tell.

    Args:
      reader: name of the reader, for the warnings.

    Raises:
      RuntimeError: a remote container has no index that can be used.
    """
    with ThreadPoolExecutor(min(_THREADS, max(len(files), 1))) as threads:
        indices = [*threads.map(lambda k: own_index(files, k, check), range(len(files)))]
    lacking = [k for k, index_or_reason in enumerate(indices) if index_or_reason == (None, "")]
    warn_no_index(reader, files, [files.path(k) for k in lacking if not _is_empty_archive(files, k)])
    unfit = [k for k, (_, reason) in enumerate(indices) if reason]
    if unfit:
        _, reason = indices[unfit[0]]
        is_compressed = unfit[0] in files.compression
        _refuse_remote(files, reason, "index_path= uses it" if is_compressed else _MAKE_LOCALLY)
        remainder = f" (and {len(unfit) - 1} more)" if len(unfit) > 1 else ""
        advice = "index_path= uses it nevertheless" if is_compressed else "python -m jaxdali.index writes it anew"
        warn(f"{reader}: {reason}{remainder}: it is made in memory each time; {advice}")
    return [index for index, _ in indices]


def warn_no_index(reader: str, files: Files, lacking: Sequence[str]):
    """Warns that the containers `lacking` have no index, so that it is made in memory. Raises RuntimeError if they are
    remote: no index can be made of them.
    """
    if lacking:
        named = ", which index_path= has to name" if files.compression else ""
        _refuse_remote(files, f"there is no index of {lacking[0]}", f"{_MAKE_LOCALLY}{named}")
        text = f"{lacking[0]}{f' and {len(lacking) - 1} more' if len(lacking) > 1 else ''}"
        warn(
            f"{reader}: there is no index of {text}: it is made in memory each time; "
            f"python -m jaxdali.index writes it to a file{named}"
        )


def _refuse_remote(files: Files, reason: str, advice: str):
    """Raises RuntimeError if an index would have to be made of remote files."""
    if files.remote:
        files.store.close()  # otherwise its threads would wait for more requests
        raise RuntimeError(f"{reason}: {advice}")


def _is_empty_archive(files: Files, k: int) -> bool:
    """Whether container `k` is a local archive without members, which has no index. It has only zeros."""
    assert files.sizes is not None
    try:
        head = b"" if is_url(files.path(k)) else files.store.read(files.path(k), 0, min(files.sizes[k], _HEADER))
    except OSError:  # is an error when its index is made
        return False
    return bool(head) and not any(head)


def check_extents(index: str, table: np.ndarray, size: int) -> str:
    """Returns the reason why a table of offsets and sizes, ``i64[n, 2]``, can't be that of a TFRecord file of `size`
    bytes, or "". In such a file records stand one after another.
    """
    ends = table.sum(1)
    # An end is negative where the sum is too large for an integer.
    fits = not table[0, 0] and (table[:, 1] > 0).all() and (ends > 0).all() and (table[1:, 0] == ends[:-1]).all()
    return "" if fits and ends[-1] == size else f"{index} does not fit its file"
