"""Records that lie one after another in a few large files: where, and how a batch of them is read natively."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from .. import _cpu
from .._core.context import HostContext
from .._core.ragged import Packed, plan_offsets
from .._core.values import Spec
from .._cpu import RecordFormat, Status, ValueType
from .files import Files, Path
from .listed import Records, warn
from .storage import Range, Store, is_url, plain

_CHUNK = 1 << 22  # bytes of an index that are parsed at once

_TYPES = {
    np.dtype(np.uint8): int(ValueType.BYTES),
    np.dtype(np.float32): int(ValueType.FLOATS),
    np.dtype(np.int64): int(ValueType.INTS),
    np.dtype(np.int32): int(ValueType.INTS),
}
_TYPE_NAMES = {ValueType.NONE: "nothing", ValueType.BYTES: "bytes", ValueType.FLOATS: "floats", ValueType.INTS: "integers"}


@dataclasses.dataclass(frozen=True)
class Field:
    """What an output is made of.

    Attributes:
      name: for messages, e.g. ``feature 'image/encoded'``.
      number: of the record's fields, as the native code has them.
      spec: of the output. With a shape: every record has so many values. With `dims` (None, ...): a multiple of what these make.
      default: what a record that lacks the field has: for an output with a shape the value of all elements (None: it must not be
        lacking); other outputs are then empty.
    """

    name: str
    number: int
    spec: Spec
    default: float | None = None

    def shapes(self, types: np.ndarray, counts: np.ndarray, dims: np.ndarray) -> tuple[np.ndarray, dict[int, str]]:
        """Shapes ``i64[N, ndim]`` of a batch's values, and what is wrong with some of them."""
        spec, wrong, expected = self.spec, None, ""
        if spec.shape is not None:
            shapes = np.broadcast_to(np.array(spec.shape, np.int64), (len(types), spec.ndim))
            wrong, expected = counts != math.prod(spec.shape), f"expected {math.prod(spec.shape)}"
            if self.default is not None:
                wrong &= types != 0
        elif spec.dims is not None:
            inner = [n or 0 for n in spec.dims[1:]]
            shapes = np.empty((len(types), spec.ndim), np.int64)
            shapes[:, 1:] = inner
            shapes[:, 0], wrong = np.divmod(counts, math.prod(inner))
            expected = f"not a multiple of {math.prod(inner)}, as its shape has it"
        elif spec.ndim == 3:
            shapes = dims.copy()
            wrong, expected = (dims.prod(axis=1) != counts) | (dims < 0).any(axis=1), "which is not what its shape says"
        else:
            shapes = counts[:, None].copy()
        problems = {}
        if wrong is not None and wrong.any():
            problems = {i: f"its {self.name} has {counts[i]} values, {expected}" for i in np.flatnonzero(wrong).tolist()}
        wrong = types != _TYPES[spec.dtype]
        if wrong.any():
            what = f"not of {spec.dtype}"
            problems |= {
                i: f"its {self.name} consists of {_TYPE_NAMES[t]}, {what}" for i in np.flatnonzero(wrong).tolist() if (t := types[i])
            }
        return shapes, problems


