"""The records of files that are compressed as a whole."""

from __future__ import annotations

import bisect
import collections
import contextlib
import errno
import os
import threading
import weakref
from collections.abc import Sequence
from concurrent.futures import Executor

import numpy as np

from .._core.system import available_cpus
from .containers import Extents, indexed
from .deflate import Inflater, RestartPoint
from .files import Files, Path
from .index import compressed_extents, tfrecord_extents
from .shuffle import Groups
from .storage import ByteRange
from .urls import is_url

_CACHE_BYTES = 512 << 20  # limit of the decompressed blocks that are kept, for each shard
_BLOCK_BYTES = 1 << 20  # the least size of a block, where its file goes on
_MAX_POINTS = 2048  # restart points of a list, of about 50 KB each
_READ = 1 << 18  # bytes of a local file that are read at once
_REQUEST = 1 << 20  # bytes of a remote file that are requested at once, if it is not known how many a block has
_MAX_OFFSET = 1 << 60  # so that sums of offsets and sizes don't overflow


class _Block:
    """Consecutive records of a file in memory.

    Attributes:
      first: the number of the first one.
      starts: ``i64[records + 1]``, the place of each in `data`. A record that is larger than the settings allow has no
        bytes there.
      data: their bytes.
      error: the reason why the block can't be read; "" if it can.
    """

    def __init__(self, first: int, starts: np.ndarray, data: memoryview, error: str = ""):
        self.first, self.starts, self.data, self.error = first, starts, data, error


