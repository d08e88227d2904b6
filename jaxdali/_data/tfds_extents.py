"""The records of TFRecord files of a data set of TFDS, which have no indices."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from .containers import Extents, read_indices
from .files import Files
from .index import tfrecord_extents
from .storage import Store
from .urls import is_url

_HEAD, _FRAME = 12, 16  # bytes before the data of a record, and around them
_CHUNK = 1 << 20  # bytes of a remote file that are requested at once
_THREADS = 16  # files that are looked through at the same time


def found_extents(files: Files) -> Extents:
    """The records of TFRecord files: by the index ``FILE.idx`` of each, or by the size before each record.

    Raises:
      RuntimeError: a file or an index can't be read, or a file is damaged.
    """
    store = files.store

    def table(i: int) -> np.ndarray:
        """The places of the records of a file, ``i64[n, 2]``."""
        path = files.path(i)
        if store.is_file(f"{path}.idx"):
            return read_indices([f"{path}.idx"], store)[0]
        if not is_url(path):
            return tfrecord_extents(path)
        assert files.sizes is not None
        size = files.sizes[i]
        data = store.kept(
            path, ("records of a TFRecord file", size), lambda: _remote_extents(store, path, size).tobytes()
        )
        return np.frombuffer(data, np.int64).reshape(-1, 2)

    with ThreadPoolExecutor(min(_THREADS, len(files))) as threads:
        tables: Sequence[np.ndarray] = [*threads.map(table, range(len(files)))]
    return Extents(files, np.concatenate(tables), np.cumsum([0, *map(len, tables)]))


def _remote_extents(store: Store, path: str, size: int) -> np.ndarray:
    """Offset and size of each record of a remote file, ``i64[n, 2]``. Large records are left out of what is read.

    Raises:
      RuntimeError: the file can't be read, or ends within a record.
    """
    extents, offset = list[int](), 0
    chunk, begin = b"", 0  # bytes of the file, and the place of the first one
    while offset < size:
        if offset + _HEAD > begin + len(chunk):
            try:
                begin, chunk = offset, store.read(path, offset, min(_CHUNK, size - offset))
            except OSError as e:
                raise RuntimeError(f"can't read {path}: {e.strerror}") from e.__cause__
        # The size of the data comes first, in 8 bytes.
        num_bytes = int.from_bytes(chunk[offset - begin : offset - begin + 8], "little") + _FRAME
        if num_bytes > size - offset:
            raise RuntimeError(
                f"{path}: record {len(extents) // 2} at index {offset} would have {num_bytes} bytes, but the file ends "
                f"{size - offset} bytes later: it is truncated, damaged, or not a TFRecord file"
            )
        extents += offset, num_bytes
        offset += num_bytes
    return np.array(extents, np.int64).reshape(-1, 2)