class ContainerRecords(Records):
    """A list of records that the native code reads.

    Attributes:
      fields: of each output.
    """

    fields: tuple[Field, ...]

    @property
    def specs(self) -> tuple[Spec, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return tuple(f.spec for f in self.fields)

    def new_batch(self, n: int) -> _cpu.RecordBatch:
        """A native batch of n records, nothing read yet."""
        raise NotImplementedError(type(self).__name__)

    def scan(self, batch: _cpu.RecordBatch, index: np.ndarray, pool: int) -> contextlib.AbstractContextManager[Mapping[int, str]]:
        """Finds the records of a batch; they are there while the context lasts. Gives those that could not be fetched, and why."""
        raise NotImplementedError(type(self).__name__)

    @classmethod
    def read_batch(cls, ctx: HostContext, parts: Sequence[tuple[Any, np.ndarray]], threads: Any) -> tuple[Any, ...]:
        with contextlib.ExitStack() as stack:
            batches, types, counts, dims, lost = [], [], [], [], {}
            begin = 0
            for records, index in parts:
                batch = records.new_batch(len(index))
                lost |= {begin + i: why for i, why in stack.enter_context(records.scan(batch, index, ctx.pool)).items()}
                batches.append((slice(begin, begin := begin + len(index)), batch))
                for found, x in zip((types, counts, dims), described(batch, len(index), records.num_fields)):
                    found.append(x)
            found = np.concatenate(types), np.concatenate(counts), np.concatenate(dims)
            return _filled(ctx, parts[0][0].fields, batches, *found, lost)

    @property
    def num_fields(self) -> int:
        """Fields of the native batch."""
        return max((f.number for f in self.fields), default=-1) + 1


def described(batch: _cpu.RecordBatch, n: int, fields: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(types ``i32[n, fields]``, number of values ``i64[n, fields]``, shapes ``i64[n, fields, 3]``) of what was scanned."""
    x = np.empty((n, fields), np.int32), np.empty((n, fields), np.int64), np.empty((n, fields, 3), np.int64)
    batch.describe(*x)
    return x


def _filled(
    ctx: HostContext, fields: Sequence[Field], batches: Any, types: Any, counts: Any, dims: Any, lost: dict[int, str]
) -> tuple[Any, ...]:
    """The outputs of what was scanned."""
    shapes, failed = [], {place.start + i: why for place, batch in batches for i, why in batch.errors()} | lost
    for f in fields:
        found, problems = f.shapes(types[:, f.number], counts[:, f.number], dims[:, f.number])
        shapes.append(found)
        if problems:
            failed = {**problems, **failed}
    bad = np.zeros(ctx.N, bool)
    bad[list(failed)] = True
    outputs = []
    for k, (f, rows) in enumerate(zip(fields, shapes)):
        missing = types[:, f.number] == 0
        if f.spec.shape is not None:
            out = whole = np.zeros((ctx.N, *f.spec.shape), f.spec.dtype)
            if f.default:
                out[missing] = f.default
            starts = np.arange(ctx.N) * math.prod(f.spec.shape)
        else:
            if failed:
                rows[bad] = 0
            offsets, need = plan_offsets(rows, ctx.S)
            out = Packed(ctx.empty(need, f.spec.dtype, k), offsets, rows)
            whole = out.data
            starts = out.starts
        for place, batch in batches:
            batch.fill(f.number, whole.reshape(-1), starts[place], (bad | missing)[place], ctx.pool)
        outputs.append(out)
    for place, batch in batches:
        for i, why in batch.errors():  # also what happened while values were copied
            failed.setdefault(place.start + i, why)
    for i in sorted(failed):
        ctx.fail(i, Status.READ_ERROR, failed[i])
    return tuple(outputs)


class Extents:
    """Records as parts of files.

    Attributes:
      table: ``i64[n, 2]``, offset and size of each; bounds: ``i64[files + 1]``, the first of each file, and the one behind the last.
      digest: of all this.

    Args:
      files: the containers.
      table, bounds: as above.
    """

    def __init__(self, files: Files, table: np.ndarray, bounds: np.ndarray):
        self.files = files
        self.table = table
        self.bounds = bounds
        self._stamps = np.zeros((len(files), 2), np.int64)
        if files.remote:
            assert files.sizes is not None
            self._stamps[:, 0] = files.sizes
        else:
            for i in range(len(files)):
                status = os.stat(files.path(i))
                self._stamps[i] = status.st_size, status.st_mtime_ns
        self._checked = np.zeros(len(table), np.uint8)  # whose checksum was found right
        digest = files.digest.copy()
        digest.update(np.ascontiguousarray(table).data)
        digest.update(bounds.tobytes())
        self.digest = digest.hexdigest()[:16]

    def __len__(self) -> int:
        return len(self.table)

    def file_of(self, index: np.ndarray | int) -> np.ndarray:
        """Numbers of the files that records lie in."""
        return np.searchsorted(self.bounds, index, "right") - 1

    def name(self, i: int) -> str:
        return f"{self.path(i)} at index {self.table[i, 0]}"

    def path(self, i: int) -> str:
        """Of the file that record `i` is in."""
        return self.files.path(int(self.file_of(i)))

    @property
    def store(self) -> Store:
        """Of what the files are read."""
        return self.files.store

    @property
    def read_ahead(self) -> int:
        """As `Records.read_ahead`."""
        return self.files.read_ahead

    def ahead(self, index: np.ndarray, now: int) -> None:
        """Records that are read next; see `Records.ahead`."""
        self.store.ahead(map(self.range, index.tolist()), now)

    def range(self, i: int) -> Range:
        """Where record `i` is."""
        return Range(self.path(i), int(self.table[i, 0]), int(self.table[i, 1]))

    def sizes(self, index: np.ndarray) -> np.ndarray:
        """Bytes of records; 0 for those that lie outside of their files, which `scan` says."""
        offsets, sizes = self.table[index].T
        return np.where((offsets < 0) | (sizes > self._stamps[self.file_of(index), 0] - offsets), 0, sizes)

    @contextlib.contextmanager
    def scan(self, batch: _cpu.RecordBatch, index: np.ndarray, pool: int) -> Iterator[Mapping[int, str]]:
        """Finds records in their files; a file that is another one than when the list was made is an error of its records.

        Yields:
          Why, of those that could not be fetched.
        """
        extents, lost = self.table[index], {}
        if self.files.remote:
            fetched = [b""] * len(index)  # stays until the batch has copied from it
            for k, (i, file, (offset, size)) in enumerate(zip(index.tolist(), self.file_of(index).tolist(), extents.tolist())):
                most = int(self._stamps[file, 0])
                if offset < 0 or size > most - offset:
                    lost[k] = f"it lies outside of the file, which has {most} bytes: the index is of another file, or the file is truncated"
                    continue
                try:
                    fetched[k] = self.store.read(*self.range(i))
                except OSError as e:
                    lost[k] = e.strerror or str(e)
            batch.scan_memory([np.frombuffer(x, np.uint8) for x in fetched], pool)
            yield lost
            return
        checked = self._checked[index]
        offsets, sizes = np.ascontiguousarray(extents[:, 0]), np.ascontiguousarray(extents[:, 1])
        batch.scan_files(self.files.table, self._stamps.reshape(-1), self.file_of(index), offsets, sizes, checked, pool)
        self._checked[index] = checked
        yield lost


class ExtentRecords(ContainerRecords):
    """Records that are parts of files.

    Attributes:
      format: of the records; names: of the fields that are looked for, where the format has names.

    Args:
      extents: where the records are.
    """

    format: ClassVar[RecordFormat]
    names: tuple[str, ...] = ()

    def __init__(self, extents: Extents):
        self.stored = self.extents = extents
        self.bounds = extents.bounds
        self.digest = extents.digest

    def __len__(self) -> int:
        return len(self.extents)

    def name(self, i: int) -> str:
        return self.extents.name(i)

    def new_batch(self, n: int) -> _cpu.RecordBatch:
        return _cpu.RecordBatch(self.format, self.names, self.num_fields, n)

    def scan(self, batch: _cpu.RecordBatch, index: np.ndarray, pool: int) -> contextlib.AbstractContextManager[Mapping[int, str]]:
        return self.extents.scan(batch, index, pool)


def read_indices(paths: Sequence[Path], store: Store) -> tuple[np.ndarray, np.ndarray]:
    """Index files of two whole numbers a line: all lines ``i64[n, 2]``, and the bounds ``i64[files + 1]`` of each file's.

    Raises:
      RuntimeError: one can't be read, is empty, or has another line.
    """
    bounds = np.cumsum([0] + [sum(1 + chunk.count(b"\n") for chunk in chunks(p, store)) for p in paths])
    table = np.empty(2 * int(bounds[-1]), np.int64)
    n = 0
    for k, path in enumerate(paths):
        bounds[k] = n // 2
        lines = 0
        for chunk in chunks(path, store):
            found, bad = _cpu.parse_integers(chunk, table[n:])
            if bad >= 0:
                number = lines + chunk[:bad].count(b"\n") + 1
                raise RuntimeError(f"{os.fspath(path)}, line {number}: expected two whole numbers, got {chunk[bad : bad + 20]!r}")
            n += found
            lines += chunk.count(b"\n")
        if n == 2 * bounds[k] or n % 2:
            raise RuntimeError(f"{os.fspath(path)} is no index: it has {n - 2 * bounds[k]} numbers, expected two for each record")
    bounds[len(paths)] = n // 2
    return table[:n].reshape(-1, 2), bounds


def made_in_memory(reader: str, files: Files, lacking: Sequence[str]):
    """A warning that the containers `lacking` have no index; RuntimeError where none can be made, far away."""
    if files.remote:
        raise RuntimeError(f"there is no index of {lacking[0]}: python -m jaxdali.index makes it of a local copy")
    text = f"{lacking[0]}{f' and {len(lacking) - 1} more' if len(lacking) > 1 else ''}"
    warn(f"{reader}: there is no index of {text}: it is made in memory, each time anew; python -m jaxdali.index writes it to a file")


def indexed(reader: str, files: Files, indices: Sequence[Path | None], make: Callable[[Path], np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """What `read_indices` returns. An index that is not given or not there is made of its container, which a warning says."""
    known = [i if i is not None and (is_url(plain(i)) or os.path.exists(plain(i))) else None for i in indices]
    lacking = [files.path(k) for k, i in enumerate(known) if i is None]
    if not lacking:
        return read_indices([i for i in known if i is not None], files.store)
    made_in_memory(reader, files, lacking)
    tables = [make(files.path(k)) if i is None else read_indices([i], files.store)[0] for k, i in enumerate(known)]
    bounds = np.cumsum([0] + [len(t) for t in tables])
    if not bounds[-1]:
        raise RuntimeError(f"there are no records in {', '.join(lacking)}")
    return np.concatenate(tables), bounds


def chunks(path: Path, store: Store) -> Iterator[bytes]:
    """A text file in parts that end with whole lines."""
    try:
        if is_url(plain(path)):
            yield store.read(plain(path))
            return
        with open(plain(path), "rb") as f:
            rest = b""
            while chunk := f.read(_CHUNK):
                head, newline, tail = chunk.rpartition(b"\n")
                if newline:
                    yield rest + head + newline
                    rest = tail
                else:
                    rest += chunk
            yield rest
    except OSError as e:
        raise RuntimeError(f"can't read the index {os.fspath(path)}: {e.strerror}") from e


def check_indices(files: Files, indices: Sequence[Path | None]):
    """RuntimeError where there is not one index for each container."""
    if len(files) != len(indices):
        raise RuntimeError(f"there must be an index for each file, got {len(files)} files and {len(indices)} indices")