class CompressedExtents(Extents):
    """TFRecords of files some of which are compressed as a whole, see `Files.compression`.

    Offsets and sizes are those in the decompressed files. Records are read in blocks, which are decompressed from a
    restart point at their beginning. Such points are made when the file is decompressed for the first time: when the
    list is made, or with an index, when a block is first read.

    Attributes:
      _step: a block begins at the first record at or behind a multiple of so many bytes of its file.
      _first: ``i64[blocks + 1]``, the first record of each block, and the number of records.
      _points: the restart points of each file, by its path, in their order.
    """

    def __init__(self, reader: str, files: Files, indices: Sequence[Path | None] | None):
        """Finds the records by the indices; a missing index is made with a warning. Raises RuntimeError if a file can't be
        read, is damaged, or is not what its index says.

        Args:
          reader: name of the reader, for the warning.
          files: the files.
          indices: see `indexed`.
        """
        self._points: dict[str, list[RestartPoint]] = {
            files.path(k): [RestartPoint()] for k in range(len(files)) if k in files.compression
        }
        self._compression = {files.path(k): name for k, name in files.compression.items()}
        self._step, self._num_points = _BLOCK_BYTES, 0
        self._lock = threading.Lock()  # guards `_cached`, `_in_use`, `_block_locks` and `_points`
        num_threads = min(len(files), available_cpus())
        table, bounds = indexed(reader, files, indices, lambda path: self._extents(os.fspath(path)), num_threads)
        super().__init__(files, table, bounds)
        self.in_memory = True
        if indices is not None:
            self._check_order(indices)
        # The end of the last record of each file: there may be more behind it.
        last = np.maximum(bounds[1:], 1) - 1
        self.sizes = np.where(bounds[1:] > bounds[:-1], table[last].sum(1), 0)
        self._first = self._blocks()
        self._num_shards = 1  # set by `read_by`
        self._cached: collections.OrderedDict[int, _Block] = collections.OrderedDict()
        # Includes the blocks that have left the cache, but that a batch still holds.
        self._in_use: weakref.WeakValueDictionary[int, _Block] = weakref.WeakValueDictionary()
        self._block_locks: dict[int, threading.Lock] = collections.defaultdict(threading.Lock)
        self._file_locks = {path: threading.Lock() for path in self._points}

    # --- places of records and blocks ---------------------------------------------------------------------------

    def _extents(self, path: str) -> np.ndarray:
        """The places of the records of a local file. Those of a compressed one are found by decompressing all of it, which
        also makes its restart points. Several threads may call it for different files.
        """
        if path not in self._points:
            return tfrecord_extents(path)
        own_points = [RestartPoint()]

        def keep(point: RestartPoint) -> int:
            with self._lock:
                if point.position:
                    own_points.append(point)
                    self._num_points += 1
                # Twice the step leaves every second point.
                while self._num_points > _MAX_POINTS:
                    self._step *= 2
                    for points in self._points.values():
                        points[:] = _first_of_steps(points, self._step)
                    self._num_points = sum(map(len, self._points.values())) - len(self._points)
                return self._step

        with self._lock:
            self._points[path] = own_points  # a file may be given twice
        return compressed_extents(path, self._compression[path], keep)

    def _check_order(self, indices: Sequence[Path | None]):
        """Raises RuntimeError unless the records of each compressed file stand one after another."""
        offsets, sizes = self.table[:, 0], self.table[:, 1]
        is_wrong = (offsets < 0) | (sizes < 0) | (offsets > _MAX_OFFSET) | (sizes > _MAX_OFFSET)
        is_wrong[1:] |= offsets[1:] != offsets[:-1] + sizes[:-1]
        is_wrong[self.bounds[:-1][self.bounds[:-1] < len(self)]] = False  # the first records of files
        for k in np.flatnonzero(is_wrong).tolist():
            file = int(self.file_of(k))
            if file in self.files.compression:
                raise RuntimeError(
                    f"{indices[file]}, record {k - int(self.bounds[file])}: in the index of a compressed file, each record must begin "
                    "where the one before ends"
                )

    def _blocks(self) -> np.ndarray:
        """The first record of each block and the number of records, ``i64[blocks + 1]``. Chooses `_step`, and drops
        restart points at other places.
        """
        is_first_of_file = np.zeros(len(self), bool)
        is_first_of_file[self.bounds[:-1][self.bounds[:-1] < len(self)]] = True
        self._step = _BLOCK_BYTES
        while True:
            steps = self.table[:, 0] // self._step
            is_first = is_first_of_file.copy()
            is_first[1:] |= steps[1:] != steps[:-1]
            # Each block needs a restart point, but for the first one of a file. Longer steps make fewer blocks.
            if np.count_nonzero(is_first & ~is_first_of_file) <= _MAX_POINTS:
                break
            self._step *= 2
        first = np.flatnonzero(is_first)
        starts = {path: set[int]() for path in self._points}
        for position, file in zip(self.table[first, 0].tolist(), self.file_of(first).tolist()):
            if file in self.files.compression:
                starts[self.files.path(file)].add(position)
        for path, points in self._points.items():
            points[1:] = [p for p in points[1:] if p.position in starts[path]]
        return np.append(first, len(self))

    def _block_of(self, index: np.ndarray | int) -> np.ndarray:
        """Numbers of the blocks of records."""
        return np.searchsorted(self._first, index, "right") - 1

    def groups(self) -> Groups | None:
        """See `Records.groups`. A list that fits into the cache is shuffled record by record."""
        sizes = np.where(self.table[:, 1] > self.store.settings.record_bytes, 0, self.table[:, 1])
        if sizes.sum() <= _CACHE_BYTES:
            return None
        return Groups(np.diff(self._first), np.add.reduceat(sizes, self._first[:-1]), buffer=_CACHE_BYTES // 2)

    def read_by(self, shards: int) -> None:
        """See `Records.read_by`. The cache has `_CACHE_BYTES` for each shard."""
        self._num_shards = shards

    # --- contents of records ------------------------------------------------------------------------------------

    def ahead(self, index: np.ndarray, now: int) -> None:
        """See `Records.ahead`. Records become the ranges of their blocks, where these are known."""
        blocks = self._block_of(index)
        new_blocks = [k for k in dict.fromkeys(blocks.tolist()) if k not in self._cached]
        needed_now = {*blocks[:now].tolist()}
        ranges = [(k, r) for k in new_blocks if (r := self._range(k)) is not None and is_url(r.path)]
        self.store.ahead([r for _, r in ranges], sum(k in needed_now for k, _ in ranges))

    def prepare(self, index: np.ndarray, threads: Executor | None) -> list[_Block]:
        """See `Extents.prepare`: decompresses the blocks of the records."""
        # Blocks that are in the cache come first, since the others may need their place.
        blocks = sorted(np.unique(self._block_of(index)).tolist(), key=lambda k: k not in self._cached)
        return list((map if threads is None else threads.map)(self._block, blocks))

    def fetched(self, i: int) -> memoryview:
        """See `Extents.fetched`."""
        block = self._block(int(self._block_of(i)))
        if block.error:
            raise OSError(errno.EIO, block.error, self.path(i))
        return block.data[block.starts[i - block.first] : block.starts[i - block.first + 1]]

    def _block(self, k: int) -> _Block:
        """A block. It is decompressed if neither the cache nor a batch has it."""
        with self._lock:
            block_lock = self._block_locks[k]
        with block_lock:  # one thread decompresses it, and others that need it wait
            with self._lock:
                if k in self._cached:
                    self._cached.move_to_end(k)
                if (block := self._in_use.get(k)) is not None:
                    return block
            block = self._read_block(k)
            with self._lock:
                self._in_use[k] = block
                if not block.error:  # another attempt may succeed
                    self._cached[k] = block
                num_bytes = sum(len(b.data) for b in self._cached.values())
                while len(self._cached) > 1 and num_bytes > self._num_shards * _CACHE_BYTES:
                    _, dropped = self._cached.popitem(last=False)
                    num_bytes -= len(dropped.data)
            return block

    def _read_block(self, k: int) -> _Block:
        """Reads a block of a file."""
        first, end = self._first[k : k + 2].tolist()
        sizes = self.table[first:end, 1]
        is_large = sizes > self.store.settings.record_bytes
        starts = np.append(0, np.cumsum(np.where(is_large, 0, sizes)))
        try:
            if is_large.any():
                data = b"".join(self._bytes(k, i, i + 1) for i in range(first, end) if not is_large[i - first])
            else:
                data = self._bytes(k, first, end)
        except ValueError as e:
            return _Block(first, starts, memoryview(b""), str(e))
        except OSError as e:
            return _Block(first, starts, memoryview(b""), e.strerror or str(e))
        return _Block(first, starts, memoryview(data))

    def _bytes(self, k: int, first: int, end: int) -> bytes:
        """The records first .. end - 1 of block `k`.

        Raises:
          OSError: the file can't be read, or has changed.
          ValueError: it is damaged.
        """
        file = int(self.file_of(first))
        path, begin, size = self.path(first), int(self.table[first, 0]), int(self.table[first:end, 1].sum())
        with contextlib.ExitStack() as stack:
            if is_url(path):
                block_range = self._range(k)

                def read(offset: int) -> bytes:
                    # The range that `ahead` announces, if this begins there.
                    if block_range is not None and block_range.start == offset:
                        return self.store.read(*block_range)
                    return self.store.read(path, offset, min(_REQUEST, int(self.stamps[2 * file]) - offset))
            else:
                f = stack.enter_context(open(path, "rb"))
                status = os.fstat(f.fileno())
                if [status.st_size, status.st_mtime_ns] != self.stamps[2 * file : 2 * file + 2].tolist():
                    raise OSError(errno.EIO, "the file has changed since the pipeline was built", path)

                def read(offset: int) -> bytes:
                    return os.pread(f.fileno(), _READ, offset)

            if path not in self._points:
                return self.store.read(path, begin, size)
            inflater = self._inflater(read, path, file, int(self.table[self._first[k], 0]))
            inflater.skip(begin)
            data = inflater.read(size)
            if len(data) < size:
                record = first + int(np.searchsorted(self.table[first:end].sum(1), inflater.position, "right"))
                raise ValueError(
                    f"the decompressed file ends at {inflater.position}, before record {record - int(self.bounds[file])} does: the index "
                    "is of another file"
                )
            if end == self.bounds[file + 1]:  # what is behind the last record, such as a checksum, is checked, too
                inflater.read(1)
            return data

    def _inflater(self, read, path: str, file: int, position: int) -> Inflater:
        """An inflater at the beginning of a block. Makes the restart points up to there, if there are none yet."""
        size, compression = int(self.stamps[2 * file]), self._compression[path]
        if (point := self._point(path, position)).position == position:
            return Inflater(read, size, compression, point)
        with self._file_locks[path]:  # the others wait for the points that this thread makes
            inflater = Inflater(read, size, compression, self._point(path, position))
            starts = self.table[self._first[slice(*np.searchsorted(self._first, self.bounds[file : file + 2]))], 0]
            for start in starts[(starts > inflater.position) & (starts <= position)].tolist():
                inflater.skip(start)
                if inflater.position < start:
                    raise ValueError(
                        f"the decompressed file ends at {inflater.position}, before a record that begins at {start}: the index is of "
                        "another file"
                    )
                with self._lock:
                    bisect.insort(self._points[path], inflater.point(), key=lambda p: p.position)
        return inflater

    def _point(self, path: str, position: int) -> RestartPoint:
        """The last restart point of a file that is not behind a position."""
        with self._lock:
            points = self._points[path]
            return points[bisect.bisect_right(points, position, key=lambda p: p.position) - 1]

    def _range(self, k: int) -> ByteRange | None:
        """The compressed bytes of a block; None if they are unknown."""
        first, end = self._first[k : k + 2].tolist()
        file, path = int(self.file_of(first)), self.path(first)
        begin, stop = int(self.table[first, 0]), int(self.table[end - 1].sum())
        if path not in self._points:
            return ByteRange(path, begin, stop - begin)
        point, next_point = self._point(path, begin), self._point(path, stop)
        if point.position != begin:
            return None
        if end == self.bounds[file + 1]:
            return ByteRange(path, point.offset, int(self.stamps[2 * file]) - point.offset)
        return ByteRange(path, point.offset, next_point.offset - point.offset) if next_point.position == stop else None

    def close(self) -> None:
        """See `Extents.close`. Restart points stay."""
        with self._lock:
            self._cached.clear()
            self._in_use.clear()


def _first_of_steps(points: Sequence[RestartPoint], step: int) -> list[RestartPoint]:
    """The first of the points of a file in each step of its decompressed data."""
    return [p for k, p in enumerate(points) if not k or points[k - 1].position // step != p.position // step]
