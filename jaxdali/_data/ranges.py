"""Ranges of files, which are the records of containers."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from .. import _cpu
from .._core.context import HostContext
from .._core.ragged import Packed, plan_offsets
from .._cpu import Status
from .files import Files
from .storage import ByteRange, Store

_CHECKED_AT_ONCE = 1 << 20  # ranges that are checked at a time


class Ranges:
    """N ranges of bytes in a list of files.

    Args:
      files: with sizes, as `Files.of` gives them.
      file: ``i64[N]``, the file of each range.
      start, size: ``i64[N]``, in bytes.

    Raises:
      RuntimeError: a range lies outside its file, probably because the index belongs to another file.
    """

    _read_packed = staticmethod(_cpu.read_packed_ranges)

    def __init__(self, files: Files, file: np.ndarray, start: np.ndarray, size: np.ndarray):
        """Checks that all ranges lie inside their files, block by block, which needs little memory."""
        assert files.sizes is not None
        self.files = files
        self._file_sizes = np.array(files.sizes, np.int64)
        for first in range(0, len(file), _CHECKED_AT_ONCE):
            block = slice(first, first + _CHECKED_AT_ONCE)
            begins, lengths = self._file_extents(np.asarray(start[block], np.int64), np.asarray(size[block], np.int64))
            is_outside = (begins < 0) | (lengths < 0) | (begins > self._file_sizes[file[block]] - lengths)
            if is_outside.any():
                i = int(is_outside.argmax())
                path, file_size = files.path(int(file[first + i])), self._file_sizes[file[first + i]]
                raise RuntimeError(
                    f"{path}: {lengths[i]} bytes from {begins[i]} on exceed its size of {file_size}; does the index belong to another file?"
                )
        # In the smallest types that hold them, because ten million records are common.
        self.file, self.start, self.size = narrowed(file), narrowed(start), narrowed(size)

    @staticmethod
    def _file_extents(start: np.ndarray, size: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(first byte in the file, number of bytes in the file) of each range, ``i64[n]`` each. Subclasses may use
        other units.
        """
        return start, size

    def _file_extent(self, i: int) -> tuple[int, int]:
        """(first byte in the file, number of bytes in the file) of range `i`."""
        first, size = self._file_extents(self.start[i : i + 1].astype(np.int64), self.size[i : i + 1].astype(np.int64))
        return int(first[0]), int(size[0])

    def __len__(self) -> int:
        return len(self.file)

    @property
    def store(self) -> Store:
        """The store that the files are read from."""
        return self.files.store

    @property
    def read_ahead(self) -> int:
        """See `Records.read_ahead`."""
        return self.files.read_ahead

    def name(self, i: int) -> str:
        """File and position, for messages."""
        first, _ = self._file_extent(i)
        return f"{self.files.path(int(self.file[i]))}, {self.size[i]} bytes from {first} on"

    def oversized(self, index: np.ndarray) -> bool:
        """Whether one of the ranges `index` is larger than a record may be. Then `read` refuses that range, and
        `read_batch` must not be called.
        """
        return bool((self.size[index] > self.store.settings.record_bytes).any())

    def read(self, i: int) -> bytes:
        """One range. Raises OSError, whose `filename` is the file's path, and ValueError if the range is larger than a
        record may be.
        """
        if reason := self.store.settings.too_large(int(self.size[i])):
            raise ValueError(f"{self.name(i)}: {reason}")
        return self.store.read(*self._range(i))

    def ahead(self, index: np.ndarray, now: int) -> None:
        """Announces the ranges that are read next; see `Records.ahead`."""
        self.store.ahead(map(self._range, index.tolist()), now)

    def _range(self, i: int) -> ByteRange:
        return ByteRange(self.files.path(int(self.file[i])), *self._file_extent(i))

    @staticmethod
    def read_batch(ctx: HostContext, parts: Sequence[tuple[Ranges, np.ndarray]]) -> Packed:
        """A batch of ranges as one packed value ``uint8``. Native threads read local ranges directly to their places.

        Args:
          parts: (ranges, indices in them), one list after another, as in `Records.read_batch`.
        """
        sizes = [ranges.size[index] for ranges, index in parts]
        shapes = (np.concatenate(sizes) if len(parts) > 1 else sizes[0]).astype(np.int64)[:, None]
        offsets, need = plan_offsets(shapes, ctx.S)
        packed = Packed(ctx.empty(need, np.uint8, 0), offsets, shapes)
        first = 0
        for ranges, index in parts:
            for k, reason in ranges.read_to(index, packed, first, ctx.pool).items():
                ctx.fail(first + k, Status.RECORD, reason)
            first += len(index)
        return packed

    def read_to(self, index: np.ndarray, packed: Packed, first: int, pool: int) -> dict[int, str]:
        """Reads the ranges `index` into `packed`, as its samples from `first` on.

        Returns:
          The reason for each range that could not be read, by its place in `index`.
        """
        if self.files.remote:
            failed = {}
            for k, i in enumerate(index.tolist()):
                try:
                    packed[first + k][:] = np.frombuffer(self.read(i), np.uint8)
                except OSError as e:
                    failed[k] = f"{self.name(i)}: {e.strerror}"
            return failed
        extents = self.file, self.start, self.size, index
        errors = self._read_packed(
            self.files.table, *extents, packed.data, packed.offsets, first, self._file_sizes, pool
        )
        return {k: f"{self.name(int(index[k]))}: {error_text(error)}" for k, error in errors}


def narrowed(x: np.ndarray) -> np.ndarray:
    """Nonnegative numbers in the smallest type that holds them. Copies only if the type changes."""
    dtype = np.min_scalar_type(int(x.max(initial=0)))
    return x if x.dtype.itemsize == dtype.itemsize else x.astype(dtype)


def error_text(error: int) -> str:
    """The text for an error number of native reading."""
    return "its size changed after it was opened" if error == _cpu.SIZE_CHANGED else os.strerror(error)
